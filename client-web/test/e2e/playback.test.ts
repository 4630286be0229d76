/** A replayed recording, which each viewer can pause and seek on its own. */
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
  const size = ["--width", "276", "--height", "248", "--fps", `${FPS}`, "--frames", "60"];
  lab.replay(port, "again", lab.recording("take.mcap", ...size, "--descriptions", "4"));
  lab.replay(port, "video", lab.recording("video.mcap", ...size, "--layout", "w"));
});

afterAll(() => lab.close());

async function watch(session: string): Promise<Page> {
  const page = await lab.page(hideable);
  await page.goto(lab.link(port, session));
  await page.waitForFunction(() => window.holocast !== undefined);
  await shows(page, 3);
  await until("the playback bar", () => page.locator("#playback").isVisible());
  return page;
}

const sequence = (s: Stats): number => s.per_camera[0]!.sequence;
const seek = (page: Page, ms: number): Promise<void> => page.locator("#position").fill(`${ms}`);

/** Seeks while paused and returns the sequence number of the frame shown. */
async function frameAt(page: Page, ms: number): Promise<number> {
  const before = await stats(page);
  await seek(page, ms);
  let last = -1;
  let since = 0;
  await until(`a frame at ${ms} ms`, async () => {
    const s = await stats(page);
    const { position_ms, playing, waiting } = s.playback!;
    if (position_ms !== ms || playing || waiting || s.frames === before.frames || sequence(s) !== last)
      since = performance.now();
    last = sequence(s);
    return performance.now() - since > 1000;
  });
  return last;
}

it.each([
  ["frames in four descriptions", "again"],
  ["layout W", "video"],
])("lets each viewer pause, seek and return to the shared replay: %s", async (_, session) => {
  const [a, b] = [await watch(session), await watch(session)];
  const offered = await stats(a);
  expect(offered).toMatchObject({ delay_from: "arrival", playback: { live: true, playing: true } });
  expect(offered.playback!.duration_ms).toBeGreaterThan(5000);
  // The delay counts from arrival. It is far below the recording's age, which grows by its duration with every loop.
  await until("a delay from arrival", async () => (await stats(a)).frame_delay_ms.p50 < offered.playback!.duration_ms);

  await a.locator("button#play").click();
  await until("a pause", async () => !(await stats(a)).playback!.playing);
  expect(await a.locator("button#play").innerText()).toBe("Play");
  // Retry, as an earlier frame may be shown for a second if decoding is slow.
  await until("the frames at three positions", async () => {
    const [start, later, back] = [await frameAt(a, 0), await frameAt(a, 3700), await frameAt(a, 1000)];
    return start === 0 && later === 3.7 * FPS && back === FPS;
  });

  // The viewers do not affect each other.
  const before = await stats(b);
  expect(before.playback).toMatchObject({ live: true, playing: true });
  await shows(b, before.frames + 5);
  await seek(b, 4000);
  await until("the other viewer's position", async () => {
    const s = await stats(b); // perhaps at the end already
    return !s.playback!.live && sequence(s) >= 4 * FPS;
  });
  expect(sequence(await stats(a))).toBe(FPS);

  await a.locator("#position").focus();
  await a.keyboard.press("k");
  const moving = await stats(a);
  await until("a second of frames", async () => sequence(await stats(a)) >= sequence(moving) + FPS);
  expect((await stats(a)).frames_lost).toBe(moving.frames_lost);

  // Playback pauses while the page is hidden.
  await hide(a, true);
  await until("a pause", async () => !(await stats(a)).playback!.playing);
  await hide(a, false);
  await until("playback to resume", async () => {
    const { playing, position_ms, duration_ms } = (await stats(a)).playback!;
    return playing || position_ms === duration_ms; // unless playback has already reached the end
  });
  await a.keyboard.press("End");
  await until("the end", async () => {
    const { position_ms, duration_ms, playing } = (await stats(a)).playback!;
    return position_ms === duration_ms && !playing;
  });
  expect(await a.locator("#position").getAttribute("aria-valuetext")).toMatch(/^(0:\d\d) of \1$/);

  await a.locator("button#golive").click();
  const live = await until("the shared replay", async () => {
    const s = await stats(a);
    return s.playback!.live ? s : undefined;
  });
  await shows(a, live.frames + 5);
  for (const control of await a.locator("#playback").getByRole("button").all())
    expect((await control.innerText()).length).toBeGreaterThan(1);
  expect(lab.errors).toEqual([]);
});
