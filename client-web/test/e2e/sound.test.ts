/** The sound of sessions with points. The test publisher beeps at every whole second of the session's clock. */
import type { Page } from "playwright-core";
import { describe, expect, it } from "vitest";
import { listens } from "./ear.ts";
import { Fixture, reliable, small } from "./fixture.ts";
import { shows, stats, until } from "./lab.ts";

declare global {
  interface Window {
    /** Local times, in ms, at which beeps began to be heard and frames were first shown, by sequence number. */
    seen?: { readonly beeps: number[]; readonly frames: Map<number, number> };
  }
}

/** Init script that fills window.seen. */
const records = `${listens}{
  const seen = (window.seen = { beeps: [], frames: new Map() });
  const QUIET = 300;
  let loud = -Infinity;
  ear.heard = (samples, rate, begin) => {
    samples.forEach((v, i) => {
      if (Math.abs(v) < 0.1) return;
      const at = begin + (1000 * i) / rate;
      if (at - loud > QUIET) seen.beeps.push(at);
      loud = at;
    });
  };
  let last;
  const look = () => {
    requestAnimationFrame(look);
    const now = window.holocast?.stats().per_camera[0]?.sequence;
    if (now !== last) seen.frames.set((last = now), performance.timeOrigin + performance.now());
  };
  requestAnimationFrame(look);
}`;

/** What viewers accept (ITU-R BT.1359), ms. */
const EARLY = -125;
const LATE = 45;
const BEEPS = 5;

const fixture = new Fixture();
const { lab } = fixture;

const median = (list: readonly number[]): number => list.toSorted((a, b) => a - b)[list.length >> 1]!;
const inStep = (offset: number): boolean => offset >= EARLY && offset <= LATE;

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
    // Measured from the beeps, apart from the page's own figures.
    const measured = await until("sound in step with points", async () => {
      const s = await stats(page);
      const beeps = (await page.evaluate(() => window.seen!.beeps)).slice(-BEEPS);
      if (beeps.length < BEEPS) return undefined;
      const delay = median(beeps.map((at) => (at + s.clock.offset_ms!) % 1000));
      const offset = delay - s.frame_delay_ms.p50;
      return inStep(offset) && { delay, offset, frames: s.frame_delay_ms.p50, sound: s.sound! };
    });
    console.log(JSON.stringify(measured));
    expect(Math.abs(measured.sound.delay_ms! - measured.delay)).toBeLessThan(LATE);
    const s = (await stats(page)).sound!;
    expect(s).toMatchObject({ tracks: 1, packets_refused: 0, refusal: "" });
    if (delivery === "datagram") expect(s.packets_repeated).toBeGreaterThan(0);
    expect(lab.errors).toEqual([]);
  });

  it("says that it is off, and can be muted and turned on again", async () => {
    await fixture.publisher("muted", ...small, ...reliable, "--sound", "stream");
    const page = await fixture.view(lab.link(fixture.port, "muted"), records);
    await until("the notice", async () => /Select Sound/.test(await page.locator("#notice").innerText()));
    await page.locator("button#sound").click();
    const beeps = () => page.evaluate(() => window.seen!.beeps.length);
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
    expect((await stats(page)).sound!.packets_received).toBeGreaterThan(received);
  });

  it("comes from its place", async () => {
    await fixture.publisher("place", ...small, ...reliable, "--sound", "stream");
    const page = await hear("place");
    /** Ratio of the left to the right ear's loudness, seen from z, with the microphone at x = 1 m. */
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
      /\d+ packets of track audio\/0 were refused, the last one because of /.test(await page.locator("#stats").innerText()),
    );
    expect(lab.errors).toEqual([]);
  });

  it("follows a replay, seeks and pauses", async () => {
    const file = lab.recording(...small, "--fps", "10", "--frames", "80", "--sound", "stream");
    fixture.open.push(lab.replay(fixture.port, "again", file));
    const page = await hear("again");
    /** Beep minus frame, whose sequence number is a multiple of 10. */
    const offsets = (): Promise<number[]> =>
      page.evaluate(() => {
        const { beeps, frames } = window.seen!;
        const shown = [...frames].filter(([n]) => n % 10 === 0).map(([, at]) => at);
        return beeps.flatMap((b) => {
          const nearest = shown.toSorted((x, y) => Math.abs(x - b) - Math.abs(y - b))[0];
          return nearest !== undefined && Math.abs(nearest - b) < 500 ? [b - nearest] : [];
        });
      });
    const clear = () => page.evaluate(() => {
      window.seen!.beeps.length = 0;
      window.seen!.frames.clear();
    });
    const step = (what: string) => until(what, async () => {
      const p = (await stats(page)).playback;
      if (p && !p.live && !p.playing) await page.locator("button#play").dispatchEvent("click"); // at the end
      const list = (await offsets()).slice(-BEEPS);
      return list.length >= 3 && inStep(median(list)) && list;
    });
    const shared = await step("sound in step with the shared replay");
    await until("the playback bar", () => page.locator("#playback").isVisible());
    await page.locator("#position").fill("2500");
    await clear();
    const own = await step("sound in step after a seek");
    console.log(JSON.stringify({ shared, own, sound: (await stats(page)).sound }));

    await page.locator("#position").fill("500");
    await page.locator("button#play").dispatchEvent("click");
    await until("a pause", async () => !(await stats(page)).playback!.playing && (await stats(page)).sound!.level < 0.01);
    await clear();
    await page.locator("button#play").dispatchEvent("click");
    await step("sound in step after a pause");
    expect(lab.errors).toEqual([]);
  });
});
