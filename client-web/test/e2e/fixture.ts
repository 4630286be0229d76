/** What the tests of a file share. */
import type { Page } from "playwright-core";
import { afterAll, afterEach, beforeAll } from "vitest";
import { freePort, Lab, until, type Program } from "./lab.ts";

/** A relay, and what tests publish and open: each test's programs and pages end with it. */
export class Fixture {
  readonly lab = new Lab();
  readonly open: (Page | Program)[] = [];
  port!: number;
  relay!: Program;

  constructor() {
    beforeAll(async () => {
      await this.lab.open();
      this.port = await freePort();
      this.relay = await this.lab.relay(this.port);
    });
    afterEach(async ({ task }) => {
      if (task.result?.state === "fail") await this.#tell(task.name);
      for (const x of this.open.splice(0)) await ("close" in x ? x.close() : x.stop());
    });
    afterAll(() => this.lab.close());
  }

  /** What there is to know where a test failed. */
  async #tell(test: string): Promise<void> {
    console.log(`${test} failed; the relay said:\n${this.relay.output}`);
    for (const x of this.open) {
      if (!("close" in x)) console.log(`${x.name} said:\n${x.output}`);
      else console.log(`${x.url()}:`, await x.evaluate(() => JSON.stringify({ stats: window.holocast?.stats(), message: document.querySelector("#message")?.textContent })).catch(String));
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

/** A small ball before a wall, few frames a second: the machine has other things to do. */
export const small = ["--width", "296", "--height", "266", "--fps", "5"];

export const message = (page: Page, pattern: RegExp, ms?: number): Promise<string> =>
  until(`a message like ${pattern}`, async () => {
    const text = await page.locator("#message").innerText();
    return (await page.locator("#message").isVisible()) && pattern.test(text) ? text : undefined;
  }, ms);
