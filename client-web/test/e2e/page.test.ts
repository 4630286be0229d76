/** The viewer's page: messages, controls and layout. */
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { describe, expect, it, onTestFinished } from "vitest";
import { Fixture, message, small } from "./fixture.ts";
import { freePort, shows, stats, until } from "./lab.ts";

const fixture = new Fixture();
const { lab, open } = fixture;
const pictures = process.env["PICTURES"];

describe("messages", () => {
  it("lists the sessions if the link names none", async () => {
    const page = await fixture.view(lab.link(fixture.port, undefined));
    await until("the empty list", () => page.locator("#sessions [data-empty]").isVisible());
    await fixture.publisher("one", ...small);
    const link = page.locator("#sessions a", { hasText: "one" });
    await until("the session", () => link.isVisible());
    await link.click();
    await shows(page);
  });

  it("reports that nothing is published yet, and shows the session once it is", async () => {
    const page = await fixture.view(lab.link(fixture.port, "soon"));
    await message(page, /Nothing published yet/); // the catalog's subscription stays pending at the relay
    await fixture.publisher("soon", ...small);
    await shows(page);
  });

  it.each([
    ["catalog", "loc", { version: "draft-01", generatedAt: 1 }],
    [".catalog", "cmaf", { version: 1, streamingFormat: 1 }],
  ])("reports another program's %s", async (track, packaging, fields) => {
    const catalog = { ...fields, tracks: [{ name: "hd", packaging, codec: "avc1.64001f" }] };
    const folder = mkdtempSync(join(tmpdir(), "holocast-foreign-"));
    onTestFinished(() => rmSync(folder, { recursive: true }));
    const file = join(folder, "catalog.json");
    writeFileSync(file, JSON.stringify(catalog));
    await fixture.publisher(`foreign${track}`, "--catalog", file, "--catalog-track", track);
    const page = await fixture.view(lab.link(fixture.port, `foreign${track}`));
    const text = await message(page, /Published by another program/);
    expect(text).toContain(`“${track}”`);
    expect(text).toContain(`hd (${packaging}, avc1.64001f)`);
  });

  it("reports a lost GPU context, and receives nothing meanwhile", async () => {
    await fixture.publisher("context", ...small);
    const page = await fixture.view(lab.link(fixture.port, "context"));
    await shows(page);
    await page.evaluate(() => {
      window.holocast!.studio.renderer.getContext().getExtension("WEBGL_lose_context")!.loseContext();
    });
    await message(page, /No picture/);
    let last = -1;
    await until("the end of frames", async () => {
      const earlier = last;
      last = (await stats(page)).bytes;
      if (earlier === last) return true;
      await new Promise((resolve) => setTimeout(resolve, 2000)); // ten frames
      return false;
    });
  });

  it("reports that a session has ended", async () => {
    const p = await fixture.publisher("over", ...small);
    const page = await fixture.view(lab.link(fixture.port, "over"));
    await shows(page);
    await p.stop();
    await message(page, /Session ended/);
  });

  it("reports a silent publisher", async () => {
    await fixture.publisher("silent", ...small, "--frames", "3");
    const page = await fixture.view(lab.link(fixture.port, "silent"));
    await shows(page);
    await message(page, /The publisher is silent/);
    expect((await stats(page)).phase).toBe("silent");
  });

  it("reports an unreachable relay", async () => {
    const page = await fixture.view(lab.link(await freePort(), "x"));
    expect(await message(page, /Relay unreachable/)).toMatch(/127\.0\.0\.1/);
  });

  it("reports a refused certificate", async () => {
    const page = await fixture.view(lab.link(fixture.port, "x", `&certificate=${"00".repeat(32)}`));
    await message(page, /Certificate refused/);
  });

  it("reports a browser without WebGL 2", async () => {
    const page = await lab.page("HTMLCanvasElement.prototype.getContext = () => null");
    open.push(page);
    await page.goto(lab.link(fixture.port, "x"));
    expect(await message(page, /cannot start/)).toMatch(/WebGL 2/);
    const errors = lab.errors.splice(0);
    expect(errors.filter((e) => !e.includes("WebGL"))).toEqual([]);
  });
});

describe("the page", () => {
  it.each(["vr", "ar"])("shows the session in WebXR: %s", async (mode) => {
    await fixture.publisher("xr", ...small);
    const iwer = readFileSync(
      fileURLToPath(new URL("../../node_modules/iwer/build/iwer.min.js", import.meta.url)),
      "utf8",
    );
    const page = await fixture.view(
      lab.link(fixture.port, "xr"),
      `${iwer}; new IWER.XRDevice(IWER.metaQuest3).installRuntime({ forceInstall: true });`,
    );
    await shows(page);
    const button = page.locator(`button#${mode}`);
    await until("the button", () => button.isVisible());
    await button.click();
    await until("a WebXR session", () => page.evaluate(() => window.holocast!.studio.renderer.xr.isPresenting));
    const seeThrough = await page.evaluate(() => window.holocast!.studio.scene.background === null);
    expect(seeThrough).toBe(mode === "ar"); // AR shows the room
    const before = await stats(page);
    await shows(page, before.frames + 3);
    await button.dispatchEvent("click"); // the emulator's canvas covers the page
    await until("the end of the WebXR session", () =>
      page.evaluate(() => !window.holocast!.studio.renderer.xr.isPresenting),
    );
    const after = await stats(page);
    await shows(page, after.frames + 2);
  });

  it("is controlled by keyboard, and its buttons have labels", async () => {
    const page = await fixture.view(lab.link(fixture.port, "keys"));
    await page.keyboard.press("h");
    expect(await page.locator("#stats").isHidden()).toBe(true);
    await page.keyboard.press("h");
    expect(await page.locator("#stats").isVisible()).toBe(true);
    await page.keyboard.press("l");
    expect(await page.locator("html").getAttribute("data-theme")).toMatch(/light|dark/);
    const eye = await page.evaluate(() => window.holocast!.studio.view.eye);
    await page.locator("button#grid").click();
    await page.keyboard.down("w");
    await until(
      "a step forward",
      async () => (await page.evaluate(() => window.holocast!.studio.view.eye))[2]! < eye[2]! - 0.05,
    );
    await page.keyboard.up("w");
    await page.keyboard.press("x");
    await until("a full screen", () => page.evaluate(() => document.fullscreenElement !== null));
    await until(
      "its button to be pressed",
      async () => (await page.locator("button#full").getAttribute("aria-pressed")) === "true",
    );
    await page.keyboard.press("x");
    await until("the end of full screen", () => page.evaluate(() => document.fullscreenElement === null));
    // The page remembers that single-letter shortcuts are off.
    await page.locator("button#letters").click();
    await page.reload();
    await until("the page", () => page.evaluate(() => window.holocast !== undefined));
    await page.keyboard.press("h");
    expect(await page.locator("#stats").isVisible()).toBe(true);
    await page.locator("button#letters").click();
    await page.keyboard.press("h");
    expect(await page.locator("#stats").isHidden()).toBe(true);
    for (const b of await page.getByRole("button").all()) expect((await b.innerText()).length).toBeGreaterThan(1);
    expect(await page.getByRole("group", { name: "View" }).count()).toBe(1);
  });

  it("keeps the screen on while frames arrive", async () => {
    const p = await fixture.publisher("awake", ...small, "--pause");
    const page = await fixture.view(lab.link(fixture.port, "awake"), `
      globalThis.lock = { held: false, taken: 0 };
      Object.defineProperty(navigator, "wakeLock", { value: { request: async () => {
        const sentinel = { released: false, release: async () => { sentinel.released = true; lock.held = false; } };
        lock.held = true;
        lock.taken++;
        return sentinel;
      } } });`);
    const lock = (): Promise<{ held: boolean; taken: number }> => page.evaluate("lock");
    await until("a wake lock", async () => (await lock()).taken > 0);
    p.signal("SIGUSR1");
    await message(page, /The publisher is silent/);
    await until("its release", async () => !(await lock()).held);
    expect((await lock()).taken).toBe(1);
  });

  const sizes = [[390, 844], [844, 390], [320, 568], [640, 360]] as const; // the last one is a laptop at 200 % zoom
  it.each(sizes)("fits a screen of %d × %d", async (width, height) => {
    const page = await lab.page();
    open.push(page);
    await page.setViewportSize({ width, height });
    await page.goto(
      lab.link(fixture.port, "a-name-that-somebody-gave-without-a-thought-of-phones-and-how-narrow-they-are"),
    );
    await message(page, /Nothing published yet/);
    expect(await page.locator("#stats").isHidden()).toBe(true); // the panel would cover the subject
    await page.keyboard.press("h");
    await page.evaluate(() => (document.querySelector<HTMLElement>("#playback")!.hidden = false));
    const boxes = await Promise.all(
      ["#stats", "#message", "#playback", "#tools"].map(async (id) => ({
        id,
        ...(await page.locator(id).boundingBox())!,
      })),
    );
    for (const [i, a] of boxes.entries()) {
      expect(
        a.x >= 0 && a.y >= 0 && a.x + a.width <= width && a.y + a.height <= height,
        `${a.id} within the page`,
      ).toBe(true);
      for (const b of boxes.slice(i + 1)) {
        const apart = a.x + a.width <= b.x || b.x + b.width <= a.x || a.y + a.height <= b.y || b.y + b.height <= a.y;
        expect(apart, `${a.id} beside ${b.id}`).toBe(true);
      }
    }
    for (const b of await page.getByRole("button").all()) {
      const box = await b.boundingBox();
      if (box) expect(box.height).toBeGreaterThanOrEqual(40);
    }
  });

  it.runIf(pictures)("is pictured for the documentation", async () => {
    open.push(await lab.performer(fixture.port, "demo", "--fps", "5", "--cameras", "4"));
    const page = await fixture.view(lab.link(fixture.port, "demo", "&quality=low"));
    await page.setViewportSize({ width: 1280, height: 720 });
    await page.evaluate(() => document.querySelector<HTMLButtonElement>("button#light[aria-pressed=true]")?.click());
    await page.evaluate(() => window.holocast!.studio.lookAt([0.9, 1.5, 2], [0, 0.85, 0]));
    await shows(page, 120); // the statistics settle
    mkdirSync(pictures!, { recursive: true });
    await page.screenshot({ path: `${pictures}/web-viewer.png` });
  });

  it("makes no requests to other hosts, and logs no errors", () => {
    expect(lab.foreign).toEqual([]);
    expect(lab.errors).toEqual([]);
    expect(fixture.relay.output).not.toMatch(/FLOW_CONTROL_ERROR|FINAL_SIZE_ERROR|STREAM_STATE_ERROR/);
  });
});
