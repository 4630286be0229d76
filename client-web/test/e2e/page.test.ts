/** The viewer's page: what it says, and how it is used. */
import { mkdirSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { describe, expect, it } from "vitest";
import { Fixture, message, small } from "./fixture.ts";
import { freePort, repo, shows, stats, until } from "./lab.ts";

const fixture = new Fixture();
const { lab, open } = fixture;

describe("messages", () => {
  it("lists the sessions when the link names none", async () => {
    const page = await fixture.view(lab.link(fixture.port, undefined));
    await until("the empty list", () => page.locator("#sessions [data-empty]").isVisible());
    await fixture.publisher("one", ...small);
    const link = page.locator("#sessions a", { hasText: "one" });
    await until("the session", () => link.isVisible());
    await link.click();
    await shows(page);
  });

  it("says that nothing is published yet, and shows it when it is", async () => {
    const page = await fixture.view(lab.link(fixture.port, "soon"));
    await message(page, /Nothing published yet/, 25_000);
    await new Promise((resolve) => setTimeout(resolve, 6000)); // the page waits in one request, and the relay with it
    await fixture.publisher("soon", ...small);
    await shows(page);
  });

  it("says that a session has ended", async () => {
    const p = await fixture.publisher("over", ...small);
    const page = await fixture.view(lab.link(fixture.port, "over"));
    await shows(page);
    await p.stop();
    await message(page, /Session ended/);
  });

  it("says that the publisher is silent", async () => {
    await fixture.publisher("silent", ...small, "--frames", "15");
    const page = await fixture.view(lab.link(fixture.port, "silent"));
    await shows(page);
    await message(page, /The publisher is silent/);
    expect((await stats(page)).phase).toBe("silent");
  });

  it("says that the relay is unreachable", async () => {
    const page = await fixture.view(lab.link(await freePort(), "x"));
    expect(await message(page, /Relay unreachable/)).toMatch(/127\.0\.0\.1/);
  });

  it("says that the certificate was refused", async () => {
    const page = await fixture.view(lab.link(fixture.port, "x", `&certificate=${"00".repeat(32)}`));
    await message(page, /Certificate refused/);
  });

  it("says that the browser has no WebTransport", async () => {
    const page = await fixture.view(lab.link(fixture.port, "x"), "delete globalThis.WebTransport");
    await message(page, /no WebTransport/);
  });

  it("says that the browser cannot draw", async () => {
    const page = await lab.page("HTMLCanvasElement.prototype.getContext = () => null");
    open.push(page);
    await page.goto(lab.link(fixture.port, "x"));
    expect(await message(page, /cannot start/)).toMatch(/WebGL 2/);
    const errors = lab.errors.splice(0);
    expect(errors.filter((e) => !e.includes("WebGL"))).toEqual([]);
  });
});

describe("the page", () => {
  it.each(["vr", "ar"])("shows the same scene in WebXR: %s", async (mode) => {
    await fixture.publisher("xr", ...small);
    const iwer = readFileSync(fileURLToPath(new URL("../../node_modules/iwer/build/iwer.min.js", import.meta.url)), "utf8");
    const page = await fixture.view(lab.link(fixture.port, "xr"), `${iwer}; new IWER.XRDevice(IWER.metaQuest3).installRuntime({ forceInstall: true });`);
    await shows(page);
    const button = page.locator(`button#${mode}`);
    await until("the button", () => button.isVisible());
    await button.click();
    await until("a WebXR session", () => page.evaluate(() => window.holocast!.studio.renderer.xr.isPresenting));
    const seeThrough = await page.evaluate(() => window.holocast!.studio.scene.background === null);
    expect(seeThrough).toBe(mode === "ar"); // the room is behind the scene
    const before = await stats(page);
    await shows(page, before.frames + 3);
    await button.dispatchEvent("click"); // the emulator's picture covers the page
    await until("its end", () => page.evaluate(() => !window.holocast!.studio.renderer.xr.isPresenting));
    const after = await stats(page);
    await shows(page, after.frames + 2);
  });

  it("is used by keyboard, and names its buttons", async () => {
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
    await until("a step forward", async () => (await page.evaluate(() => window.holocast!.studio.view.eye))[2]! < eye[2]! - 0.05);
    await page.keyboard.up("w");
    await page.keyboard.press("x");
    await until("a full screen", () => page.evaluate(() => document.fullscreenElement !== null));
    await until("its button to say so", async () => (await page.locator("button#full").getAttribute("aria-pressed")) === "true");
    await page.keyboard.press("x");
    await until("the page as it was", () => page.evaluate(() => document.fullscreenElement === null));
    // Without its letters, and so again when the page is opened anew.
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

  it("keeps the screen on while frames come", async () => {
    await fixture.publisher("awake", ...small, "--frames", "15");
    const page = await fixture.view(lab.link(fixture.port, "awake"), `
      globalThis.lock = { held: false, taken: 0 };
      Object.defineProperty(navigator, "wakeLock", { value: { request: async () => {
        const sentinel = { released: false, release: async () => { sentinel.released = true; lock.held = false; } };
        lock.held = true;
        lock.taken++;
        return sentinel;
      } } });`);
    const lock = (): Promise<{ held: boolean; taken: number }> => page.evaluate("lock");
    await until("the screen to be kept on", async () => (await lock()).taken > 0);
    await message(page, /The publisher is silent/);
    await until("it to be let go", async () => !(await lock()).held);
    expect((await lock()).taken).toBe(1);
  });

  const sizes = [[390, 844], [844, 390], [320, 568], [640, 360]] as const; // the last: a laptop's page at 200 %
  it.each(sizes)("fits a screen of %d × %d", async (width, height) => {
    const page = await lab.page();
    open.push(page);
    await page.setViewportSize({ width, height });
    await page.goto(lab.link(fixture.port, "a-name-that-somebody-gave-without-a-thought-of-phones-and-how-narrow-they-are"));
    await message(page, /Nothing published yet/);
    expect(await page.locator("#stats").isHidden()).toBe(true); // they would hide the face of who is shown
    await page.keyboard.press("h");
    await page.evaluate(() => (document.querySelector<HTMLElement>("#playback")!.hidden = false));
    const boxes = await Promise.all(["#stats", "#message", "#playback", "#tools"].map(async (id) => ({ id, ...(await page.locator(id).boundingBox())! })));
    for (const [i, a] of boxes.entries()) {
      expect(a.x >= 0 && a.y >= 0 && a.x + a.width <= width && a.y + a.height <= height, `${a.id} within the page`).toBe(true);
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

  it("is pictured for the documents", async () => {
    open.push(await lab.performer(fixture.port, "demo", "--fps", "10"));
    const page = await fixture.view(lab.link(fixture.port, "demo", "&quality=full"));
    await page.setViewportSize({ width: 1280, height: 720 });
    await page.evaluate(() => document.querySelector<HTMLButtonElement>("button#light[aria-pressed=true]")?.click());
    const pictures = process.env["PICTURES"];
    await shows(page, pictures ? 80 : 3); // so that the figures are not those of the start
    const images = pictures ?? `${repo}client-web/test/out`;
    mkdirSync(images, { recursive: true });
    await page.screenshot({ path: `${images}/web-viewer.png` });
  });

  it("asks no other host for anything, and has no errors", () => {
    expect(lab.foreign).toEqual([]);
    expect(lab.errors).toEqual([]);
    expect(fixture.relay.output).not.toMatch(/FLOW_CONTROL_ERROR|FINAL_SIZE_ERROR|STREAM_STATE_ERROR/);
  });
});
