/** Measures the viewer and writes docs/results/web.md and web.json. */
import { execFileSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { cpus, loadavg, tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import type { Page } from "playwright-core";
import { afterAll, beforeAll, expect, it } from "vitest";
import { FrameDecoder } from "../../src/media/points/frame.ts";
import { parseHeader } from "../../src/media/points/header.ts";
import { Zstd } from "../../src/media/points/zstd.ts";
import { Cage } from "../e2e/cage.ts";
import { chromiumPath } from "../e2e/launch.ts";
import { freePort, hide, hideable, Lab, repo, shows, stats, type Program } from "../e2e/lab.ts";
import { cpuTime, elsewhere, used, uses, type Use } from "./cpu.ts";
import type { Result } from "./page/bench.worker.ts";

const root = fileURLToPath(new URL("../../", import.meta.url));
const lab = new Lab();
const frames = mkdtempSync(join(tmpdir(), "holocast-frames-"));

interface Decode extends Result {
  readonly frame: string;
  readonly layout: string;
  /** Megabytes of planes decoded per second. */
  readonly mb_per_s: number;
}

interface Pipeline {
  readonly points: number;
  /** Pictures per second when points in memory are uploaded and drawn on every animation frame. */
  readonly renderer_fps: number;
  /** Pictures per second of a live session with 30 frames per second. */
  readonly rendered_fps: number;
  /** Distinct frames shown per second. */
  readonly fps: number;
  readonly received_fps: number;
  /** Declined frames per second. */
  readonly declined_fps: number;
  /** Percentage of the renderer's pictures per second that a live session loses. */
  readonly overhead_percent: number;
  /** Twice the standard error of overhead_percent. */
  readonly overhead_error_percent: number;
  /** CPU time that a live session adds in the viewer, as a percentage of the CPU time for drawing. */
  readonly own_percent: number | null;
  /** CPU time that a live session takes in the relay, as a percentage of the CPU time for drawing. */
  readonly relay_percent: number | null;
  readonly frame_delay_ms: { readonly p50: number; readonly p95: number };
  readonly decode_ms: number;
  /** Pictures per second in each pair of slices, as measured. */
  readonly renderer_rounds: readonly number[];
  readonly rendered_rounds: readonly number[];
  /** CPU time, ms per second; null without /proc. */
  readonly cpu: { readonly renderer: Cpu; readonly live: Cpu } | null;
}

type Cpu = Readonly<Record<Use, number>>;

/** A viewer limited to a fifth of the CPU time it would use. */
interface Overload {
  readonly limited: string;
  /** Frames shown in WATCH seconds. */
  readonly shown: number;
  readonly frame_delay_ms: { readonly p50: number; readonly p95: number };
  readonly draw_ms: number;
  readonly drawn_share: number;
}

const VIEWPORT = { width: 960, height: 640 };
/** Seconds under the limit before frames are counted, and while they are. */
const ADAPT = 7;
const WATCH = 12;

interface Results {
  readonly machine: string;
  readonly date: string;
  readonly decode: Decode[];
  /** Decoding layout W: points and mean bytes of a frame, median and 95th percentile in ms, and the machine's load. */
  group?: {
    readonly points: number;
    readonly bytes: number;
    readonly decode: number;
    readonly p95: number;
    readonly load: number;
  };
  readonly pipeline: Pipeline[];
  readonly overload: Overload[];
  /** From opening the page to its first picture, median. */
  first_frame_ms: number | null;
}

const results: Results = {
  machine:
    `${cpus().length} × ${cpus()[0]?.model ?? "unknown"}, Chromium with software WebGL (SwiftShader), ` +
    `${VIEWPORT.width}×${VIEWPORT.height}`,
  date: new Date().toISOString().slice(0, 10),
  decode: [],
  pipeline: [],
  overload: [],
  first_frame_ms: null,
};

/**
 * Pairs of slices, renderer alone and live, in alternating order, since the speed of a shared machine changes within
 * seconds but is similar in adjacent slices. Durations are in seconds. Live drawing takes longer to become steady.
 */
const PAIRS = 30;
const SLICE = 4;
const SETTLE = { alone: 0.5, live: 1.2 } as const;
const sleep = (seconds: number) => new Promise((resolve) => setTimeout(resolve, 1000 * seconds));
const median = (v: number[]): number => v.sort((a, b) => a - b)[v.length >> 1]!;
/** Targets: milliseconds to decode a real frame, and overhead in percent of the renderer's pictures. */
const TARGET_DECODE = 6;
/** Milliseconds to decode a frame of layout W. */
const TARGET_VIDEO = 5;
/** Times that the group of layout W is decoded. */
const GROUPS = 4;
const TARGET_OVERHEAD = 10;
/** A pair is repeated if other programs use more than this share of the CPU time. */
const OTHERS = 0.03;
/** Number of pairs that may be repeated. */
const SPARE = PAIRS / 2;
const percent = (v: number | null): string => (v === null ? "unknown" : `${v.toFixed(1).replace("-", "−")} %`);
const round = (v: number, digits = 1): number => Number(v.toFixed(digits));

beforeAll(async () => {
  for (const pages of ["bench", "e2e"])
    execFileSync("npx", ["vite", "build", "--config", `test/${pages}/page/vite.config.ts`], { cwd: root, stdio: "inherit" });
  await lab.open();
  lab.publisherOutput("--dump", frames, "--data", resolve(repo, process.env["HOLOCAST_DATA"] || "../shared/data"));
});

afterAll(async () => {
  if (results.pipeline.length > 0) write();
  await lab.close();
  rmSync(frames, { recursive: true, force: true });
});

it("measures decoding in a worker", async () => {
  const page = await lab.page();
  await page.goto(`http://127.0.0.1:${lab.webPort}/bench/index.html`);
  await page.waitForFunction(() => window.bench !== undefined);
  for (const file of readdirSync(frames).sort()) {
    const [, frame, layout] = /^(.*)-([abc])\.hcpf$/.exec(file) ?? [];
    if (!frame) continue; // part of a group
    const object = readFileSync(join(frames, file));
    const r = await page.evaluate(([o, n]) => window.bench(o, n), [
      object.toString("base64"),
      object.length > 4e6 ? 15 : 41,
    ] as const);
    results.decode.push({
      ...r,
      frame,
      layout: layout!.toUpperCase(),
      mb_per_s: round(r.raw / r.decode / 1000),
    });
  }
  await page.close();
  expect(results.decode.length).toBeGreaterThanOrEqual(9);
});

it("measures decoding a group of layout W in a worker", async ({ skip }) => {
  const files = readdirSync(frames).filter((f) => /-w-\d+\.hcpf$/.test(f)).sort();
  const objects = files.map((f) => readFileSync(join(frames, f)));
  if (objects.length === 0) return skip("no recording in HOLOCAST_DATA");
  const page = await lab.page();
  await page.goto(`http://127.0.0.1:${lab.webPort}/points/index.html`);
  await page.waitForFunction(() => window.decodeVideo !== undefined);
  const h = parseHeader(objects[0]!, true);
  const text = objects.map((o) => o.toString("base64"));
  const group = Array.from({ length: GROUPS }, () => text).flat();
  const { times, error } = await page.evaluate(async ([o, w, h]) => {
    const { times, error } = await window.decodeVideo(o, w, h);
    return { times, error };
  }, [group, h.width, h.height] as const);
  expect(error).toBeUndefined();
  const bytes = objects.reduce((n, o) => n + o.length, 0) / objects.length;
  const decode = median(times.slice(1)); // the first opens the decoders
  const p95 = times.slice(1).sort((a, b) => a - b)[Math.floor(0.95 * (times.length - 1))]!;
  results.group = { points: h.points, bytes: round(bytes, 0), decode, p95, load: round(loadavg()[0]!) };
  console.log(JSON.stringify(times.map((t) => round(t, 2))), inWords(results.group));
  await page.close();
});

it("compares a live session with the renderer alone", async () => {
  const port = await freePort();
  const relay = await lab.relay(port);
  const wasm = (name: string) => readFileSync(join(root, "src/media/points", name));
  const decoder = await FrameDecoder.create(wasm("planes.wasm"), await Zstd.create(wasm("zstd.wasm")));
  const page = await lab.page(hideable);
  await page.setViewportSize(VIEWPORT);
  for (const [width, height] of [[276, 248], [391, 352], [605, 544]] as const) {
    const size = ["--width", `${width}`, "--height", `${height}`];
    // Publishing, relaying and a second subscriber are the same in both measurements.
    const programs = [
      await lab.publisher(port, `live-${width}`, ...size, "--fps", "30"),
      await lab.watcher(port, `live-${width}`),
    ];
    const object = lab.publisherOutput(...size, "--object");
    const { words, points } = decoder.decode([object], { maxPoints: parseHeader(object).points });
    await page.goto(lab.link(port, `live-${width}`));
    await shows(page, 10);
    await page.evaluate(drawsAgain, [Buffer.from(words.slice().buffer).toString("base64"), points] as const);
    const pairs: Pair[] = [];
    for (let n = 0; n < PAIRS + SPARE && pairs.filter(quiet).length < PAIRS; n++) {
      const first = n % 2 === 0 ? "alone" : "live";
      const a = await slice(page, first);
      const b = await slice(page, first === "alone" ? "live" : "alone");
      pairs.push(first === "alone" ? { alone: a, live: b } : { alone: b, live: a });
    }
    for (const p of programs) await p.stop();
    results.pipeline.push(compare(points, pairs.sort((a, b) => busy(a) - busy(b)).slice(0, PAIRS)));
    console.log(JSON.stringify(results.pipeline.at(-1)));
  }
  await page.close();
  await relay.stop();
});

it("measures the time to the first picture", async () => {
  const port = await freePort();
  const relay = await lab.relay(port);
  await lab.publisher(port, "first", "--width", "391", "--height", "352");
  const times: number[] = [];
  for (let i = 0; i < 11; i++) {
    const page = await lab.page();
    await page.setViewportSize(VIEWPORT);
    await page.goto(lab.link(port, "first"));
    times.push((await shows(page)).first_frame_ms!);
    await page.close();
  }
  results.first_frame_ms = round(median(times), 0);
  await relay.stop();
});

it.runIf(process.getuid?.() === 0)("measures delays with a fifth of the CPU time", async () => {
  const cage = new Cage(chromiumPath);
  const limited = new Lab(cage.executable);
  await limited.open();
  try {
    const port = await freePort();
    await limited.relay(port);
    await limited.publisher(port, "busy", "--width", "391", "--height", "352", "--fps", "30");
    const receipts = await limited.receipts(port, "busy");
    for (const gpu of [false, true]) results.overload.push(await overload(limited, cage, port, receipts, gpu));
  } finally {
    await limited.close();
    cage.close();
  }
});

async function overload(from: Lab, cage: Cage, port: number, receipts: Program, gpu: boolean): Promise<Overload> {
  const page = await from.page();
  await page.setViewportSize(VIEWPORT);
  await page.goto(from.link(port, "busy"));
  await shows(page, 60);
  const cores = 0.2 * (await cage.uses(gpu, 4));
  if (gpu) cage.limitGPU(cores);
  else cage.limit(cores);
  await sleep(ADAPT);
  receipts.output = "";
  await sleep(WATCH);
  const delays = [...receipts.output.matchAll(/^receipt \S+ 0 \d+ (-?\d+)$/gm)]
    .map((m) => Number(m[1]) / 1000)
    .sort((a, b) => a - b);
  const percentile = (q: number) => round(delays[Math.max(0, Math.ceil(q * delays.length) - 1)] ?? NaN, 0);
  const s = await stats(page);
  cage.limit(Infinity);
  if (gpu) cage.limitGPU(Infinity);
  await page.close();
  return {
    limited: gpu ? "GPU process" : "browser",
    shown: delays.length,
    frame_delay_ms: { p50: percentile(0.5), p95: percentile(0.95) },
    draw_ms: s.draw_ms,
    drawn_share: s.drawn_share,
  };
}

type Mode = keyof typeof SETTLE;
type Measured = Awaited<ReturnType<typeof slice>>;
type Pair = Readonly<Record<Mode, Measured>>;

/** The share of the CPU time that other programs used in a pair: the larger of its two slices. */
const busy = (p: Pair): number =>
  Math.max(...[p.alone, p.live].map((m) => (m.cpu ? elsewhere(m.cpu) / (1000 * cpus().length) : 0)));
const quiet = (p: Pair): boolean => busy(p) < OTHERS;

async function slice(page: Page, mode: Mode) {
  await hide(page, mode === "alone"); // a hidden page receives nothing
  await page.evaluate((on) => void (window.drawAgain = on), mode === "alone");
  await new Promise((resolve) => setTimeout(resolve, 1000 * SETTLE[mode]));
  const first = await stats(page);
  const before = cpuTime();
  const began = performance.now();
  const rendered = await page.evaluate(pictureRate, SLICE);
  const took = (performance.now() - began) / 1000;
  const cpu = used(before, cpuTime(), took);
  const last = await stats(page);
  const rate = (count: (s: typeof last) => number) => (count(last) - count(first)) / took;
  return {
    rendered,
    cpu,
    fps: rate((s) => s.frames),
    received: rate((s) => s.frames_received),
    declined: rate((s) => s.frames_declined),
    p50: last.frame_delay_ms.p50,
    p95: last.frame_delay_ms.p95,
    decode: last.decode_ms.p50,
  };
}

function compare(points: number, pairs: readonly Pair[]): Pipeline {
  const mean = (mode: Mode, f: (m: Measured) => number, of = pairs) =>
    of.reduce((n, p) => n + f(p[mode]), 0) / of.length;
  const overhead = (of: readonly Pair[]) =>
    100 * (1 - mean("live", (m) => m.rendered, of) / mean("alone", (m) => Math.min(m.rendered, 30), of));
  const means = (mode: Mode) =>
    Object.fromEntries(
      (Object.keys(uses) as Use[]).map((use) => [
        use,
        round(
          mean(mode, (m) => m.cpu![use]),
          0,
        ),
      ]),
    ) as Cpu;
  const cpu = pairs.every((p) => p.alone.cpu && p.live.cpu) ? { renderer: means("alone"), live: means("live") } : null;
  const more = (...list: Use[]) =>
    cpu
      ? round((100 * list.reduce((n, use) => n + cpu.live[use] - cpu.renderer[use], 0)) / cpu.renderer.drawing)
      : null;
  const middle = (f: (m: Measured) => number) => median(pairs.map((p) => f(p.live)));
  return {
    points,
    renderer_fps: round(mean("alone", (m) => m.rendered)),
    rendered_fps: round(mean("live", (m) => m.rendered)),
    fps: round(mean("live", (m) => m.fps)),
    received_fps: round(mean("live", (m) => m.received)),
    declined_fps: round(mean("live", (m) => m.declined)),
    overhead_percent: round(overhead(pairs)),
    overhead_error_percent: round(2 * jackknife(pairs, overhead)),
    own_percent: more("page", "workers", "network"),
    relay_percent: more("relay"),
    frame_delay_ms: { p50: middle((m) => m.p50), p95: middle((m) => m.p95) },
    decode_ms: round(middle((m) => m.decode)),
    renderer_rounds: pairs.map((p) => round(p.alone.rendered)),
    rendered_rounds: pairs.map((p) => round(p.live.rendered)),
    cpu,
  };
}

/** Standard error of a statistic by the jackknife (Tukey). */
function jackknife<T>(samples: readonly T[], figure: (of: readonly T[]) => number): number {
  const n = samples.length;
  const without = samples.map((_, i) => figure(samples.filter((_, k) => k !== i)));
  const mean = without.reduce((a, b) => a + b) / n;
  return Math.sqrt(((n - 1) / n) * without.reduce((sum, v) => sum + (v - mean) ** 2, 0));
}

/** Pictures per second, measured over `seconds`. */
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

declare global {
  interface Window {
    /** Upload and draw the points in memory on every animation frame. */
    drawAgain: boolean;
  }
}

function drawsAgain([text, points]: readonly [string, number]): void {
  const words = new Uint32Array(Uint8Array.from(atob(text), (c) => c.charCodeAt(0)).buffer);
  const again = () => {
    if (window.drawAgain) window.holocast!.studio.upload(0, words, points, undefined);
    requestAnimationFrame(again);
  };
  again();
}

const inWords = ({ points, bytes, decode, p95, load }: NonNullable<Results["group"]>): string =>
  `A frame of layout W, depth and color of 640 × 576 pixels, takes **${round(decode, 1)} ms**, and ${round(p95, 1)} ms at ` +
  `the 95th percentile: ${GROUPS} groups of recorded frames of the same camera (${points.toLocaleString("en")} points, ` +
  `${round(bytes / points, 2)} bytes/point), without the first frame, which opens the decoders. Chromium decodes H.264 ` +
  `with WebCodecs in software here, and the machine's load was ${load}. Target: ${TARGET_VIDEO} ms.`;

function write(): void {
  const out = join(repo, "docs/results");
  mkdirSync(out, { recursive: true });
  writeFileSync(join(out, "web.json"), `${JSON.stringify(results, undefined, 2)}\n`);
  const { first_frame_ms, overload } = results;
  const row = (...cells: readonly (string | number)[]): string => `| ${cells.join(" | ")} |`;
  const count = (n: number): string => n.toLocaleString("en");
  const rows = results.decode.map((d) =>
    row(
      d.frame,
      count(d.points),
      d.layout,
      round(d.bytes / d.points, 2),
      round(d.decode, 2),
      round(d.zstd, 2),
      d.mb_per_s,
    ),
  );
  const real = results.decode.find((d) => d.frame === "kinect-nfov" && d.layout === "A");
  const verdict = real
    ? `Target: ${TARGET_DECODE} ms for the real frame of ${count(real.points)} points in layout A. ` +
      `Measured: **${round(real.decode, 1)} ms**.`
    : "The real frame is missing: `HOLOCAST_DATA` was not found.";
  const video = results.group ? `\n\n${inWords(results.group)}` : "";
  const delay = ({ p50, p95 }: { readonly p50: number; readonly p95: number }) => `${round(p50, 0)} / ${round(p95, 0)}`;
  const lines = results.pipeline.map((p) =>
    row(
      count(p.points), p.renderer_fps, p.rendered_fps, `${percent(p.overhead_percent)} ± ${p.overhead_error_percent}`,
      percent(p.own_percent), percent(p.relay_percent), p.received_fps, p.declined_fps, delay(p.frame_delay_ms),
      p.decode_ms,
    ),
  );
  const names = Object.keys(uses) as Use[];
  const cpu = results.pipeline.flatMap(({ points, cpu }) =>
    cpu
      ? (["renderer", "live"] as const).map((k) =>
          row(count(points), k === "live" ? "live" : "renderer only", ...names.map((use) => cpu[k][use])),
        )
      : [],
  );
  const columns = [
    "points", "renderer only, fps", "drawn live, fps", "overhead", "CPU: the viewer", "the relay", "received, fps",
    "declined, fps", "frame delay ms", "decode ms",
  ];
  const overloaded = overload.map((o) =>
    row(o.limited, o.shown, delay(o.frame_delay_ms), o.draw_ms, percent(100 * o.drawn_share)),
  );
  writeFileSync(
    join(out, "web.md"),
    `# Web viewer

${results.date}, ${results.machine}. \`make bench-web\` measures again.

## Decoding

Time to decode a frame in a worker, from the object's bytes to words for the GPU; medians. MB/s counts
uncompressed planes. \`kinect-nfov\` is a frame of an Azure Kinect, if \`HOLOCAST_DATA\` has one. The other
frames show a ball in front of a wall with sensor noise, which compresses worse.

| frame | points | layout | bytes/point | decode ms | of which zstd ms | MB/s |
| --- | ---: | --- | ---: | ---: | ---: | ---: |
${rows.join("\n")}

${verdict}${video}

## Pipeline

One camera, 30 frames per second. Publisher, relay, a second subscriber and the browser share the machine named
above, which also renders in software. *Renderer only* uploads and draws the same points from memory on every
animation frame and receives nothing, while the other programs continue. The *overhead* is the share of its
pictures that a live session lacks. Target: ${TARGET_OVERHEAD} %.

One page alternates between both, in ${PAIRS} pairs of ${SLICE} s each: the speed of a shared machine changes
within seconds, but is similar in adjacent slices. Figures are means; the overhead has twice its standard error
(jackknife over the pairs). Pairs in which other programs used more than ${100 * OTHERS} % of the machine are
repeated, up to ${SPARE} times.

The table also lists the CPU time taken from drawing: by *the viewer* to receive, decode and hand over frames,
and by *the relay*, which serves one more receiver on the same cores; both as a share of the renderer's drawing
time. The overhead includes the relay's share.

If a page draws more slowly than frames arrive, the viewer asks the relay to leave out frames (*declined*).
Frames received but not drawn are skipped undecoded. Frame delay is capture to submission of the picture: median
/ 95th percentile of the last five seconds.

${row(...columns)}
${row(...columns.map(() => "---:"))}
${lines.join("\n")}

${
  cpu.length > 0
    ? `CPU time, ms per second, of ${1000 * cpus().length}:
${names.map((use) => `*${use}* is ${uses[use]}`).join(";\n")}.

| points | | ${names.join(" | ")} |
| ---: | --- | ${names.map(() => "---:").join(" | ")} |
${cpu.join("\n")}
` : ""}
${first_frame_ms === null ? "" : `## First picture

From opening the page to the first picture of a session with ${count(391 * 352)} pixels per frame:
${first_frame_ms} ms (median of 11).
`}
${overload.length === 0 ? "" : `## Too little CPU time

A cgroup limits the browser, or its GPU process, to a fifth of the CPU time it would use for 30 frames per second.
After ${ADAPT} s, for ${WATCH} s:

| limited | frames shown | frame delay ms, median / 95th percentile | last picture drawn in, ms | points drawn |
| --- | ---: | ---: | ---: | ---: |
${overloaded.join("\n")}
`}`,
  );
}
