/** Measures the viewer and writes docs/results/web.md and web.json. */
import { execFileSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { cpus, tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import type { Page } from "playwright-core";
import { afterAll, beforeAll, expect, it } from "vitest";
import { FrameDecoder } from "../../src/decode/frame.ts";
import { parseHeader } from "../../src/decode/header.ts";
import { Zstd } from "../../src/decode/zstd.ts";
import { freePort, Lab, repo, shows, stats } from "../e2e/lab.ts";
import { cpuTime, elsewhere, used, uses, type CpuTime, type Use } from "./cpu.ts";
import type { Result } from "./page/bench.worker.ts";

const root = fileURLToPath(new URL("../../", import.meta.url));
const lab = new Lab();
const frames = mkdtempSync(join(tmpdir(), "holocast-frames-"));

interface Decode extends Result {
  readonly frame: string;
  readonly layout: string;
  /** Bytes of the planes a second. */
  readonly mb_per_s: number;
}

interface Pipeline {
  readonly points: number;
  /** Pictures a second with the points in memory, uploaded and drawn anew at every chance. */
  readonly renderer_fps: number;
  /** The same of a session's 30 frames a second. */
  readonly rendered_fps: number;
  /** Distinct frames shown a second. */
  readonly fps: number;
  readonly received_fps: number;
  /** Frames a second that the relay was asked not to send. */
  readonly declined_fps: number;
  /** Of the renderer's pictures, those that drawing live has not. */
  readonly overhead_percent: number;
  /** CPU time that drawing live takes beside the drawing: the viewer's, and the relay's for having a receiver more; percent of the renderer's drawing. */
  readonly own_percent: number | null;
  readonly relay_percent: number | null;
  readonly frame_delay_ms: { readonly p50: number; readonly p95: number };
  readonly decode_ms: number;
  /** What the medians of the pictures a second are of, as they were measured. */
  readonly renderer_rounds: readonly number[];
  readonly rendered_rounds: readonly number[];
  /** CPU time, ms a second; null where the system does not tell. */
  readonly cpu: { readonly renderer: Cpu; readonly live: Cpu } | null;
}

type Cpu = Readonly<Record<Use, number>>;

const results: { machine: string; date: string; decode: Decode[]; pipeline: Pipeline[] } = {
  machine: `${cpus().length} × ${cpus()[0]?.model ?? "unknown"}, Chromium with software WebGL (SwiftShader), 960×640`,
  date: new Date().toISOString().slice(0, 10),
  decode: [],
  pipeline: [],
};

const ROUNDS = 3;
/** Seconds of a slice, and how many a measurement has; more of a slow renderer, so that one picture more or less does not count. */
const SLICE = 2;
const SLICES = 2;
const SLOW_SLICES = 4;
const median = (v: number[]): number => v.sort((a, b) => a - b)[v.length >> 1]!;
/** What is aimed at: ms for a real frame, percent of the renderer's pictures. */
const TARGET_DECODE = 6;
const TARGET_OVERHEAD = 10;
/** Share of the machine that other programs may have in a slice, and how many times as many slices there may be until it is so. */
const OTHERS = 0.03;
const ATTEMPTS = 4;
const percent = (v: number | null): string => (v === null ? "unknown" : `${v.toFixed(1).replace("-", "−")} %`);
const round = (v: number, digits = 1): number => Number(v.toFixed(digits));

beforeAll(async () => {
  execFileSync("npx", ["vite", "build", "--config", "test/bench/page/vite.config.ts"], { cwd: root, stdio: "inherit" });
  await lab.open();
  lab.publisherOutput("--dump", frames, "--data", resolve(repo, process.env["HOLOCAST_DATA"] || "../shared/data"));
});

afterAll(async () => {
  await lab.close();
  rmSync(frames, { recursive: true, force: true });
});

it("decodes in a worker", async () => {
  const page = await lab.page();
  await page.goto(`http://127.0.0.1:${lab.webPort}/bench/index.html`);
  await page.waitForFunction(() => window.bench !== undefined);
  for (const file of readdirSync(frames).sort()) {
    const [, frame, layout] = /^(.*)-([abc])\.hcpf$/.exec(file)!;
    const object = readFileSync(join(frames, file));
    const r = await page.evaluate(([o, n]) => window.bench(o, n), [object.toString("base64"), object.length > 4e6 ? 15 : 41] as const);
    results.decode.push({ ...r, frame: frame!, layout: layout!.toUpperCase(), mb_per_s: round(r.raw / r.decode / 1000) });
  }
  results.decode.sort((a, b) => a.points - b.points);
  await page.close();
  expect(results.decode.length).toBeGreaterThanOrEqual(9);
});

it("draws as fast as the renderer alone, nearly", async () => {
  const port = await freePort();
  const relay = await lab.relay(port);
  const wasm = (name: string) => readFileSync(join(root, "src/decode", name));
  const decoder = await FrameDecoder.create(wasm("planes.wasm"), await Zstd.create(wasm("zstd.wasm")));
  const page = await lab.page();
  for (const [width, height] of [[276, 248], [391, 352], [605, 544]] as const) {
    const size = ["--width", `${width}`, "--height", `${height}`];
    // What is published, relayed and received by another subscriber is the same in both measurements.
    const programs = [
      await lab.publisher(port, `live-${width}`, ...size, "--fps", "30"),
      await lab.publisher(port, `still-${width}`, ...size, "--fps", "0.001"),
      await lab.watcher(port, `live-${width}`),
    ];
    const object = lab.publisherOutput(...size, "--object");
    const { words, points } = decoder.decode([object], { maxPoints: parseHeader(object).points });
    const text = Buffer.from(words.slice().buffer).toString("base64");
    // Turn and turn about, so that what else the machine does falls on both.
    const alone: Measured[] = [];
    const live: Measured[] = [];
    const slices = points > 200_000 ? SLOW_SLICES : SLICES;
    const still = async () => {
      await open(page, lab.link(port, `still-${width}`), 1);
      await page.evaluate(rendererOnly, [text, points] as const);
      alone.push(await measure(page, slices));
    };
    await still();
    for (let round = 0; round < ROUNDS; round++) {
      await open(page, lab.link(port, `live-${width}`), 10);
      live.push(await measure(page, slices));
      await still();
    }
    for (const p of programs) await p.stop();
    results.pipeline.push(compare(points, alone, live));
    console.log(JSON.stringify(results.pipeline.at(-1)));
  }
  await page.close();
  await relay.stop();
  write();
});

/** Opens a session and waits until it runs evenly. */
async function open(page: Page, link: string, frames: number): Promise<void> {
  await page.goto(link);
  await page.waitForFunction(() => window.holocast !== undefined);
  await shows(page, frames, 60_000);
  await new Promise((resolve) => setTimeout(resolve, 1000));
}

type Measured = Awaited<ReturnType<typeof slice>>;

const busy = (m: Measured): number => (m.cpu ? elsewhere(m.cpu) / (1000 * cpus().length) : 0);

/** The page's own figures, means of slices in which the machine had little else to do. */
async function measure(page: Page, slices: number): Promise<Measured> {
  const all: Measured[] = [];
  while (all.length < ATTEMPTS * slices && all.filter((m) => busy(m) < OTHERS).length < slices) all.push(await slice(page, SLICE));
  const best = all.sort((a, b) => busy(a) - busy(b)).slice(0, slices);
  const mean = (f: (m: Measured) => number) => best.reduce((n, m) => n + f(m), 0) / best.length;
  const cpu = best.every((m) => m.cpu) ? (Object.fromEntries(Object.keys(best[0]!.cpu!).map((k) => [k, mean((m) => m.cpu![k as Use])])) as CpuTime) : undefined;
  return {
    cpu, rendered: mean((m) => m.rendered), fps: mean((m) => m.fps), received: mean((m) => m.received), declined: mean((m) => m.declined),
    p50: mean((m) => m.p50), p95: mean((m) => m.p95), decode: mean((m) => m.decode),
  };
}

async function slice(page: Page, seconds: number) {
  const first = await stats(page);
  const before = cpuTime();
  const began = performance.now();
  const rendered = await page.evaluate(pictureRate, seconds);
  const took = (performance.now() - began) / 1000;
  const cpu = used(before, cpuTime(), took);
  const last = await stats(page);
  const rate = (count: (s: typeof last) => number) => (count(last) - count(first)) / took;
  return {
    rendered, cpu, fps: rate((s) => s.frames), received: rate((s) => s.frames_received), declined: rate((s) => s.frames_declined),
    p50: last.frame_delay_ms.p50, p95: last.frame_delay_ms.p95, decode: last.decode_ms.p50,
  };
}

function compare(points: number, alone: readonly Measured[], live: readonly Measured[]): Pipeline {
  const of = (list: readonly Measured[], f: (m: Measured) => number) => median(list.map(f));
  const [rendered, renderer] = [of(live, (m) => m.rendered), of(alone, (m) => m.rendered)];
  const medians = (list: readonly Measured[]) =>
    Object.fromEntries((Object.keys(uses) as Use[]).map((use) => [use, round(of(list, (m) => m.cpu![use]), 0)])) as Cpu;
  const cpu = [...alone, ...live].every((m) => m.cpu) ? { renderer: medians(alone), live: medians(live) } : null;
  const more = (...list: Use[]) => (cpu ? round((100 * list.reduce((n, use) => n + cpu.live[use] - cpu.renderer[use], 0)) / cpu.renderer.drawing) : null);
  return {
    points, renderer_fps: round(renderer), rendered_fps: round(rendered),
    fps: round(of(live, (m) => m.fps)), received_fps: round(of(live, (m) => m.received)), declined_fps: round(of(live, (m) => m.declined)),
    overhead_percent: round(100 * (1 - rendered / Math.min(renderer, 30))), own_percent: more("page", "workers", "network"), relay_percent: more("relay"),
    frame_delay_ms: { p50: of(live, (m) => m.p50), p95: of(live, (m) => m.p95) }, decode_ms: round(of(live, (m) => m.decode)),
    renderer_rounds: alone.map((m) => round(m.rendered)), rendered_rounds: live.map((m) => round(m.rendered)),
    cpu,
  };
}

/** Pictures a second, from the first of some seconds to the last. */
function pictureRate(seconds: number): Promise<number> {
  const { render } = window.holocast!.studio.renderer.info;
  const at: number[] = [];
  let drawn = render.frame;
  const end = performance.now() + seconds * 1000;
  return new Promise((resolve) => {
    const look = (now: number) => {
      if (render.frame !== drawn) at.push(now);
      drawn = render.frame;
      if (now < end) requestAnimationFrame(look);
      else resolve(at.length < 2 ? 0 : ((at.length - 1) * 1000) / (at.at(-1)! - at[0]!));
    };
    requestAnimationFrame(look);
  });
}

/** Has the page upload the same points and draw them at every chance from now on. */
function rendererOnly([text, points]: readonly [string, number]): void {
  const words = new Uint32Array(Uint8Array.from(atob(text), (c) => c.charCodeAt(0)).buffer);
  const again = () => {
    window.holocast!.studio.upload(0, words, points, undefined);
    requestAnimationFrame(again);
  };
  again();
}

function write(): void {
  const out = join(repo, "docs/results");
  mkdirSync(out, { recursive: true });
  writeFileSync(join(out, "web.json"), `${JSON.stringify(results, undefined, 2)}\n`);
  const rows = results.decode.map(
    (d) => `| ${d.frame} | ${d.points.toLocaleString("en")} | ${d.layout} | ${round(d.bytes / d.points, 2)} | ${round(d.decode, 2)} | ${round(d.zstd, 2)} | ${d.mb_per_s} |`,
  );
  const real = results.decode.find((d) => d.frame === "kinect-nfov" && d.layout === "A");
  const lines = results.pipeline.map(
    (p) =>
      `| ${p.points.toLocaleString("en")} | ${p.renderer_fps} | ${p.rendered_fps} | ${percent(p.overhead_percent)} | ${percent(p.own_percent)} | ${percent(p.relay_percent)} | ${p.received_fps} | ${p.declined_fps} | ${round(p.frame_delay_ms.p50, 0)} / ${round(p.frame_delay_ms.p95, 0)} | ${p.decode_ms} |`,
  );
  const names = Object.keys(uses) as Use[];
  const cpu = results.pipeline.flatMap(({ points, cpu }) =>
    cpu ? (["renderer", "live"] as const).map((k) => `| ${points.toLocaleString("en")} | ${k === "live" ? "live" : "renderer only"} | ${names.map((use) => cpu[k][use]).join(" | ")} |`) : [],
  );
  writeFileSync(
    join(out, "web.md"),
    `# Web viewer

${results.date}, ${results.machine}. \`make bench-web\` measures again.

## Decoding

One frame in one worker, from the object's bytes to words for the GPU; medians. MB/s counts the planes, before zstd.
\`kinect-nfov\` is a frame of a real Azure Kinect, there where \`HOLOCAST_DATA\` is; the others are a ball before a wall with
sensor noise, which compresses worse.

| frame | points | layout | bytes/point | decode ms | of which zstd ms | MB/s |
| --- | ---: | --- | ---: | ---: | ---: | ---: |
${rows.join("\n")}

${real ? `Target: the real frame of ${real.points.toLocaleString("en")} points in layout A in ${TARGET_DECODE} ms; it takes **${round(real.decode, 1)} ms**.` : `The real frame is missing: \`HOLOCAST_DATA\` was not found.`}

## Pipeline

One camera, 30 frames a second. Publisher, relay, a second subscriber and the browser share the machine named above, which
also does the GPU's work: there is no graphics hardware. *Renderer only* has the same points in memory, uploads and draws them at
every chance, and receives nothing, while the other programs go on as before. The *overhead* is how many of its pictures are missing
when they are drawn of what arrives. Renderer only and live are measured in turn, live ${ROUNDS} times for ${SLICE * SLICES} s (${SLICE * SLOW_SLICES} s at 240 k points); medians.
Of the slices of ${SLICE} s those count in which the machine gave less than ${100 * OTHERS} % to other programs, as far as there are such. Target: ${TARGET_OVERHEAD} %.

The frame rate varies with what else the machine's host does, and a browser shows pictures at whole sixtieths of a second. Steadier is the CPU time that is missing for drawing: what *the viewer* takes
to receive, decode and hand over, and what *the relay* takes more, as it has a receiver more and sends on the same cores; both as shares of what the renderer alone
draws with. The relay's is in the overhead though it is not the viewer's work.

Where pictures are drawn more slowly than frames come, the viewer asks the relay to leave out those between (*declined*); what is received and
not drawn is skipped undecoded. Frame delay is capture to picture handed to the GPU, median / 95th percentile of the last five seconds.

| points | renderer only, fps | drawn live, fps | overhead | CPU: the viewer | the relay | received, fps | declined, fps | frame delay ms | decode ms |
| ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |
${lines.join("\n")}

${cpu.length > 0 ? `CPU time, ms a second, of ${1000 * cpus().length}: ${names.map((use) => `*${use}* is ${uses[use]}`).join("; ")}.

| points | | ${names.join(" | ")} |
| ---: | --- | ${names.map(() => "---:").join(" | ")} |
${cpu.join("\n")}
` : ""}`,
  );
}
