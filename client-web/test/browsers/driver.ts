/** Drives browsers that Playwright does not drive as their users install them. */
import { spawn, type ChildProcess } from "node:child_process";
import { existsSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { freePort, until } from "../e2e/lab.ts";

/** A browser with one page. */
export interface Driver {
  /** Name and version. */
  readonly name: string;
  navigate(url: string): Promise<void>;
  /** Runs the body of a function in the page, and returns its result, which must be JSON. */
  run(body: string): Promise<unknown>;
  /** Presses the key of a lower-case letter, as a user would. */
  press(key: string): Promise<void>;
  close(): Promise<void>;
}

const MINI_BROWSER = ["4.1", "4.0"].map((v) => `/usr/lib/x86_64-linux-gnu/webkit2gtk-${v}/MiniBrowser`);
const FIREFOX = ["/usr/bin/firefox-esr", "/usr/bin/firefox"];
const XVFB = "/usr/bin/Xvfb";

const first = (paths: readonly string[]): string | undefined => paths.find((p) => existsSync(p));

/** This machine's browsers; undefined if one cannot run. */
export const browsers = {
  WebKitGTK: existsSync(XVFB) && existsSync("/usr/bin/WebKitWebDriver") ? first(MINI_BROWSER) : undefined,
  Firefox: existsSync(XVFB) ? first(FIREFOX) : undefined,
};

export const open = (browser: keyof typeof browsers): Promise<Driver> =>
  browser === "Firefox" ? firefox(browsers.Firefox!) : webKit(browsers.WebKitGTK!);

/** Starts a program. Returns a function that ends it. */
function start(program: string, args: readonly string[], env: NodeJS.ProcessEnv = {}): () => Promise<void> {
  const child: ChildProcess = spawn(program, args, { stdio: "ignore", env: { ...process.env, ...env } });
  const gone = new Promise((resolve) => child.once("exit", resolve));
  return async () => {
    child.kill();
    await gone;
  };
}

const answers = (port: number): Promise<true> =>
  until(`an answer at port ${port}`, () =>
    fetch(`http://127.0.0.1:${port}/status`).then(
      () => true as const,
      () => undefined,
    ),
  );

/** Starts a screen in memory. Without one, Firefox has no WebGL. Returns the browser's environment, too. */
async function screen(): Promise<{ env: NodeJS.ProcessEnv; stop: () => Promise<void> }> {
  const display = `:${100 + (process.pid % 800)}`;
  const stop = start(XVFB, [display, "-screen", "0", "1024x768x24"]);
  await until("the screen", async () => existsSync(`/tmp/.X11-unix/X${display.slice(1)}`));
  return { env: { DISPLAY: display, LIBGL_ALWAYS_SOFTWARE: "1" }, stop };
}

/** Starts WebKitGTK's MiniBrowser through WebDriver. */
async function webKit(binary: string): Promise<Driver> {
  const { env, stop } = await screen();
  const port = await freePort();
  // As root, WebKit's sandbox does not start.
  const stopDriver = start("WebKitWebDriver", [`--port=${port}`], {
    ...env, WEBKIT_DISABLE_SANDBOX_THIS_IS_DANGEROUS: "1",
  });
  await answers(port);
  const call = async (method: string, path: string, body?: object): Promise<any> => {
    const answer = await fetch(`http://127.0.0.1:${port}/session${path}`, {
      method, ...(body && { body: JSON.stringify(body) }),
    });
    const { value } = (await answer.json()) as { value: any };
    if (!answer.ok) throw new Error(`${method} ${path}: ${JSON.stringify(value)}`);
    return value;
  };
  const options = { "webkitgtk:browserOptions": { binary, args: ["--automation"] } };
  const session = await call("POST", "", { capabilities: { alwaysMatch: options } });
  const at = `/${session.sessionId}`;
  return {
    name: `WebKitGTK ${session.capabilities.browserVersion}`,
    navigate: (url) => call("POST", `${at}/url`, { url }),
    run: (script) => call("POST", `${at}/execute/sync`, { script, args: [] }),
    press: (key) => {
      const actions = [{ type: "keyDown", value: key }, { type: "keyUp", value: key }];
      return call("POST", `${at}/actions`, { actions: [{ type: "key", id: "keyboard", actions }] });
    },
    close: async () => {
      await call("DELETE", at).catch(() => {});
      await stopDriver();
      await stop();
    },
  };
}

/** Starts Firefox through WebDriver BiDi. */
async function firefox(binary: string): Promise<Driver> {
  const profile = mkdtempSync(join(tmpdir(), "holocast-firefox-"));
  const port = await freePort();
  writeFileSync(join(profile, "user.js"), 'user_pref("webgl.force-enabled", true);\n'); // also in software
  const { env, stop: stopScreen } = await screen();
  const stop = start(binary, ["--profile", profile, "--remote-debugging-port", String(port)], env);
  const socket = await until("Firefox", () => connect(`ws://127.0.0.1:${port}/session`));
  const waiting = new Map<number, { resolve(v: any): void; reject(e: Error): void }>();
  socket.onmessage = ({ data }) => {
    const { id, result, message } = JSON.parse(String(data));
    const w = waiting.get(id);
    waiting.delete(id);
    if (message) w?.reject(new Error(message));
    else w?.resolve(result);
  };
  let last = 0;
  const call = (method: string, params: object): Promise<any> =>
    new Promise((resolve, reject) => {
      waiting.set(++last, { resolve, reject });
      socket.send(JSON.stringify({ id: last, method, params }));
    });
  const session = await call("session.new", { capabilities: {} });
  const { contexts } = await call("browsingContext.getTree", {});
  const { context } = contexts[0];
  return {
    name: `Firefox ${session.capabilities.browserVersion}`,
    navigate: (url) => call("browsingContext.navigate", { context, url, wait: "complete" }),
    run: async (body) => {
      const expression = `JSON.stringify((() => { ${body} })())`;
      const r = await call("script.evaluate", { expression, target: { context }, awaitPromise: false });
      if (r.type === "exception") throw new Error(r.exceptionDetails.text);
      return r.result.value === undefined ? undefined : JSON.parse(r.result.value);
    },
    press: async (key) => {
      // input.performActions sometimes never returns. Sound needs the user's activation.
      const init = JSON.stringify({ key, code: `Key${key.toUpperCase()}`, bubbles: true });
      const expression = `document.body.dispatchEvent(new KeyboardEvent("keydown", ${init}))`;
      await call("script.evaluate", { expression, target: { context }, awaitPromise: false, userActivation: true });
    },
    close: async () => {
      await call("browser.close", {}).catch(() => {});
      socket.close();
      await stop();
      await stopScreen();
      rmSync(profile, { recursive: true, force: true });
    },
  };
}

const connect = (url: string): Promise<WebSocket | undefined> =>
  new Promise((resolve) => {
    const socket = new WebSocket(url);
    socket.onopen = () => resolve(socket);
    socket.onerror = () => resolve(undefined);
  });
