/** A machine that is too slow for the session: frames are dropped, and those shown are not old. */
import type { Page } from "playwright-core";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { Cage } from "./cage.ts";
import { chromiumPath, freePort, Lab, shows, stats, until, type Program } from "./lab.ts";

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

/** Delays of the frames shown, ms, by their receipts since they were last cleared. */
const shown = () => [...receipts.output.matchAll(/^receipt \S+ 0 \d+ (-?\d+)$/gm)].map((m) => Number(m[1]) / 1000);

/** Those delays while the GPU process or the whole browser has a share of the time it wants. */
async function short(gpu: boolean, share: number) {
  page = await lab.page();
  await page.goto(lab.link(port, "busy"));
  await shows(page, 60, 60_000);
  const wants = await cage!.uses(gpu, 4);
  const cores = wants * share;
  if (gpu) cage!.limitGPU(cores);
  else cage!.limit(cores);
  await sleep(SETTLE);
  receipts.output = "";
  await sleep(WATCH);
  const delays = shown().sort((a, b) => a - b);
  const p = (q: number) => Math.round(delays[Math.max(0, Math.ceil(q * delays.length) - 1)] ?? Infinity);
  const s = await stats(page);
  const seen = { shown: delays.length, p50: p(0.5), p95: p(0.95), draw: s.draw_ms };
  const { frames_received, frames_declined, frames_skipped, frames_lost, drawn_share } = s;
  console.log(`the ${gpu ? "GPU process" : "browser"} wants ${wants.toFixed(3)} cores, has ${cores.toFixed(3)}: ${JSON.stringify({ ...seen, drawn_share, frames_received, frames_declined, frames_skipped, frames_lost })}`);
  return seen;
}

describe.runIf(root)("a fifth of the processor", () => {
  // Drawing in software takes nine tenths of what the browser uses. The other stages want 2 or 3 % of a core each: a fifth
  // of that is less than the scheduler's tick, and a group that overdraws by a tick stands still for half a second.
  it.each([["browser", false], ["GPU process", true]] as const)("for the %s", async (_, gpu) => {
    const { shown, p95, draw } = await short(gpu, 0.2);
    expect(shown).toBeGreaterThanOrEqual(gpu ? 2 : 10);
    expect(p95).toBeLessThanOrEqual(1000);
    expect(draw ?? Infinity).toBeLessThan(500); // what the delay, which ends with the picture's commands, does not count
  });
});

describe("a stage that stands still for three seconds", () => {
  const still = () => {
    for (const end = performance.now() + 3000; performance.now() < end; );
  };
  /** The page starts its network worker before those that decode. */
  it.each<[string, (p: Page) => Promise<unknown>]>([
    ["the network worker", (p) => p.workers()[0]!.evaluate(still)],
    ["the decode workers", (p) => Promise.all(p.workers().slice(1).map((w) => w.evaluate(still)))],
    ["the page", (p) => p.evaluate(still)],
  ])("%s: what has queued up is not shown", async (_, stop) => {
    page = await lab.page();
    await page.goto(lab.link(port, "busy"));
    await shows(page, 30, 60_000);
    receipts.output = "";
    await stop(page);
    // 90 frames were made meanwhile. One may have been on its way in each stage.
    await until("new frames", async () => shown().filter((d) => d < 1000).length > 20, 60_000);
    const old = shown().filter((d) => d >= 1000);
    expect(old.length, JSON.stringify(old)).toBeLessThanOrEqual(4);
  });
});
