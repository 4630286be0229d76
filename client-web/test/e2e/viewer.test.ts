import { mkdirSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import type { Page } from "playwright-core";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { freePort, hide, hideable, Lab, metric, repo, shows, stats, until, type Program } from "./lab.ts";
import { canvasPicture, compare, type Picture } from "./picture.ts";

const lab = new Lab();
let port: number;
let relay: Program;
const open: (Page | Program)[] = [];

beforeAll(async () => {
  await lab.open();
  port = await freePort();
  relay = await lab.relay(port);
});

afterEach(async () => {
  for (const x of open.splice(0)) await ("close" in x ? x.close() : x.stop());
});

afterAll(() => lab.close());

/** A small ball before a wall, few frames a second: the machine has other things to do. */
const small = ["--width", "296", "--height", "266", "--fps", "5"];

async function publisher(session: string, ...args: string[]): Promise<Program> {
  const p = await lab.publisher(port, session, ...args);
  open.push(p);
  return p;
}

async function view(link: string, init?: string): Promise<Page> {
  const page = await lab.page(init);
  open.push(page);
  await page.goto(link);
  await page.waitForFunction(() => window.holocast !== undefined);
  return page;
}

const message = (page: Page, pattern: RegExp, ms?: number): Promise<string> =>
  until(`a message like ${pattern}`, async () => {
    const text = await page.locator("#message").innerText();
    return (await page.locator("#message").isVisible()) && pattern.test(text) ? text : undefined;
  }, ms);

/** Makes a page draw four pictures a second at most. */
const drawSlowly = (page: Page): Promise<void> =>
  page.evaluate(() => {
    const { studio } = window.holocast!;
    const draw = studio.draw.bind(studio);
    studio.draw = (now) => {
      const drew = draw(now);
      const end = performance.now() + (drew ? 250 : 0);
      while (performance.now() < end);
      return drew;
    };
  });

describe("a live session", () => {
  it("has a frame on screen soon after opening", async () => {
    await publisher("first", ...small);
    const page = await view(lab.link(port, "first"));
    const s = await shows(page);
    console.log(`first frame ${s.first_frame_ms} ms after opening`);
    expect(s.first_frame_ms).toBeLessThan(10_000); // one second on a machine of its own
    expect(await page.locator("#message").isHidden()).toBe(true);
  });

  const layouts: [string, ...string[]][] = [
    ["layout A", "--layout", "a"],
    ["layout A in four descriptions", "--layout", "a", "--descriptions", "4"],
    ["layout B", "--layout", "b"],
    ["layout C", "--layout", "c"],
    ["in datagrams, of which some are lost", "--layout", "a", "--descriptions", "4", "--datagrams", "9"],
  ];
  it.each(layouts)("shows the scene where it is: %s", async (_, ...args) => {
    await publisher("picture", ...small, ...args);
    const page = await view(lab.link(port, "picture"));
    await shows(page, 2);
    if (args.includes("--datagrams")) {
      const s = await until("a repaired frame", async () => (((await stats(page)).parts?.repaired ?? 0) > 3 ? stats(page) : undefined));
      console.log(JSON.stringify(s.parts));
      expect(s.frames_lost).toBeLessThan(s.frames_received / 10);
    }
    const matrix = await page.evaluate(() => {
      const { studio } = window.holocast!;
      studio.setTheme("dark");
      studio.grid = false;
      studio.lookAt([0.7, 1.5, 1.8], [0, 1.2, -0.4]); // beside the camera: parallax counts
      return studio.projection(0)!.join(",");
    });
    const got = await canvasPicture(page);
    const raw = lab.publisherOutput(...small, ...args.slice(0, 2), "--viewport", `${got.width}x${got.height}`, "--reference", matrix);
    const want: Picture = { width: got.width, height: got.height, rgba: raw };
    const d = compare(got, want, [0x14, 0x16, 0x1c]);
    console.log(JSON.stringify(d));
    expect(d.covered).toBeGreaterThan(300);
    expect(d.empty).toBeGreaterThan(100);
    expect(d.worst).toBeLessThan(16);
    expect(d.stray).toBeLessThan(0.02);
  });

  it("counts what the relay counts", async () => {
    await publisher("count", ...small.slice(0, 4), "--fps", "10", "--frames", "60");
    const sent = async () => [await metric(port, "holocast_relay_sent_subgroups_total"), await metric(port, "holocast_relay_sent_bytes_total")] as const;
    const before = await sent();
    const page = await view(lab.link(port, "count"));
    await message(page, /The publisher is silent/); // so that nothing is on its way
    const after = await sent();
    const s = await stats(page);
    expect(s.frames_received).toBeGreaterThan(10);
    expect(Math.abs(after[0] - before[0] - s.frames_received - s.frames_lost)).toBeLessThanOrEqual(3); // the catalog's, and the first is fetched
    const ratio = s.bytes / (after[1] - before[1]);
    expect(ratio).toBeGreaterThan(0.85);
    expect(ratio).toBeLessThan(1.15);
    expect(s.clock.error_ms).not.toBeNull();
    expect(s.points).toBe(57478);
    const panel = await page.locator("#stats").innerText();
    expect(panel).toContain("57,478");
  });

  it("is not sent what it is too slow to draw", async () => {
    const p = await publisher("slow", ...small.slice(0, 4), "--fps", "20");
    const sent = () => metric(port, "holocast_relay_sent_subgroups_total");
    const sentBefore = await sent();
    const page = await view(lab.link(port, "slow"));
    await shows(page, 3);
    await drawSlowly(page);
    await until("frames that were declined", async () => (await stats(page)).frames_declined > 20);
    const a = await stats(page);
    await new Promise((resolve) => setTimeout(resolve, 6000));
    const b = await stats(page);
    const came = b.frames_received - a.frames_received;
    const declined = b.frames_declined - a.frames_declined;
    const made = b.per_camera[0]!.sequence - a.per_camera[0]!.sequence;
    console.log(JSON.stringify({ came, declined, made, shown: b.frames - a.frames, lost: b.frames_lost, delay: b.frame_delay_ms }));
    expect(b.frames - a.frames).toBeGreaterThan(5);
    expect(declined).toBeGreaterThan(came);
    expect(b.frames_lost - a.frames_lost).toBeLessThanOrEqual(2);
    expect(b.phase).toBe("live");
    // Every frame is accounted for, but for those about to be shown.
    expect(Math.abs(came + declined - made)).toBeLessThan(0.15 * made);
    // The relay has sent what came, and nothing else; a frame and the catalog may have been fetched.
    await p.stop();
    await message(page, /Session ended/, 40_000);
    const end = await stats(page);
    const more = (await sent()) - sentBefore - end.frames_received - end.frames_lost;
    expect([end.phase, more], JSON.stringify(end)).toEqual(["ended", expect.toSatisfy((n: number) => Math.abs(n) <= 3)]);
  });

  it.each([["says so"], ["drops the subscription", "--cut"]])("goes on where a relay refuses to send less and %s", async (_, ...args) => {
    await publisher("refused", ...small.slice(0, 4), "--fps", "20");
    const from = await freePort();
    const refusing = await lab.refusing(from, port, ...args);
    open.push(refusing);
    const page = await view(lab.link(from, "refused"));
    await shows(page, 3);
    await drawSlowly(page);
    await refusing.says(/refused an update/);
    const before = await stats(page);
    // It subscribes anew, and to all that there is: it would have asked again by now.
    const after = await shows(page, before.frames + 12, 60_000);
    expect([after.phase, after.reconnects, after.frames_bad], refusing.output + relay.output).toEqual(["live", 0, 0]);
    expect(refusing.output.match(/refused an update/g), JSON.stringify(after)).toHaveLength(1);
    expect(after.frames_received - before.frames_received).toBeGreaterThan(2 * (after.frames - before.frames));
  });

  it("shows a late joiner the newest frame at once", async () => {
    await publisher("late", "--width", "296", "--height", "266", "--fps", "0.05");
    const first = await view(lab.link(port, "late"));
    await shows(first, 1, 40_000);
    const page = await view(lab.link(port, "late"));
    const s = await shows(page, 1, 10_000); // the next frame is up to 20 s away
    expect(s.frames).toBe(1);
  });

  it("comes back to live after a stall", async () => {
    await publisher("stall", ...small);
    const page = await view(lab.link(port, "stall"));
    const before = await shows(page, 3);
    await page.evaluate(() => {
      const end = performance.now() + 4000;
      while (performance.now() < end);
    });
    const after = await until("a live frame", async () => {
      const s = await stats(page);
      return s.per_camera[0]!.sequence >= before.per_camera[0]!.sequence + 22 ? s : undefined;
    });
    // What came meanwhile was dropped, not queued: few of some twenty frames are shown late.
    expect(after.frames - before.frames).toBeLessThan(15);
    expect(after.frames_skipped).toBeGreaterThan(before.frames_skipped);
    expect(after.phase).toBe("live");
  });

  it("receives nothing for a tab that is not seen", async () => {
    await publisher("hidden", ...small);
    const page = await view(lab.link(port, "hidden"), hideable);
    await shows(page, 2);
    await hide(page, true);
    const sent = () => metric(port, "holocast_relay_sent_subgroups_total");
    let last = -1;
    await until("nothing to be sent for a while", async () => {
      const [before, now] = [last, await sent()];
      last = now;
      if (before === now) return true;
      await new Promise((resolve) => setTimeout(resolve, 1500)); // the time of some frames
      return false;
    });
    const before = await stats(page);
    expect(before.phase).toBe("live");
    await hide(page, false);
    const after = await shows(page, before.frames + 2);
    expect(after.per_camera[0]!.sequence).toBeGreaterThan(before.per_camera[0]!.sequence + 5);
    expect(after.frames_lost).toBe(before.frames_lost);
    expect(after.phase).toBe("live");
  });

  it("goes on when the relay comes back", async () => {
    await publisher("restart", ...small);
    const page = await view(lab.link(port, "restart"));
    await shows(page, 2);
    await relay.stop();
    await message(page, /Connection lost|Relay unreachable/);
    relay = await lab.relay(port);
    const before = await stats(page);
    const after = await shows(page, before.frames + 3, 40_000);
    expect(after.phase).toBe("live");
    expect(after.reconnects).toBeGreaterThan(0);
  });

  it("moves to the relay that GOAWAY names", async () => {
    await publisher("moved", ...small);
    const from = await freePort();
    const leaving = await lab.leaving(from, port);
    open.push(leaving);
    const page = await view(lab.link(from, "moved"));
    const s = await shows(page, 3);
    expect(s.reconnects).toBeGreaterThan(0);
    expect(s.phase).toBe("live");
    await leaving.stop();
    await shows(page, s.frames + 3);
  });

  it("sends a receipt of every frame it shows", async () => {
    await publisher("receipts", ...small);
    const log = await lab.receipts(port, "receipts");
    open.push(log);
    const page = await view(lab.link(port, "receipts"));
    await until("a receipt", async () => /^receipt /m.test(log.output));
    const before = log.output.length;
    const s = await stats(page);
    const shown = await shows(page, s.frames + 10);
    await new Promise((resolve) => setTimeout(resolve, 500));
    const receipts = [...log.output.slice(before).matchAll(/^receipt (\S+) 0 (\d+) (-?\d+)$/gm)];
    expect(receipts.length).toBeGreaterThanOrEqual(9);
    expect(receipts[0]![1]).toMatch(/^receipts\/web-[0-9a-f]{8}$/);
    const numbers = receipts.map((r) => Number(r[2]));
    expect(numbers).toEqual([...numbers].sort((a, b) => a - b));
    expect(numbers.at(-1)).toBeGreaterThanOrEqual(shown.per_camera[0]!.sequence);
    expect(Number(receipts.at(-1)![3])).toBeLessThan(5e6);
    const quiet = await view(lab.link(port, "receipts", "&receipts=off"));
    await shows(quiet, 5);
    expect(new Set([...log.output.matchAll(/^receipt (\S+)/gm)].map((r) => r[1])).size).toBe(1);
  });

  it("is let in by the token in its link, and says so where it is not", async () => {
    const dir = mkdtempSync(join(tmpdir(), "holocast-token-"));
    try {
      const key = join(dir, "relay.key");
      const made = lab.program("relay", "key", key);
      await until("the key", async () => !made.running);
      const mint = async (...args: string[]): Promise<string> => {
        const p = lab.program("relay", "token", "--keys", key, ...args);
        return until("a token", async () => /^ey\S+$/m.exec(p.output)?.[0]);
      };
      const locked = await freePort();
      const relay = lab.program("relay", "--listen", `127.0.0.1:${locked}`, "--http", `127.0.0.1:${locked}`, "--keys", key);
      open.push(relay);
      await relay.says(/relay is listening/);
      const p = lab.program("publisher", ...small, `moqt://127.0.0.1:${locked}/locked#token=${await mint("--publish", "locked")}`);
      open.push(p);
      await p.says(/publishing/);
      const page = await view(`${lab.link(locked, "locked")}#token=${await mint("--subscribe", "locked")}`);
      await shows(page, 5);
      const other = await view(`${lab.link(locked, "locked")}#token=${await mint("--subscribe", "lobby")}`);
      await message(other, /does not serve this[\s\S]*does not allow to subscribe there[\s\S]*Ask for a link with a token/);
      const none = await view(lab.link(locked, "locked"));
      await message(none, /a token is needed/);
    } finally {
      rmSync(dir, { recursive: true });
    }
  });

  it.each([["as it is"], ["in gzip", "--compress"]])("follows delta updates of a catalog: %s", async (_, ...args) => {
    await publisher("delta", ...small, "--delta", ...args);
    await shows(await view(lab.link(port, "delta")), 3);
  });

  it("frames the view again when the camera's pose is corrected, and receives on", async () => {
    const p = await publisher("corrected", ...small, "--correct");
    const [page, moved] = [await view(lab.link(port, "corrected")), await view(lab.link(port, "corrected"))];
    const of = (page: Page) =>
      page.evaluate(() => {
        const { studio } = window.holocast!;
        const drawn: string[] = [];
        studio.stage.traverse((o) => void ("isMesh" in o && drawn.push(o.uuid)));
        return { ...studio.view, drawn, camera: studio.projection(0)!.join() };
      });
    await Promise.all([shows(page), shows(moved)]);
    const first = await of(page);
    expect(Math.hypot(...first.eye)).toBeCloseTo(0, 6); // where all cameras are that nobody has placed
    await moved.locator("canvas#view").hover();
    await moved.mouse.wheel(0, 200);
    await until("a step back", async () => Math.hypot(...(await of(moved)).eye) > 0.01);
    const before = await of(moved);
    p.signal("SIGUSR1");
    const placed = await until("the view from the camera's place", async () => {
      const v = await of(page);
      return Math.hypot(v.eye[0]!, v.eye[1]! - 1.2, v.eye[2]! - 2) < 1e-3 ? v : undefined;
    });
    expect(placed.target[0]).toBeCloseTo(0, 3);
    expect(placed.target[1]).toBeCloseTo(1.2, 3);
    expect(placed.drawn).toEqual(first.drawn); // the same points go on
    const after = await until("the camera in its place", async () => {
      const v = await of(moved);
      return v.camera !== before.camera ? v : undefined;
    });
    expect([after.eye, after.target, after.drawn]).toEqual([before.eye, before.target, before.drawn]);
    const s = await stats(page);
    const later = await shows(page, s.frames + 3);
    expect([later.frames_lost, later.frames_bad, later.reconnects]).toEqual([0, 0, 0]);
  });

  it("shows the quality that is asked for", async () => {
    open.push(await lab.performer(port, "qualities", "--fps", "5"));
    const page = await view(lab.link(port, "qualities"));
    const full = await shows(page, 3);
    expect(full.qualities).toEqual(["full"]);
    const menu = page.locator("#quality select");
    await until("the menu", () => menu.isVisible());
    expect(await menu.locator("option").allInnerTexts()).toEqual(["automatic", "low", "full"].map((t, i) => (i === 0 ? "automatic (full)" : t)));
    await menu.selectOption("low");
    const low = await until("the lower quality", async () => {
      const now = await stats(page);
      return now.qualities[0] === "low" && now.points > 0 && now.points < full.points / 2 ? now : undefined;
    });
    expect(low.frames_bad).toBe(0);
    await menu.selectOption("full");
    await until("the better one again", async () => (await stats(page)).points > full.points / 2);
  });

  it("survives hostile objects", async () => {
    await publisher("hostile", "--hostile", "--width", "296", "--height", "266", "--fps", "10");
    const page = await view(lab.link(port, "hostile"));
    const s = await until("bad objects and good frames", async () => {
      const now = await stats(page);
      return now.frames > 10 && now.frames_bad > 15 ? now : undefined;
    }, 60_000);
    expect(s.phase).toBe("live");
    const later = await shows(page, s.frames + 5);
    expect(later.points).toBeGreaterThan(0);
    expect(await page.evaluate(() => 1 + 1)).toBe(2);
  });
});

describe("messages", () => {
  it("lists the sessions when the link names none", async () => {
    const page = await view(lab.link(port, undefined));
    await until("the empty list", () => page.locator("#sessions [data-empty]").isVisible());
    await publisher("one", ...small);
    const link = page.locator("#sessions a", { hasText: "one" });
    await until("the session", () => link.isVisible());
    await link.click();
    await shows(page);
  });

  it("says that nothing is published yet, and shows it when it is", async () => {
    const page = await view(lab.link(port, "soon"));
    await message(page, /Nothing published yet/, 25_000);
    await publisher("soon", ...small);
    await shows(page);
  });

  it("says that a session has ended", async () => {
    const p = await publisher("over", ...small);
    const page = await view(lab.link(port, "over"));
    await shows(page);
    await p.stop();
    await message(page, /Session ended/, 40_000);
  });

  it("says that the publisher is silent", async () => {
    await publisher("silent", ...small, "--frames", "15");
    const page = await view(lab.link(port, "silent"));
    await shows(page);
    await message(page, /The publisher is silent/);
    expect((await stats(page)).phase).toBe("silent");
  });

  it("says that the relay is unreachable", async () => {
    const page = await view(lab.link(await freePort(), "x"));
    expect(await message(page, /Relay unreachable/)).toMatch(/127\.0\.0\.1/);
  });

  it("says that the certificate was refused", async () => {
    const page = await view(lab.link(port, "x", `&certificate=${"00".repeat(32)}`));
    await message(page, /Certificate refused/);
  });

  it("says that the browser has no WebTransport", async () => {
    const page = await view(lab.link(port, "x"), "delete globalThis.WebTransport");
    await message(page, /no WebTransport/);
  });

  it("says that the browser cannot draw", async () => {
    const page = await lab.page("HTMLCanvasElement.prototype.getContext = () => null");
    open.push(page);
    await page.goto(lab.link(port, "x"));
    expect(await message(page, /cannot start/)).toMatch(/WebGL 2/);
    const errors = lab.errors.splice(0);
    expect(errors.filter((e) => !e.includes("WebGL"))).toEqual([]);
  });
});

describe("the page", () => {
  it.each(["vr", "ar"])("shows the same scene in WebXR: %s", async (mode) => {
    await publisher("xr", ...small);
    const iwer = readFileSync(fileURLToPath(new URL("../../node_modules/iwer/build/iwer.min.js", import.meta.url)), "utf8");
    const page = await view(lab.link(port, "xr"), `${iwer}; new IWER.XRDevice(IWER.metaQuest3).installRuntime({ forceInstall: true });`);
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
    const page = await view(lab.link(port, "keys"));
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
    await publisher("awake", ...small, "--frames", "15");
    const page = await view(lab.link(port, "awake"), `
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
    await page.goto(lab.link(port, "a-name-that-somebody-gave-without-a-thought-of-phones-and-how-narrow-they-are"));
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
    open.push(await lab.performer(port, "demo", "--fps", "10"));
    const page = await view(lab.link(port, "demo", "&quality=full"));
    await page.setViewportSize({ width: 1280, height: 720 });
    await page.evaluate(() => document.querySelector<HTMLButtonElement>("button#light[aria-pressed=true]")?.click());
    await shows(page, 80, 60_000); // so that the figures are not those of the start
    const images = process.env["PICTURES"] ?? `${repo}client-web/test/out`;
    mkdirSync(images, { recursive: true });
    await page.screenshot({ path: `${images}/web-viewer.png` });
  });

  it("asks no other host for anything, and has no errors", () => {
    expect(lab.foreign).toEqual([]);
    expect(lab.errors).toEqual([]);
    expect(relay.output).not.toMatch(/FLOW_CONTROL_ERROR|FINAL_SIZE_ERROR|STREAM_STATE_ERROR/);
  });
});
