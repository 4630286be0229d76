/** A viewer short of CPU time drops frames instead of queueing them. */
import type { Page } from "playwright-core";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { Cage } from "./cage.ts";
import { testChromiumPath } from "./launch.ts";
import { block, freePort, Lab, metric, shows, stats, until, type Program } from "./lab.ts";

const root = process.getuid?.() === 0;
const cage = root ? new Cage(testChromiumPath) : undefined;
const lab = new Lab(cage?.executable);
let port: number;
let receipts: Program;
let page: Page | undefined;

beforeAll(async () => {
  await lab.open();
  port = await freePort();
  await lab.relay(port);
  await lab.publisher(port, "busy", "--width", "276", "--height", "248", "--fps", "30");
  receipts = await lab.receipts(port, "busy");
});

afterEach(async () => {
  lab.unblock();
  cage?.limit(Infinity);
  await page?.close();
});

afterAll(async () => {
  await lab.close();
  cage?.close();
});

/** Number of frames a viewer may hold: waiting, being decoded, decoded and being drawn. */
const HELD = 4;

it.runIf(root)("drops frames with a fifth of a core, holds few, and recovers", async () => {
  page = await lab.page();
  await page.goto(lab.link(port, "busy"));
  const before = await shows(page, 10);
  cage!.limit(0.2);
  let last = before;
  await until("newer frames, and dropped ones", async () => {
    const s = await stats(page!);
    // The network worker's counters are older than the page's, so this is a lower bound. After a pause it is exact.
    expect(s.frames_received - s.frames - s.frames_skipped).toBeLessThanOrEqual(HELD);
    expect(s.per_camera[0]!.sequence).toBeGreaterThanOrEqual(last.per_camera[0]!.sequence);
    last = s;
    const dropped = s.frames_skipped + s.frames_declined - before.frames_skipped - before.frames_declined;
    return s.frames >= before.frames + 8 && dropped > 30;
  });
  // Most of the frames published in the meantime were not drawn.
  expect(last.per_camera[0]!.sequence - before.per_camera[0]!.sequence).toBeGreaterThan(last.frames - before.frames);
  cage!.limit(Infinity);
  const after = await shows(page, last.frames + 20);
  expect([after.phase, after.reconnects, after.frames_bad]).toEqual(["live", 0, 0]);
});

describe("a blocked thread", () => {
  const QUEUED = 90;
  /** Sequence numbers of the frames shown, according to the receipts. */
  const shown = (): number[] => [...receipts.output.matchAll(/^receipt \S+ 0 (\d+) -?\d+$/gm)].map((m) => Number(m[1]));
  const published = (): Promise<number> => metric(port, "holocast_relay_received_objects_total");

  // The page starts its network worker before the decode workers.
  it.each<[string, (p: Page) => Promise<unknown>[]]>([
    ["network worker", (p) => [p.workers()[0]!.evaluate(block)]],
    ["decode workers", (p) => p.workers().slice(1).map((w) => w.evaluate(block))],
    ["page", (p) => [p.evaluate(block)]],
  ])("%s: frames that queued up are not shown", async (_, start) => {
    page = await lab.page();
    await page.goto(lab.link(port, "busy"));
    await shows(page, 10);
    receipts.output = "";
    const earlier = await published();
    const before = await stats(page);
    const blocked = start(page);
    await lab.blocked(blocked.length);
    const from = await published();
    await until(`${QUEUED} more frames`, async () => (await published()) >= from + QUEUED);
    lab.unblock();
    await Promise.all(blocked);
    const first = before.per_camera[0]!.sequence;
    // Frames up to `last` were published before the thread resumed.
    const last = first + QUEUED;
    await until("live frames", async () => shown().filter((n) => n > last).length > 20);
    const late = shown().filter((n) => n > first && n <= last);
    expect(late.length, JSON.stringify(late)).toBeLessThanOrEqual(2 * HELD + from - earlier);
    const after = await stats(page);
    const dropped = (s: typeof after): number => s.frames_skipped + s.frames_declined + s.frames_lost + s.frames_late;
    expect(dropped(after) - dropped(before)).toBeGreaterThan(QUEUED / 2);
    expect([after.phase, after.reconnects]).toEqual(["live", 0]);
  });
});
