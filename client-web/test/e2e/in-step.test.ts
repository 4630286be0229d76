/** Sound compared with points in real time. The test publisher beeps every second. */
import { spawn } from "node:child_process";
import type { Page } from "playwright-core";
import { beforeAll, describe, expect, it } from "vitest";
import { reportDecoded } from "./ear.ts";
import { Fixture, reliable, small } from "./fixture.ts";
import { hear, median } from "./hearing.ts";
import { stats, until } from "./lab.ts";

/** Range of lip-sync errors that viewers accept (ITU-R BT.1359), and limit of their median, ms. */
const EARLY = -45;
const LATE = 125;
const MEDIAN = 20;
/** Successive onsets required in step. A machine that stops now and then leaves time for few. */
const ONSETS = 3;
/** Number of processes that keep the machine busy. */
const BUSY = 2;

/** A camera of the performer that leaves time for drawing. */
const light = ["--cameras", "1", "--depth-mode", "NFOV_2X2BINNED", "--fps", "10"];

const fixture = new Fixture();
const { lab } = fixture;
beforeAll(() => reportDecoded(lab));

/**
 * For each onset, the sound's delay minus that of the surrounding frames, ms. Independent of the page's own figures.
 */
const lipOffsets = (page: Page): Promise<number[]> =>
  page.evaluate(() => {
    const { heard, decoded, captured, shown } = window.seen!;
    return heard.flatMap((h) => {
      const shifts = shown.flatMap(({ sequence, at }) => {
        const frame = captured.get(sequence);
        return frame !== undefined && Math.abs(at - h) < 1500 ? [at - frame] : [];
      });
      const shift = shifts.toSorted((a, b) => a - b)[shifts.length >> 1];
      if (shift === undefined) return [];
      const nearest = decoded.map((d) => h - d - shift).toSorted((a, b) => Math.abs(a) - Math.abs(b))[0];
      return nearest !== undefined && Math.abs(nearest) < 500 ? [nearest] : [];
    });
  });

/** Waits until the last onsets are in step, and returns their offsets. */
const inStep = (page: Page, what: string): Promise<number[]> =>
  until(what, async () => {
    const { playback } = await stats(page);
    const atEnd = playback && !playback.live && !playback.playing;
    if (atEnd) await page.locator("button#play").dispatchEvent("click");
    const list = (await lipOffsets(page)).slice(-ONSETS).map(Math.round);
    const agree = list.length === ONSETS && list.every((o) => o >= EARLY && o <= LATE);
    return agree && Math.abs(median(list)) <= MEDIAN && list;
  });

const forget = (page: Page): Promise<void> =>
  page.evaluate(() => {
    for (const list of [window.seen!.heard, window.seen!.decoded, window.seen!.shown]) list.length = 0;
    window.seen!.captured.clear();
  });

describe("sound", () => {
  it.each(["stream", "datagram"])("plays in step with points, by %s", async (delivery) => {
    const session = `heard-${delivery}`;
    await fixture.publisher(session, ...small, ...reliable, "--sound", delivery);
    const page = await hear(fixture, session);
    const offsets = await inStep(page, "sound in step with points");
    const s = (await stats(page)).sound!;
    console.log(JSON.stringify({ offsets, s }));
    expect(s).toMatchObject({ tracks: 1, microphones: ["beeper"], packets_refused: 0, refusal: "" });
    if (delivery === "datagram") expect(s.packets_repeated).toBeGreaterThan(0);
    expect(lab.errors).toEqual([]);
  });

  it("lets the performer's claps be heard when they are seen", async () => {
    fixture.open.push(await lab.performer(fixture.port, "claps", ...light, "--audio", "synthetic"));
    const page = await hear(fixture, "claps");
    const quiet = await inStep(page, "claps in step with points");
    const burners = Array.from({ length: BUSY }, () => spawn(process.execPath, ["-e", "for (;;);"]));
    try {
      await forget(page);
      const busy = await inStep(page, "claps in step on a busy machine");
      console.log(JSON.stringify({ quiet, busy, s: (await stats(page)).sound }));
    } finally {
      for (const b of burners) b.kill();
    }
    expect(lab.errors).toEqual([]);
  });

  it("follows a replay, seeks and pauses", async () => {
    const file = lab.recording("sound.mcap", ...small, "--fps", "10", "--frames", "80", "--sound", "stream");
    fixture.open.push(lab.replay(fixture.port, "again", file));
    const page = await hear(fixture, "again");
    const shared = await inStep(page, "sound in step with the shared replay");
    await until("the playback bar", () => page.locator("#playback").isVisible());
    await page.locator("#position").fill("1500");
    await forget(page);
    const own = await inStep(page, "sound in step after a seek");
    await page.locator("#position").fill("500");
    await page.locator("button#play").dispatchEvent("click");
    await until("a pause", async () => {
      const { playback, sound } = await stats(page);
      if (playback!.playing) await page.locator("button#play").dispatchEvent("click"); // clicked at the end
      return !playback!.playing && sound!.level < 0.01;
    });
    await forget(page);
    await page.locator("button#play").dispatchEvent("click");
    const resumed = await inStep(page, "sound in step after a pause");
    console.log(JSON.stringify({ shared, own, resumed, sound: (await stats(page)).sound }));
    expect(lab.errors).toEqual([]);
  });
});
