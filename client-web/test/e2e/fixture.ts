/** Fixture shared by the tests of a file. */
import type { Page } from "playwright-core";
import { afterAll, afterEach, beforeAll } from "vitest";
import { freePort, Lab, until, type Program } from "./lab.ts";

/** A relay, and the programs and pages of the current test, which end with the test. */
export class Fixture {
  readonly lab = new Lab();
  readonly open: (Page | Program)[] = [];
  port!: number;
  relay!: Program;

  constructor() {
    beforeAll(async () => {
      await this.lab.open();
      this.port = await freePort();
      this.relay = await this.startRelay();
    });
    afterEach(async ({ task }) => {
      const failed = task.result?.state === "fail";
      if (failed) await this.#report(task.name);
      for (const x of this.open.splice(0)) {
        if (!("close" in x)) await x.stop();
        else if (failed) await x.close();
        else await this.lab.reuse(x);
      }
    });
    afterAll(() => this.lab.close());
  }

  /** Starts a relay whose cache is long enough for viewers on a slow machine. */
  startRelay(): Promise<Program> {
    return this.lab.relay(this.port, "--cache-max-age", "60s");
  }

  /** Logs the state of all programs and pages after a failure. */
  async #report(test: string): Promise<void> {
    console.log(`${test} failed; relay output:\n${this.relay.output}`);
    for (const x of this.open) {
      if (!("close" in x)) {
        console.log(`${x.name} output:\n${x.output}`);
        continue;
      }
      const state = x.evaluate(() =>
        JSON.stringify({ stats: window.holocast?.stats(), message: document.querySelector("#message")?.textContent }),
      );
      console.log(`${x.url()}:`, await state.catch(String));
    }
    if (this.lab.errors.length) console.log(this.lab.errors.join("\n"));
  }

  async publisher(session: string, ...args: string[]): Promise<Program> {
    const p = await this.lab.publisher(this.port, session, ...args);
    this.open.push(p);
    return p;
  }

  async view(link: string, init?: string): Promise<Page> {
    const page = await this.lab.page(init);
    this.open.push(page);
    await page.goto(link);
    await page.waitForFunction(() => window.holocast !== undefined);
    return page;
  }
}

/** A small frame at a low rate, to save CPU time. */
export const small = ["--width", "296", "--height", "266", "--fps", "5"];
/** Disables the delivery timeout, because the losses it causes depend on the machine's load. */
export const reliable = ["--timeout", "600s"];

export const message = (page: Page, pattern: RegExp): Promise<string> =>
  until(`a message that matches ${pattern}`, async () => {
    const text = await page.locator("#message").innerText();
    return (await page.locator("#message").isVisible()) && pattern.test(text) ? text : undefined;
  });

/** Waits until the page has shown a notice that matches. */
export const notice = (page: Page, pattern: RegExp): Promise<boolean> =>
  until(`a notice that matches ${pattern}`, async () => {
    const notices = await page.evaluate(() => (window as unknown as { notices: string[] }).notices);
    return notices.some((text) => pattern.test(text));
  });
