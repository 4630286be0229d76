/** A recording that is replayed: each viewer moves about in it on its own. */
import type { Page } from "playwright-core";
import { afterAll, beforeAll, expect, it } from "vitest";
import type { Stats } from "../../src/ui/stats.ts";
import { freePort, hide, hideable, Lab, shows, stats, until } from "./lab.ts";

const FPS = 10;
const lab = new Lab();
let port: number;

beforeAll(async () => {
  await lab.open();
  port = await freePort();
  await lab.relay(port);
  const p = await lab.publisher(port, "take", "--width", "276", "--height", "248", "--fps", `${FPS}`, "--descriptions", "4");
  const file = await lab.record(port, "take", 6);
  await p.stop();
  lab.replay(port, "again", file);
});

afterAll(() => lab.close());

async function watch(): Promise<Page> {
  const page = await lab.page(hideable);
  await page.goto(lab.link(port, "again"));
  await page.waitForFunction(() => window.holocast !== undefined);
  await shows(page, 3);
  await until("the playback bar", () => page.locator("#playback").isVisible());
  return page;
}

const sequence = (s: Stats): number => s.per_camera[0]!.sequence;
const place = (page: Page, ms: number): Promise<void> => page.locator("#position").fill(`${ms}`);

/** The frame that a page shows at a place, standing still. */
async function still(page: Page, ms: number): Promise<number> {
  const before = await stats(page);
  await place(page, ms);
  let last = -1;
  let since = 0;
  await until(`a frame at ${ms} ms`, async () => {
    const s = await stats(page);
    const { position_ms, playing, waiting } = s.playback!;
    if (position_ms !== ms || playing || waiting || s.frames === before.frames || sequence(s) !== last) since = performance.now();
    last = sequence(s);
    return performance.now() - since > 1000;
  });
  return last;
}

it("lets each viewer pause, seek and come back", async () => {
  const [a, b] = [await watch(), await watch()];
  const offered = await stats(a);
  expect(offered).toMatchObject({ delay_from: "arrival", playback: { live: true, playing: true } });
  expect(offered.playback!.duration_ms).toBeGreaterThan(5000);
  expect(offered.playback!.duration_ms).toBeLessThan(7000);
  await until("a delay that is not the recording's age", async () => (await stats(a)).frame_delay_ms.p50 < 2000);

  await a.locator("button#play").click();
  await until("a pause", async () => !(await stats(a)).playback!.playing);
  expect(await a.locator("button#play").innerText()).toBe("Play");
  // A frame that stands for a second may still be an old one, where the next takes longer to decode.
  const first = await until("frames as far apart as their places", async () => {
    const [start, later, back] = [await still(a, 0), await still(a, 3000), await still(a, 1000)];
    return Math.abs(later - start - 3 * FPS) <= 2 && Math.abs(back - start - FPS) <= 2 ? { sequence: start } : undefined;
  }, 200_000);

  // The other viewer noticed nothing, and what it does is not noticed either.
  const before = await stats(b);
  expect(before.playback).toMatchObject({ live: true, playing: true });
  await shows(b, before.frames + 5);
  await place(b, 4000);
  await until("the other's place", async () => {
    const s = await stats(b);
    return !s.playback!.live && s.playback!.playing && sequence(s) >= first.sequence + 4 * FPS - 1;
  });
  expect(sequence(await stats(a)) - first.sequence).toBeLessThanOrEqual(FPS + 2);

  await a.locator("#position").focus();
  await a.keyboard.press("k");
  const moving = await stats(a);
  await until("frames one after the other", async () => sequence(await stats(a)) >= sequence(moving) + FPS);
  expect((await stats(a)).frames_lost).toBe(moving.frames_lost);

  // It waits for somebody to watch.
  await hide(a, true);
  await until("a pause", async () => !(await stats(a)).playback!.playing);
  await hide(a, false);
  await until("its going on", async () => {
    const { playing, position_ms, duration_ms } = (await stats(a)).playback!;
    return playing || position_ms === duration_ms; // or it has come to its end meanwhile
  });
  await a.keyboard.press("End");
  await until("the end", async () => {
    const { position_ms, duration_ms, playing } = (await stats(a)).playback!;
    return position_ms === duration_ms && !playing;
  });
  expect(await a.locator("#position").getAttribute("aria-valuetext")).toMatch(/^0:0[56] of 0:0[56]$/);

  await a.locator("button#golive").click();
  const live = await until("the replay", async () => {
    const s = await stats(a);
    return s.playback!.live ? s : undefined;
  });
  await shows(a, live.frames + 5);
  for (const control of await a.locator("#playback").getByRole("button").all()) expect((await control.innerText()).length).toBeGreaterThan(1);
  expect(lab.errors).toEqual([]);
});
