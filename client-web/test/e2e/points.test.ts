/** Layout W in the browser's video decoders. */
import { execFileSync } from "node:child_process";
import { fileURLToPath } from "node:url";
import type { Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { digests, read, vectors } from "../unit/pointvideo.ts";
import { Fixture, message } from "./fixture.ts";
import { Lab, shows, stats, until } from "./lab.ts";
import type { Decoded } from "./page/decode.worker.ts";

describe("vectors of layout W", () => {
  const lab = new Lab();
  let page: Page;
  beforeAll(async () => {
    const cwd = fileURLToPath(new URL("../../", import.meta.url));
    execFileSync("npx", ["vite", "build", "--config", "test/e2e/page/vite.config.ts"], { cwd, stdio: "inherit" });
    await lab.open();
    page = await lab.page();
    await page.goto(`http://127.0.0.1:${lab.webPort}/points/index.html`);
    await page.waitForFunction(() => window.decodeVideo !== undefined);
  });
  afterAll(() => lab.close());

  const decode = (names: readonly string[], width: number, height: number): Promise<Decoded> =>
    page.evaluate(([o, w, h]) => window.decodeVideo(o, w, h), [
      names.map((n) => Buffer.from(read(n)).toString("base64")), width, height,
    ] as const);

  it.each(vectors.valid)("$name decodes to its frames", async ({ width, height, frames }) => {
    const decoded = await decode(frames.map((f) => f.object), width, height);
    const got = decoded.frames.map((text) => {
      const b = Uint8Array.from(Buffer.from(text, "base64"));
      return digests({ width, height, words: new Uint32Array(b.buffer) });
    });
    expect({ error: decoded.error, frames: got }).toEqual({
      error: undefined, frames: frames.map(({ depth, color }) => ({ depth, color })),
    });
  });

  it.each(vectors.invalid.filter((v) => v.error === "picture"))("refuses $name: $error", async ({ objects, error }) => {
    const decoded = await decode(objects, 64, 48);
    expect(decoded.error).toBe(error);
    expect(decoded.frames.length).toBe(objects.length - 1);
  });
});

describe("quality high", () => {
  const fixture = new Fixture();
  const { lab, open } = fixture;

  it("plays live, and again after a relay restarts", async () => {
    open.push(await lab.performer(fixture.port, "high", "--high", "--fps", "10", "--delivery-timeout", "60s"));
    const page = await fixture.view(lab.link(fixture.port, "high", "&quality=high"));
    const warnings: string[] = [];
    page.on("console", (m) => m.text().startsWith("camera ") && warnings.push(m.text()));
    const bad = () => (warnings.length ? (expect.any(Number) as number) : 0);
    const before = await shows(page, 15); // from at least two groups
    expect(before).toMatchObject({ qualities: ["high"], frames_bad: bad(), frames_declined: 0 });
    expect(before.points).toBeGreaterThan(10_000);
    await until("the depth error", async () => ((await stats(page)).depth_error_mm[0] ?? 0) > 0);
    if (process.env["PICTURES"]) await page.screenshot({ path: `${process.env["PICTURES"]}/web-high.png` });
    await fixture.relay.stop();
    await message(page, /Connection lost|Relay unreachable/);
    fixture.relay = await fixture.startRelay();
    const after = await shows(page, (await stats(page)).frames + 15);
    expect(after).toMatchObject({ phase: "live", frames_bad: bad() });
    // A decoder without processor time counts as stuck.
    expect(warnings.filter((text) => !/no picture in \d+ ms/.test(text))).toEqual([]);
    expect(after.reconnects).toBeGreaterThan(0);
    console.log(JSON.stringify({ ...after, video: undefined }));
  });
});
