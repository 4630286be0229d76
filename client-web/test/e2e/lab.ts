/** Test environment with real programs: relay, publishers, the built page and Chromium. */
import { execFileSync, spawn, type ChildProcess } from "node:child_process";
import { createSocket } from "node:dgram";
import { existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { createServer, type Server, type ServerResponse } from "node:http";
import { createServer as createTcp, type AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { basename, extname, join, normalize } from "node:path";
import { fileURLToPath } from "node:url";
import { chromium, type Browser, type BrowserContext, type Page } from "playwright-core";
import { inject } from "vitest";
import type { Stats } from "../../src/ui/stats.ts";
import { HANG, launchOptions } from "./launch.ts";

export const repo = fileURLToPath(new URL("../../../", import.meta.url));
const dist = process.env["DIST"] ?? fileURLToPath(new URL("../../dist/", import.meta.url));
/** Output directories of other test builds, served in addition to the page. */
const extra = fileURLToPath(new URL("../out/", import.meta.url));
/** Keeps the page's notices, which disappear after some seconds. */
const KEEP_NOTICES = `
  window.notices = [];
  new MutationObserver(() => {
    const text = document.querySelector("#notice")?.textContent;
    if (text && text !== window.notices.at(-1)) window.notices.push(text);
  }).observe(document, { subtree: true, childList: true });
`;
/** Small because the GPU is emulated, but larger than a phone, where the page hides the statistics. */
const VIEWPORT = { width: 576, height: 512 };

const types: Record<string, string> = {
  ".html": "text/html; charset=utf-8", ".js": "text/javascript", ".css": "text/css", ".wasm": "application/wasm",
};

/** A Content-Security-Policy like the relay's. Workers use the policy of their own response, not the page's. */
const policy =
  "default-src 'self'; script-src 'self' 'wasm-unsafe-eval'; style-src 'self' 'unsafe-inline'; " +
  "img-src 'self' data: blob:; connect-src * ws: wss:";

/** Returns a port that is free for both UDP and TCP. */
export async function freePort(): Promise<number> {
  for (;;) {
    const tcp = createTcp();
    await new Promise<void>((resolve) => tcp.listen(0, "127.0.0.1", resolve));
    const { port } = tcp.address() as AddressInfo;
    const udp = createSocket("udp4");
    const free = await new Promise<boolean>((resolve) => {
      udp.once("error", () => resolve(false));
      udp.bind(port, "127.0.0.1", () => resolve(true));
    });
    udp.close();
    await new Promise((resolve) => tcp.close(resolve));
    if (free) return port;
  }
}

/** Polls a condition until it returns a value, and returns the value. */
export async function until<T>(what: string, check: () => Promise<T | undefined | false>): Promise<T> {
  const end = Date.now() + HANG;
  for (;;) {
    const v = await check();
    if (v !== undefined && v !== false) return v as T;
    if (Date.now() > end) throw new Error(`timeout: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
}

/** A running program. */
export class Program {
  readonly #child: ChildProcess;
  output = "";

  constructor(readonly name: string, args: string[]) {
    this.#child = spawn(name, args, { stdio: ["ignore", "pipe", "pipe"] });
    const keep = (b: Buffer) => (this.output = (this.output + b.toString()).slice(-20_000));
    this.#child.stdout!.on("data", keep);
    this.#child.stderr!.on("data", keep);
  }

  get running(): boolean {
    return this.#child.exitCode === null && this.#child.signalCode === null;
  }

  async says(pattern: RegExp): Promise<void> {
    await until(`${this.#child.spawnfile} to print ${pattern}`, async () => {
      if (!this.running) throw new Error(`${this.#child.spawnfile} ended:\n${this.output}`);
      return pattern.test(this.output);
    });
  }

  signal(signal: NodeJS.Signals): void {
    this.#child.kill(signal);
  }

  async stop(signal: NodeJS.Signals = "SIGTERM"): Promise<void> {
    if (!this.running) return;
    const gone = new Promise((resolve) => this.#child.once("exit", resolve));
    this.#child.kill(signal);
    const hard = setTimeout(() => this.#child.kill("SIGKILL"), 8000);
    await gone;
    clearTimeout(hard);
  }
}

export class Lab {
  readonly #programs: Program[] = [];
  readonly #folder = mkdtempSync(join(tmpdir(), "holocast-web-"));
  #web: Server | undefined;
  #browser: Browser | undefined;
  #context: BrowserContext | undefined;
  webPort = 0;
  /** Requests from the pages to other hosts. */
  readonly foreign: string[] = [];
  readonly errors: string[] = [];
  /** Pages' init scripts, and blank pages by init script. */
  readonly #inits = new Map<Page, string>();
  readonly #blank = new Map<string, Page[]>();
  readonly #blocked: ServerResponse[] = [];
  /** Code to prepend to served scripts whose names start with the key. */
  readonly patches = new Map<string, string>();

  /** Serves the page. */
  async open(): Promise<void> {
    if (!existsSync(join(dist, "index.html"))) throw new Error("dist is missing: run npm run build");
    this.#web = createServer((req, res) => {
      if (req.url === "/block") {
        this.#blocked.push(res);
        return;
      }
      if (req.url === "/blank") {
        res.writeHead(200, { "content-type": types[".html"] }).end();
        return;
      }
      const path = normalize(new URL(req.url ?? "/", "http://x").pathname).replace(/\/$/, "/index.html");
      const file = [dist, extra].map((root) => join(root, path)).find((f) => existsSync(f));
      if (!file || path.includes("..")) {
        res.writeHead(404).end();
        return;
      }
      const patches = [...this.patches].flatMap(([name, code]) => (basename(file).startsWith(name) ? [code] : []));
      res
        .writeHead(200, {
          "content-type": types[extname(file)] ?? "application/octet-stream",
          "content-security-policy": policy,
        })
        .end(patches.length === 0 ? readFileSync(file) : [...patches, readFileSync(file, "utf8")].join("\n"));
    });
    await new Promise<void>((resolve) => this.#web!.listen(0, "127.0.0.1", resolve));
    this.webPort = (this.#web.address() as AddressInfo).port;
  }

  program(name: string, ...args: string[]): Program {
    const p = new Program(join(inject("programs"), name), args);
    this.#programs.push(p);
    return p;
  }

  /** Runs a program and waits until it exits. */
  run(name: string, ...args: string[]): void {
    execFileSync(join(inject("programs"), name), args, { stdio: "ignore" });
  }

  /** Waits until n threads have called `block`. */
  async blocked(n: number): Promise<void> {
    await until(`${n} blocked threads`, async () => this.#blocked.length >= n);
  }

  /** Resumes the blocked threads. */
  unblock(): void {
    for (const res of this.#blocked.splice(0)) res.writeHead(204).end();
  }

  /** Starts a relay. The environment's RELAY_ARGS may hold further arguments, such as --fastpath=chacha20. */
  async relay(port: number, ...args: string[]): Promise<Program> {
    const more = (process.env["RELAY_ARGS"] ?? "").split(" ").filter(Boolean);
    const p = this.program(
      "relay",
      "--listen",
      `127.0.0.1:${port}`,
      "--http",
      `127.0.0.1:${port}`,
      "--publisher-grace",
      "3s",
      "--drain",
      "1s",
      ...more,
      ...args,
    );
    await p.says(/relay is listening/);
    return p;
  }

  /** Publishes a synthetic performer as a user would. */
  async performer(port: number, session: string, ...args: string[]): Promise<Program> {
    const p = this.program("capture-server", "--source", "synthetic", ...args, `moqt://127.0.0.1:${port}/${session}`);
    await p.says(/publishing/);
    return p;
  }

  /** Writes a recording with the test publisher and returns the file. */
  recording(name: string, ...args: string[]): string {
    const file = join(this.#folder, name);
    this.run("publisher", "--record", file, ...args);
    return file;
  }

  /** Starts a proxy that drops, duplicates and reorders packets, and changes its clients' addresses. */
  async rough(port: number, relay: number): Promise<Program> {
    const p = this.program("rough", "--move", "2s", `127.0.0.1:${port}`, `127.0.0.1:${relay}`);
    await p.says(/listening/);
    return p;
  }

  /** Replays a recording in a loop. */
  replay(port: number, session: string, file: string): Program {
    return this.program("holocast", "replay", file, `moqt://127.0.0.1:${port}/${session}`, "--loop");
  }

  /** Starts the test publisher (test/publisher). */
  async publisher(port: number, session: string, ...args: string[]): Promise<Program> {
    const p = this.program("publisher", ...args, `moqt://127.0.0.1:${port}/${session}`);
    await p.says(/publishing/);
    return p;
  }

  /** Starts a program that prints the receipts of a session's viewers. */
  async receipts(port: number, session: string): Promise<Program> {
    const p = this.program("publisher", "--receipts", `moqt://127.0.0.1:${port}/${session}`);
    await p.says(/listening for receipts/);
    return p;
  }

  /** Starts a relay that sends GOAWAY with the URI of a session at another relay. */
  async leaving(port: number, to: number, session: string, ...args: string[]): Promise<Program> {
    const p = this.program(
      "publisher",
      "--leave-for",
      `https://127.0.0.1:${to}/${session}`,
      ...args,
      `127.0.0.1:${port}`,
    );
    await p.says(/sending GOAWAY/);
    return p;
  }

  /** Starts a proxy relay that refuses to update subscriptions. */
  async refusing(port: number, behind: number, ...args: string[]): Promise<Program> {
    const p = this.program(
      "publisher",
      "--refuse-updates",
      `https://127.0.0.1:${behind}/`,
      ...args,
      `127.0.0.1:${port}`,
    );
    await p.says(/refusing updates/);
    return p;
  }

  /** Starts a subscriber that discards a session's frames. */
  async watcher(port: number, session: string): Promise<Program> {
    const p = this.program("publisher", "--watch", `moqt://127.0.0.1:${port}/${session}`);
    await p.says(/watching/);
    return p;
  }

  /** Runs the test publisher until it exits and returns its output. */
  publisherOutput(...args: string[]): Buffer {
    return execFileSync(join(inject("programs"), "publisher"), args, { maxBuffer: 64 << 20 });
  }

  /** With `executable`, starts a separate browser instead of using the one shared by all files. */
  constructor(private readonly executable?: string) {}

  async browser(): Promise<BrowserContext> {
    if (this.#context) return this.#context;
    this.#browser = this.executable
      ? await chromium.launch(launchOptions(inject("gpu"), this.executable))
      : await chromium.connect(inject("browser"), { timeout: HANG });
    this.#context = await this.#browser.newContext({ viewport: VIEWPORT });
    this.#context.setDefaultTimeout(HANG);
    return this.#context;
  }

  /** The viewer's address. Over QUIC unless extra has a transport: a busy machine may take TCP for faster. */
  link(port: number, session: string | undefined, extra = ""): string {
    const q = new URLSearchParams({ relay: `https://127.0.0.1:${port}/` });
    if (!extra.includes("&transport=")) q.set("transport", "quic");
    if (session !== undefined) q.set("session", session);
    return `http://127.0.0.1:${this.webPort}/?${q}${extra}`;
  }

  /** Returns a blank page that runs `init` before each document's scripts. */
  async page(init = ""): Promise<Page> {
    const blank = this.#blank.get(init)?.pop();
    if (blank) {
      await blank.bringToFront();
      return blank;
    }
    const page = await (await this.browser()).newPage();
    this.#inits.set(page, init);
    page.on("request", (r) => {
      const u = new URL(r.url());
      if (!["127.0.0.1", "localhost", ""].includes(u.hostname)) this.foreign.push(r.url());
    });
    page.on("pageerror", (e) => this.errors.push(String(e)));
    page.on("console", (m) => {
      if (
        m.type() === "error" &&
        !/ERR_CONNECTION_REFUSED|WebTransport|ERR_QUIC|Failed to load resource/.test(m.text())
      )
        this.errors.push(m.text());
    });
    await page.addInitScript(KEEP_NOTICES);
    if (init) await page.addInitScript(init);
    return page;
  }

  /** Keeps a page for the next test: a page in a new process takes twice the CPU time to load. */
  async reuse(page: Page): Promise<void> {
    if (page.isClosed()) return;
    await page.evaluate(() => sessionStorage.clear());
    await page.goto(`http://127.0.0.1:${this.webPort}/blank`);
    await page.setViewportSize(VIEWPORT);
    const init = this.#inits.get(page)!;
    this.#blank.set(init, [...(this.#blank.get(init) ?? []), page]);
  }

  async close(): Promise<void> {
    await this.#context?.close();
    await this.#browser?.close(); // only disconnects from the shared browser
    for (const p of this.#programs.reverse()) await p.stop();
    await new Promise((resolve) => (this.#web ? this.#web.close(resolve) : resolve(undefined)));
    rmSync(this.#folder, { recursive: true, force: true });
  }
}

/** Blocks the thread until Lab.unblock. For use with `evaluate`. */
export const block = (): void => {
  const request = new XMLHttpRequest();
  request.open("GET", `${location.origin}/block`, false);
  request.send();
};

/** Init script that enables `hide`, since a headless browser treats all tabs as visible. */
export const hideable = `{
  let hidden = false;
  Object.defineProperty(document, "hidden", { get: () => hidden });
  window.hide = (on) => {
    hidden = on;
    document.dispatchEvent(new Event("visibilitychange"));
  };
}`;

export const hide = (page: Page, on: boolean): Promise<void> =>
  page.evaluate((on) => (window as unknown as { hide(on: boolean): void }).hide(on), on);

export const stats = (page: Page): Promise<Stats> => page.evaluate(() => window.holocast!.stats());

export const shows = (page: Page, frames = 1): Promise<Stats> =>
  until(`${frames} frames shown`, async () => {
    const s = await page.evaluate(() => window.holocast?.stats()); // undefined while the page loads
    return s && s.frames >= frames ? s : undefined;
  });

let scrapes = 0;

/** The relay's current metrics. A busy relay repeats its last page for a format, so each request asks for its own. */
export async function metrics(port: number): Promise<string> {
  const headers = { accept: `text/plain;new=${++scrapes}` };
  const reply = await fetch(`http://127.0.0.1:${port}/metrics`, { headers });
  if (!reply.ok) throw new Error(`metrics: status ${reply.status}`);
  return reply.text();
}

/** Value of one of the relay's metrics, summed over its labels. */
export async function metric(port: number, name: string): Promise<number> {
  const text = await metrics(port);
  let sum = 0;
  for (const line of text.split("\n"))
    if (line.startsWith(name) && /[ {]/.test(line[name.length] ?? "")) sum += Number(line.split(" ").pop());
  return sum;
}
