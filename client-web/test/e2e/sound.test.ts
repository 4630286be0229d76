/** The sound of sessions with points. The test publisher beeps every second. */
import { spawn } from "node:child_process";
import type { Page } from "playwright-core";
import { beforeAll, describe, expect, it } from "vitest";
import { listens, reportDecoded } from "./ear.ts";
import { Fixture, notice, reliable, small } from "./fixture.ts";
import { shows, stats, until } from "./lab.ts";

declare global {
  interface Window {
    seen?: {
      /** Onsets of loud sound, ms: local times at which they were heard, and timestamps in decoded sound. */
      readonly heard: number[];
      readonly decoded: number[];
      /** Capture times of decoded frames by sequence number, and local times of display, ms. */
      readonly captured: Map<number, number>;
      readonly shown: { readonly sequence: number; readonly at: number }[];
    };
  }
}

/** Init script that fills window.seen. */
const records = `${listens}{
  const seen = (window.seen = { heard: [], decoded: [], captured: new Map(), shown: [] });
  const LOUD = 0.2;
  const QUIET = 300;
  const onsets = (list) => {
    let loud = -Infinity;
    return (samples, rate, begin) =>
      samples.forEach((v, i) => {
        if (Math.abs(v) < LOUD) return;
        const at = begin + (1000 * i) / rate;
        if (Math.abs(at - loud) > QUIET) list.push(at);
        loud = at;
      });
  };
  ear.heard = onsets(seen.heard);
  ear.decoded = onsets(seen.decoded);
  window.Worker = class extends Worker {
    constructor(...args) {
      super(...args);
      this.addEventListener("message", ({ data }) => {
        if (data.type === "frame") seen.captured.set(data.sequence, data.captured);
      });
    }
    postMessage(m, ...rest) {
      super.postMessage(m, ...rest);
      // The page releases a frame after drawing it.
      if (m.type === "released" && m.shown)
        seen.shown.push({ sequence: m.shown.sequence, at: performance.timeOrigin + performance.now() });
    }
  };
}`;

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

const median = (list: readonly number[]): number => list.toSorted((a, b) => a - b)[list.length >> 1]!;

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

/** Opens a session and turns its sound on. */
async function hear(session: string): Promise<Page> {
  const page = await fixture.view(lab.link(fixture.port, session), records);
  await shows(page, 3);
  await until("the button", () => page.locator("button#sound").isVisible());
  expect((await stats(page)).sound).toMatchObject({ on: false, packets_received: 0 });
  await page.locator("button#sound").click();
  await until("sound", async () => (await stats(page)).sound!.level > 0.1);
  return page;
}

describe("sound", () => {
  it.each(["stream", "datagram"])("plays in step with points, by %s", async (delivery) => {
    const session = `heard-${delivery}`;
    await fixture.publisher(session, ...small, ...reliable, "--sound", delivery);
    const page = await hear(session);
    const offsets = await inStep(page, "sound in step with points");
    const s = (await stats(page)).sound!;
    console.log(JSON.stringify({ offsets, s }));
    expect(s).toMatchObject({ tracks: 1, microphones: ["beeper"], packets_refused: 0, refusal: "" });
    if (delivery === "datagram") expect(s.packets_repeated).toBeGreaterThan(0);
    expect(lab.errors).toEqual([]);
  });

  it("lets the performer's claps be heard when they are seen", async () => {
    fixture.open.push(await lab.performer(fixture.port, "claps", ...light, "--audio", "synthetic"));
    const page = await hear("claps");
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

  it("says that it is off, and can be muted and turned on again", async () => {
    await fixture.publisher("muted", ...small, ...reliable, "--sound", "stream");
    const page = await fixture.view(lab.link(fixture.port, "muted"), records);
    await notice(page, /Select Sound/);
    await page.locator("button#sound").click();
    const beeps = () => page.evaluate(() => window.seen!.heard.length);
    await until("a beep", async () => (await beeps()) > 0);
    expect(await page.locator("input#volume").isVisible()).toBe(true);
    await page.locator("button#sound").dispatchEvent("click");
    const received = await until("no more packets", async () => {
      const before = (await stats(page)).sound!.packets_received;
      await shows(page, (await stats(page)).frames + 3);
      const s = (await stats(page)).sound!;
      return !s.on && s.packets_received === before && before;
    });
    expect(await page.locator("input#volume").isVisible()).toBe(false);
    const before = await beeps();
    await page.locator("button#sound").dispatchEvent("click");
    await until("another beep", async () => (await beeps()) > before);
    await until("more packets", async () => (await stats(page)).sound!.packets_received > received);
  });

  it("comes from its place", async () => {
    await fixture.publisher("place", ...small, ...reliable, "--sound", "stream");
    const page = await hear("place");
    /** Ratio of the left to the right ear's loudness for a viewer at z, with the microphone at x = 1 m. */
    const balance = async (z: number): Promise<number> => {
      await page.evaluate((z) => window.holocast!.studio.lookAt([0, 1.2, z], [0, 1.2, 0]), z);
      const ratios: number[] = [];
      await until("beeps", async () => {
        const [left, right] = await page.evaluate(() => window.ear!.loudness());
        if (Math.max(left, right) > 0.005) ratios.push(left / right);
        return ratios.length >= 20;
      });
      return median(ratios.slice(10));
    };
    const [front, back] = [await balance(2), await balance(-2)];
    expect(front).toBeLessThan(0.8);
    expect(back).toBeGreaterThan(1.25);
  });

  it("refuses bad packets with a sentence, and shows points", async () => {
    await fixture.publisher("flood", ...small, ...reliable, "--sound", "datagram", "--flood", "5");
    const page = await hear("flood");
    await until("refused packets", async () => (await stats(page)).sound!.packets_refused > 300);
    await shows(page, (await stats(page)).frames + 5);
    await until("the sentence", async () =>
      /\d+ packets of track audio\/0 were refused, the last one because/.test(await page.locator("#stats").innerText()),
    );
    expect(lab.errors).toEqual([]);
  });

  it("follows a replay, seeks and pauses", async () => {
    const file = lab.recording("sound.mcap", ...small, "--fps", "10", "--frames", "80", "--sound", "stream");
    fixture.open.push(lab.replay(fixture.port, "again", file));
    const page = await hear("again");
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
