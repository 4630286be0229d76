/** Records a page's sound and frames, for tests of sound. */
import type { Page } from "playwright-core";
import { expect } from "vitest";
import { listens } from "./ear.ts";
import type { Fixture } from "./fixture.ts";
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
export const records = `${listens}{
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

export const median = (list: readonly number[]): number => list.toSorted((a, b) => a - b)[list.length >> 1]!;

/** Opens a session and turns its sound on. */
export async function hear(fixture: Fixture, session: string): Promise<Page> {
  const page = await fixture.view(fixture.lab.link(fixture.port, session), records);
  await shows(page, 3);
  await until("the button", () => page.locator("button#sound").isVisible());
  expect((await stats(page)).sound).toMatchObject({ on: false, packets_received: 0 });
  await page.locator("button#sound").click();
  await until("sound", async () => (await stats(page)).sound!.level > 0.1);
  return page;
}
