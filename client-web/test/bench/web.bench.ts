/** Measures the viewer and writes docs/results/web.md and web.json. */
import { execFileSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { cpus, tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import type { Page } from "playwright-core";
import { afterAll, beforeAll, expect, it } from "vitest";
import { FrameDecoder } from "../../src/decode/frame.ts";
import { parseHeader } from "../../src/decode/header.ts";
import { Zstd } from "../../src/decode/zstd.ts";
import { freePort, Lab, repo, shows, stats } from "../e2e/lab.ts";
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
  readonly overhead_percent: number;
  readonly frame_delay_ms: { readonly p50: number; readonly p95: number };
  readonly decode_ms: number;
  /** What the medians are of. */
  readonly rounds: readonly { readonly renderer_fps: number; readonly rendered_fps: number }[];
}

const results: { machine: string; date: string; decode: Decode[]; pipeline: Pipeline[] } = {
  machine: `${cpus().length} × ${cpus()[0]?.model ?? "unknown"}, Chromium with software WebGL (SwiftShader), 960×640`,
  date: new Date().toISOString().slice(0, 10),
  decode: [],
  pipeline: [],
};

const ROUNDS = 3;
/** A slow renderer is watched for longer, so that one picture more or less does not count. */
const SECONDS = 4;
const SLOW_SECONDS = 10;
const median = (v: number[]): number => v.sort((a, b) => a - b)[v.length >> 1]!;
const round = (v: number, digits = 1): number => Number(v.toFixed(digits));

beforeAll(async () => {
  execFileSync("npx", ["vite", "build", "--config", "test/bench/page/vite.config.ts"], { cwd: root, stdio: "inherit" });
  await lab.open();
  lab.publisherOutput("--dump", frames);
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
    const alone: number[] = [];
    const live: Awaited<ReturnType<typeof measure>>[] = [];
    const seconds = points > 200_000 ? SLOW_SECONDS : SECONDS;
    for (let round = 0; round < ROUNDS; round++) {
      await open(page, lab.link(port, `still-${width}`), 1);
      await page.evaluate(rendererOnly, [text, points] as const);
      alone.push((await measure(page, seconds)).rendered);
      await open(page, lab.link(port, `live-${width}`), 10);
      live.push(await measure(page, seconds));
    }
    for (const p of programs) await p.stop();
    const of = (f: (m: (typeof live)[number]) => number) => median(live.map(f));
    const rendered = of((m) => m.rendered);
    const renderer = median(alone);
    results.pipeline.push({
      points, renderer_fps: round(renderer), rendered_fps: round(rendered), fps: round(of((m) => m.fps)), received_fps: round(of((m) => m.received)),
      overhead_percent: round(100 * (1 - rendered / Math.min(renderer, 30))),
      frame_delay_ms: { p50: of((m) => m.p50), p95: of((m) => m.p95) }, decode_ms: of((m) => m.decode),
      rounds: live.map((m, i) => ({ renderer_fps: round(alone[i]!), rendered_fps: round(m.rendered) })),
    });
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

/** The page's own figures over some seconds. */
async function measure(page: Page, seconds: number) {
  const first = await stats(page);
  const began = performance.now();
  const rendered = await page.evaluate(pictureRate, seconds);
  const last = await stats(page);
  const took = (performance.now() - began) / 1000;
  return {
    rendered, fps: (last.frames - first.frames) / took, received: (last.frames_received - first.frames_received) / took,
    p50: last.frame_delay_ms.p50, p95: last.frame_delay_ms.p95, decode: last.decode_ms.p50,
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
  const lines = results.pipeline.map(
    (p) =>
      `| ${p.points.toLocaleString("en")} | ${p.renderer_fps} | ${p.rendered_fps} | ${p.overhead_percent} % | ${p.received_fps} | ${p.frame_delay_ms.p50} / ${p.frame_delay_ms.p95} | ${p.decode_ms} |`,
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

## Pipeline

One camera, 30 frames a second. Publisher, relay, a second subscriber and the browser share the machine named above, which
also does the GPU's work: there is no graphics hardware. *Renderer only* has the same points in memory, uploads and draws them at
every chance, and receives nothing, while the other programs go on as before; so the overhead is what the viewer's own receiving and
decoding takes from its drawing. The two are measured in turn, ${ROUNDS} times for ${SECONDS} s each (${SLOW_SECONDS} s at 240 k points); medians. Where pictures are drawn more slowly than frames
come, the frames between are skipped undecoded. Frame delay is capture to picture handed to the GPU, median / 95th percentile of
the last five seconds.

| points | renderer only, fps | drawn live, fps | overhead | received, fps | frame delay ms | decode ms |
| ---: | ---: | ---: | ---: | ---: | ---: | ---: |
${lines.join("\n")}
`,
  );
}
