/** Compares the frame delay over WebTransport and over TCP, and measures memory over TCP (docs/results/tcp.md). */
import { readFileSync } from "node:fs";
import { loadavg } from "node:os";
import type { Page } from "playwright-core";
import { afterAll, beforeAll, it } from "vitest";
import { freePort, Lab, metric, shows, stats, type Program } from "../e2e/lab.ts";

const lab = new Lab();
let port: number;
let publisher: Program;
beforeAll(async () => {
  await lab.open();
  port = await freePort();
  await lab.relay(port);
  publisher = await lab.publisher(port, "tcp", "--width", "296", "--height", "266", "--fps", "10");
});
afterAll(() => lab.close());

/** Turns per transport, and the viewer's reporting window, s. */
const TURNS = Number(process.env["TURNS"] ?? 8);
const WINDOW = 5;
/** Minutes of the memory test; 0 omits it. */
const MINUTES = Number(process.env["MINUTES"] ?? 10);

const sleep = (s: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, s * 1000));
const median = (list: readonly number[]): number => list.toSorted((a, b) => a - b)[list.length >> 1]!;

async function view(transport: "quic" | "tcp"): Promise<Page> {
  const page = await lab.page();
  await page.goto(lab.link(port, "tcp", `&transport=${transport}`));
  await shows(page, 20);
  return page;
}

it("shows frames over both transports", async () => {
  const p50 = { quic: [] as number[], tcp: [] as number[] };
  const p95 = { quic: [] as number[], tcp: [] as number[] };
  const fps = { quic: [] as number[], tcp: [] as number[] };
  for (let turn = 0; turn < 2 * TURNS; turn++) {
    // Q T T Q Q T … spreads a trend of the machine's load over both.
    const transport = (turn + 1) & 2 ? "tcp" : "quic";
    const page = await view(transport);
    await sleep(WINDOW + 1);
    const s = await stats(page);
    if (s.transport !== transport) throw new Error(`connected over ${s.transport}`);
    p50[transport].push(s.frame_delay_ms.p50);
    p95[transport].push(s.frame_delay_ms.p95);
    fps[transport].push(s.fps);
    await page.close();
  }
  for (const transport of ["quic", "tcp"] as const) {
    console.log(
      JSON.stringify({
        transport, turns: p50[transport].length, p50_ms: median(p50[transport]), p95_ms: median(p95[transport]),
        fps: median(fps[transport]), p50_of_turns: p50[transport], load: loadavg()[0],
      }),
    );
  }
});

/** The resident memory of the browser's renderers, MB. */
async function renderers(page: Page): Promise<number> {
  const session = await page.context().browser()!.newBrowserCDPSession();
  const { processInfo } = await session.send("SystemInfo.getProcessInfo");
  await session.detach();
  let kB = 0;
  for (const { type, id } of processInfo) {
    if (type === "renderer") kB += Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${id}/status`, "utf8"))?.[1]);
  }
  return Math.round(kB / 1024);
}

it.runIf(MINUTES > 0)("does not grow over TCP", async () => {
  const page = await view("tcp");
  const cdp = await page.context().newCDPSession(page);
  for (let minute = 1; minute <= MINUTES; minute++) {
    await sleep(60);
    if (minute % 3 !== 1) continue;
    await cdp.send("HeapProfiler.collectGarbage");
    const { usedSize } = await cdp.send("Runtime.getHeapUsage");
    const s = await stats(page);
    console.log(
      JSON.stringify({
        minute, frames: s.frames, heap_mb: Math.round(usedSize / 1e5) / 10, renderers_mb: await renderers(page),
        relay_mb: Math.round((await metric(port, "process_resident_memory_bytes")) / (1 << 20)),
        delay_p50_ms: s.frame_delay_ms.p50, transport: s.transport, load: loadavg()[0],
      }),
    );
  }
  if (!publisher.running) throw new Error("the publisher ended");
});
