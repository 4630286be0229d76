/** Real programs and a real browser for tests: relay, publishers, the built page, Chromium. */
import { execFileSync, spawn, type ChildProcess } from "node:child_process";
import { createSocket } from "node:dgram";
import { existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { createServer, type Server } from "node:http";
import { createServer as createTcp, type AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { extname, join, normalize } from "node:path";
import { fileURLToPath } from "node:url";
import { chromium, type BrowserContext, type Page } from "playwright-core";
import { inject } from "vitest";
import type { Stats } from "../../src/ui/stats.ts";

export const repo = fileURLToPath(new URL("../../../", import.meta.url));
const dist = process.env["DIST"] ?? fileURLToPath(new URL("../../dist/", import.meta.url));
export const chromiumPath = process.env["CHROMIUM"] ?? "/usr/bin/chromium";
/** What tests serve beside the page, under its folder's name. */
const extra = fileURLToPath(new URL("../out/", import.meta.url));

const types: Record<string, string> = {
  ".html": "text/html; charset=utf-8", ".js": "text/javascript", ".css": "text/css", ".wasm": "application/wasm",
};

/** Workers have the policy of their own response, not the page's; a relay sends one like this. */
const policy = "default-src 'self'; script-src 'self' 'wasm-unsafe-eval'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; connect-src *";

/** A port that is free for UDP and TCP. */
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

/** Waits for something, so long that a machine which has other things to do gets there, too. */
export async function until<T>(what: string, check: () => Promise<T | undefined | false>, ms = 90_000): Promise<T> {
  const end = Date.now() + ms;
  for (;;) {
    const v = await check();
    if (v !== undefined && v !== false) return v as T;
    if (Date.now() > end) throw new Error(`not within ${ms} ms: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

/** A program that a test started. */
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

  async says(pattern: RegExp, ms = 180_000): Promise<void> {
    await until(`${this.#child.spawnfile} to say ${pattern}`, async () => {
      if (!this.running) throw new Error(`${this.#child.spawnfile} ended:\n${this.output}`);
      return pattern.test(this.output);
    }, ms);
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
  readonly #profile = join(this.#folder, "profile");
  #web: Server | undefined;
  #context: BrowserContext | undefined;
  webPort = 0;
  /** Requests of the pages that went elsewhere than to this machine. */
  readonly foreign: string[] = [];
  readonly errors: string[] = [];

  /** Serves the page. */
  async open(): Promise<void> {
    if (!existsSync(join(dist, "index.html"))) throw new Error("dist is missing: run npm run build");
    this.#web = createServer((req, res) => {
      const path = normalize(new URL(req.url ?? "/", "http://x").pathname).replace(/\/$/, "/index.html");
      const file = [dist, extra].map((root) => join(root, path)).find((f) => existsSync(f));
      if (!file || path.includes("..")) {
        res.writeHead(404).end();
        return;
      }
      res.writeHead(200, { "content-type": types[extname(file)] ?? "application/octet-stream", "content-security-policy": policy }).end(readFileSync(file));
    });
    await new Promise<void>((resolve) => this.#web!.listen(0, "127.0.0.1", resolve));
    this.webPort = (this.#web.address() as AddressInfo).port;
  }

  program(name: string, ...args: string[]): Program {
    const p = new Program(join(inject("programs"), name), args);
    this.#programs.push(p);
    return p;
  }

  /** Runs a program to its end. */
  run(name: string, ...args: string[]): void {
    execFileSync(join(inject("programs"), name), args, { stdio: "ignore" });
  }

  /** A relay; RELAY_ARGS in the environment has further arguments, such as --fastpath=chacha20. */
  async relay(port: number, ...args: string[]): Promise<Program> {
    const more = (process.env["RELAY_ARGS"] ?? "").split(" ").filter(Boolean);
    const p = this.program("relay", "--listen", `127.0.0.1:${port}`, "--http", `127.0.0.1:${port}`, "--publisher-grace", "3s", "--drain", "1s", ...more, ...args);
    await p.says(/relay is listening/);
    return p;
  }

  /** A synthetic performer, as a user would publish one. */
  async performer(port: number, session: string, ...args: string[]): Promise<Program> {
    const p = this.program("capture-server", "--source", "synthetic", ...args, `moqt://127.0.0.1:${port}/${session}`);
    await p.says(/publishing/);
    return p;
  }

  /** Records a session for some seconds and returns the file. */
  async record(port: number, session: string, seconds: number): Promise<string> {
    const file = join(this.#folder, `${session}.mcap`);
    const p = this.program("holocast", "record", `moqt://127.0.0.1:${port}/${session}`, file, "--duration", `${seconds}s`);
    await until("the recording", async () => !p.running, 1000 * seconds + 30_000);
    if (!existsSync(file)) throw new Error(`not recorded:\n${p.output}`);
    return file;
  }

  /** A path to a relay that loses, doubles and reorders packets, and moves its clients to other addresses. */
  async rough(port: number, relay: number): Promise<Program> {
    const p = this.program("rough", "--move", "2s", `127.0.0.1:${port}`, `127.0.0.1:${relay}`);
    await p.says(/listening/);
    return p;
  }

  /** Replays a recording, again and again. */
  replay(port: number, session: string, file: string): Program {
    return this.program("holocast", "replay", file, `moqt://127.0.0.1:${port}/${session}`, "--loop");
  }

  /** A publisher that misbehaves or publishes exactly what it is told (test/publisher). */
  async publisher(port: number, session: string, ...args: string[]): Promise<Program> {
    const p = this.program("publisher", ...args, `moqt://127.0.0.1:${port}/${session}`);
    await p.says(/publishing/);
    return p;
  }

  /** Prints what receipts a session's viewers send. */
  async receipts(port: number, session: string): Promise<Program> {
    const p = this.program("publisher", "--receipts", `moqt://127.0.0.1:${port}/${session}`);
    await p.says(/listening for receipts/);
    return p;
  }

  /** A relay that sends everybody to another, where a session is; after some time in which it passes that on. */
  async leaving(port: number, to: number, session: string, ...after: string[]): Promise<Program> {
    const p = this.program("publisher", "--leave-for", `https://127.0.0.1:${to}/${session}`, ...after, `127.0.0.1:${port}`);
    await p.says(/sending away/);
    return p;
  }

  /** A relay before another that cannot change a subscription. */
  async refusing(port: number, behind: number, ...args: string[]): Promise<Program> {
    const p = this.program("publisher", "--refuse-updates", `https://127.0.0.1:${behind}/`, ...args, `127.0.0.1:${port}`);
    await p.says(/refusing updates/);
    return p;
  }

  /** A subscriber of a session's frames that looks at none. */
  async watcher(port: number, session: string): Promise<Program> {
    const p = this.program("publisher", "--watch", `moqt://127.0.0.1:${port}/${session}`);
    await p.says(/watching/);
    return p;
  }

  /** Runs the test publisher to its end and returns what it writes. */
  publisherOutput(...args: string[]): Buffer {
    return execFileSync(join(inject("programs"), "publisher"), args, { maxBuffer: 64 << 20 });
  }

  /** executable: the browser's, where it is not that of CHROMIUM. */
  constructor(private readonly executable?: string) {}

  async browser(): Promise<BrowserContext> {
    this.#context ??= await chromium.launchPersistentContext(this.#profile, {
      executablePath: this.executable ?? chromiumPath,
      headless: true,
      viewport: { width: 960, height: 640 },
      args: [
        "--no-sandbox", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync",
        "--use-gl=angle", "--use-angle=swiftshader", "--enable-unsafe-swiftshader", "--ignore-gpu-blocklist",
      ],
    });
    return this.#context;
  }

  link(port: number, session: string | undefined, extra = ""): string {
    const q = new URLSearchParams({ relay: `https://127.0.0.1:${port}/` });
    if (session !== undefined) q.set("session", session);
    return `http://127.0.0.1:${this.webPort}/?${q}${extra}`;
  }

  async page(init?: string): Promise<Page> {
    const page = await (await this.browser()).newPage();
    page.on("request", (r) => {
      const u = new URL(r.url());
      if (!["127.0.0.1", "localhost", ""].includes(u.hostname)) this.foreign.push(r.url());
    });
    page.on("pageerror", (e) => this.errors.push(String(e)));
    page.on("console", (m) => {
      if (m.type() === "error" && !/ERR_CONNECTION_REFUSED|WebTransport|ERR_QUIC|Failed to load resource/.test(m.text())) this.errors.push(m.text());
    });
    if (init) await page.addInitScript(init);
    return page;
  }

  async close(): Promise<void> {
    await this.#context?.close();
    for (const p of this.#programs.reverse()) await p.stop();
    await new Promise((resolve) => (this.#web ? this.#web.close(resolve) : resolve(undefined)));
    rmSync(this.#folder, { recursive: true, force: true });
  }
}

/** Script of a page that `hide` hides: headless, a browser shows the tabs that are behind others, too. */
export const hideable = `{
  let hidden = false;
  Object.defineProperty(document, "hidden", { get: () => hidden });
  window.hide = (on) => {
    hidden = on;
    document.dispatchEvent(new Event("visibilitychange"));
  };
}`;

export const hide = (page: Page, on: boolean): Promise<void> => page.evaluate((on) => (window as unknown as { hide(on: boolean): void }).hide(on), on);

export const stats = (page: Page): Promise<Stats> => page.evaluate(() => window.holocast!.stats());

export const shows = (page: Page, frames = 1, ms = 90_000): Promise<Stats> =>
  until(`${frames} frames shown`, async () => {
    const s = await page.evaluate(() => window.holocast?.stats()); // a page that is loading has none
    return s && s.frames >= frames ? s : undefined;
  }, ms);

/** A counter or gauge of the relay, summed over its labels. */
export async function metric(port: number, name: string): Promise<number> {
  const text = await (await fetch(`http://127.0.0.1:${port}/metrics`)).text();
  let sum = 0;
  for (const line of text.split("\n")) if (line.startsWith(name) && /[ {]/.test(line[name.length] ?? "")) sum += Number(line.split(" ").pop());
  return sum;
}
