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
  /** Pictures a second with the points in memory, each drawn anew, and nothing else running. */
  readonly renderer_fps: number;
  /** The same while 30 frames a second are published, relayed, received and decoded on the same machine. */
  readonly rendered_fps: number;
  /** Distinct frames shown a second. */
  readonly fps: number;
  readonly received_fps: number;
  readonly overhead_percent: number;
  readonly frame_delay_ms: { readonly p50: number; readonly p95: number };
  readonly decode_ms: number;
}

const results: { machine: string; date: string; decode: Decode[]; pipeline: Pipeline[] } = {
  machine: `${cpus().length} × ${cpus()[0]?.model ?? "unknown"}, Chromium with software WebGL (SwiftShader), 960×640`,
  date: new Date().toISOString().slice(0, 10),
  decode: [],
  pipeline: [],
};

const ROUNDS = 3;
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
  for (const [width, height] of [[276, 248], [391, 352], [605, 544]] as const) {
    const size = ["--width", `${width}`, "--height", `${height}`];
    const p = await lab.publisher(port, "bench", ...size, "--fps", "30");
    const page = await lab.page();
    await page.goto(lab.link(port, "bench"));
    await page.waitForFunction(() => window.holocast !== undefined);
    await shows(page, 10, 60_000);
    const object = lab.publisherOutput(...size, "--object");
    const { words, points } = decoder.decode([object], { maxPoints: parseHeader(object).points });
    const text = Buffer.from(words.slice().buffer).toString("base64");
    // Turn and turn about, so that what else the machine does falls on both.
    const alone: number[] = [];
    const live: Awaited<ReturnType<typeof measure>>[] = [];
    for (let round = 0; round < ROUNDS; round++) {
      live.push(await measure(page, 5));
      p.freeze(true);
      alone.push(await rendererOnly(page, text, points));
      p.freeze(false);
      await new Promise((resolve) => setTimeout(resolve, 1000));
    }
    await p.stop();
    await page.close();
    const of = (f: (m: (typeof live)[number]) => number) => median(live.map(f));
    const rendered = of((m) => m.rendered);
    const renderer = median(alone);
    results.pipeline.push({
      points, renderer_fps: round(renderer), rendered_fps: round(rendered), fps: round(of((m) => m.fps)), received_fps: round(of((m) => m.received)),
      overhead_percent: round(100 * (1 - rendered / Math.min(renderer, 30))),
      frame_delay_ms: { p50: of((m) => m.p50), p95: of((m) => m.p95) }, decode_ms: of((m) => m.decode),
    });
  }
  await relay.stop();
  write();
});

/** The page's own figures over some seconds. */
async function measure(page: Page, seconds: number) {
  const samples = [];
  const first = await stats(page);
  const began = performance.now();
  for (let i = 0; i < seconds; i++) {
    await new Promise((resolve) => setTimeout(resolve, 1000));
    samples.push(await stats(page));
  }
  const last = samples.at(-1)!;
  const took = (performance.now() - began) / 1000;
  return {
    rendered: (last.pictures - first.pictures) / took, fps: (last.frames - first.frames) / took, received: median(samples.map((s) => s.received_fps)),
    p50: last.frame_delay_ms.p50, p95: last.frame_delay_ms.p95, decode: last.decode_ms.p50,
  };
}

/** Pictures a second when the same points are uploaded and drawn again at every chance. */
function rendererOnly(page: Page, words: string, points: number): Promise<number> {
  return page.evaluate(async ([text, n]) => {
    const words = new Uint32Array(Uint8Array.from(atob(text), (c) => c.charCodeAt(0)).buffer);
    const { studio } = window.holocast!;
    await new Promise((resolve) => setTimeout(resolve, 500));
    const times: number[] = [];
    const began = performance.now();
    await new Promise<void>((resolve) => {
      const again = () => {
        studio.upload(0, words, n, undefined);
        times.push(performance.now());
        if (performance.now() - began < 4000) requestAnimationFrame(again);
        else resolve();
      };
      again();
    });
    return ((times.length - 1) * 1000) / (times.at(-1)! - times[0]!);
  }, [words, points] as const);
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

One camera, 30 frames a second, publisher, relay and browser on the machine named above, which also does the GPU's work:
there is no graphics hardware. So the overhead is mostly that processors which decode, relay and publish do not draw meanwhile. *Renderer only* uploads and draws the same points again and again with nothing else running.
The two are measured in turn, three times; medians. Frame delay is capture to picture handed to the GPU, median / 95th percentile
of the last five seconds.

| points | renderer only, fps | drawn live, fps | overhead | received, fps | frame delay ms | decode ms |
| ---: | ---: | ---: | ---: | ---: | ---: | ---: |
${lines.join("\n")}
`,
  );
}
