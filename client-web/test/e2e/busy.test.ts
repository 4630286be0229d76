/** A machine that is too slow for the session: frames are dropped, and those shown are not old. */
import type { Page } from "playwright-core";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { Cage, type Stage } from "./cage.ts";
import { chromiumPath, freePort, Lab, shows, stats, type Program } from "./lab.ts";

const root = process.getuid?.() === 0;
const cage = root ? new Cage(chromiumPath) : undefined;
const lab = new Lab(cage?.executable);
let port: number;
let receipts: Program;
let page: Page | undefined;

const sleep = (seconds: number) => new Promise((resolve) => setTimeout(resolve, 1000 * seconds));

beforeAll(async () => {
  await lab.open();
  port = await freePort();
  await lab.relay(port);
  await lab.publisher(port, "busy", "--width", "391", "--height", "352", "--fps", "30");
  receipts = await lab.receipts(port, "busy");
});

afterEach(async () => {
  cage?.limit(Infinity);
  await page?.close();
});

afterAll(async () => {
  await lab.close();
  cage?.close();
});

/** Seconds with too little time before the delays are judged, and of judging. */
const SETTLE = 7;
const WATCH = 12;

/** Delays of the frames shown, ms, by their receipts, while a stage or the whole browser has a share of the time it wants. */
async function short(stage: Stage | undefined, share: number) {
  page = await lab.page();
  await page.goto(lab.link(port, "busy"));
  await shows(page, 60, 60_000);
  const wants = await cage!.uses(stage, 4);
  const cores = wants * share;
  if (stage) cage!.limitStage(stage, cores);
  else cage!.limit(cores);
  await sleep(SETTLE);
  receipts.output = "";
  await sleep(WATCH);
  const delays = [...receipts.output.matchAll(/^receipt \S+ 0 \d+ (-?\d+)$/gm)].map((m) => Number(m[1]) / 1000).sort((a, b) => a - b);
  const p = (q: number) => Math.round(delays[Math.max(0, Math.ceil(q * delays.length) - 1)] ?? Infinity);
  const s = await stats(page);
  const seen = { shown: delays.length, p50: p(0.5), p95: p(0.95), draw: s.draw_ms };
  const { frames_received, frames_declined, frames_skipped, frames_lost, drawn_share } = s;
  console.log(`${stage ?? "the browser"} wants ${wants.toFixed(3)} cores, has ${cores.toFixed(3)}: ${JSON.stringify({ ...seen, drawn_share, frames_received, frames_declined, frames_skipped, frames_lost })}`);
  return seen;
}

describe.runIf(root)("a fifth of the processor", () => {
  // Threads have groups of their own in cgroups of version 1 only.
  const stages: readonly Stage[] = Cage.threads ? ["network worker", "decode workers", "page", "GPU process"] : [];
  it.each<[string, Stage | undefined]>([["the browser", undefined], ...stages.map((s): [string, Stage] => [`the ${s}`, s])])("for %s", async (_, stage) => {
    const { shown, p95, draw } = await short(stage, 0.2);
    // A single thread's share is a millisecond of each hundred or two: most goes on waking up.
    expect(shown).toBeGreaterThanOrEqual(stage ? 2 : 10);
    expect(p95).toBeLessThanOrEqual(1000);
    expect(draw ?? Infinity).toBeLessThan(500); // what the delay, which ends with the picture's commands, does not count
  });
});
