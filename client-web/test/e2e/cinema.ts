/** Tiled 360° video for tests: generated films, published by the capture server, and pages that show them. */
import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Page } from "playwright-core";
import { afterAll, beforeAll } from "vitest";
import type { VideoStats } from "../../src/ui/video.ts";
import { Fixture } from "./fixture.ts";
import { stats, until, type Program } from "./lab.ts";
import type { Picture } from "./picture.ts";

/** Small, as the GPU is emulated and the sphere fills the picture. */
const VIDEO_VIEWPORT = { width: 384, height: 256 };
const WIDTH = 1280;
const HEIGHT = 640;

/** A still image: a smooth colour gradient with a fine checkerboard that only tiles can resolve; size in pixels. */
export function scene(size: number): string {
  const still = "128+70*sin(2*PI*X/W)";
  const checks = `24*(2*mod(floor(X/${size})+floor(Y/${size}),2)-1)`;
  return `geq=r='${still}+${checks}':g='128+70*cos(4*PI*X/W)+${checks}':b='40+170*Y/H+${checks}'`;
}

export interface Coding {
  readonly matrix: "bt709" | "smpte170m";
  readonly full?: boolean;
}

/** A film of one still image, and the image's pixels. */
export interface VideoPlayback {
  readonly file: string;
  readonly picture: Picture;
}

/** Fixture with films. */
export class Cinema extends Fixture {
  readonly folder = mkdtempSync(join(tmpdir(), "holocast-film-"));
  mono!: VideoPlayback;

  constructor() {
    super();
    beforeAll(() => {
      this.mono = this.film("mono", WIDTH, HEIGHT, scene(5));
    });
    afterAll(() => rmSync(this.folder, { recursive: true, force: true }));
  }

  /** Encodes a still image, made by ffmpeg filters, as a film. */
  film(
    name: string,
    width: number,
    height: number,
    filter: string,
    { matrix, full }: Coding = { matrix: "bt709" },
  ): VideoPlayback {
    const file = join(this.folder, `${name}.mp4`);
    const input = [
      "-v",
      "error",
      "-f",
      "lavfi",
      "-i",
      `color=gray:size=${width}x${height}:rate=10`,
      "-vf",
      `format=rgb24,${filter}`,
    ];
    const rgba = execFileSync("ffmpeg", [...input, "-frames:v", "1", "-f", "rawvideo", "-pix_fmt", "rgba", "-"], {
      maxBuffer: 64 << 20,
    });
    const one = join(this.folder, `${name}.png`);
    execFileSync("ffmpeg", [...input, "-frames:v", "1", one]);
    execFileSync("ffmpeg", [
      "-v",
      "error",
      "-loop",
      "1",
      "-framerate",
      "10",
      "-i",
      one,
      "-t",
      "6",
      "-vf",
      `scale=out_color_matrix=${matrix}:out_range=${full ? "pc" : "tv"}`,
      "-colorspace",
      matrix,
      "-c:v",
      "libx264",
      "-preset",
      "veryfast",
      "-crf",
      "10",
      "-pix_fmt",
      full ? "yuvj420p" : "yuv420p",
      file,
    ]);
    return { file, picture: { width, height, rgba: new Uint8Array(rgba) } };
  }

  async publish(session: string, file: string, ...args: string[]): Promise<Program> {
    const p = this.lab.program(
      "capture-server",
      "--source",
      `equirect:${file}`,
      "--grid",
      "4x2",
      "--qualities",
      "2",
      ...args,
      `moqt://127.0.0.1:${this.port}/${session}`,
    );
    this.open.push(p);
    await p.says(/publishing/);
    return p;
  }

  async watch(session: string, extra = "", init?: string): Promise<Page> {
    const page = await this.view(this.lab.link(this.port, session, extra), init);
    await page.setViewportSize(VIDEO_VIEWPORT);
    await until("video", async () => ((await video(page))?.pictures ?? 0) > 3);
    return page;
  }
}

export const video = async (page: Page): Promise<VideoStats | null> => (await stats(page)).video;
export const sharp = (page: Page): Promise<VideoStats> =>
  until("sharp video", async () => {
    const v = (await video(page))!;
    return v.viewport_quality > 0.45 ? v : undefined;
  });

/** Sets the view direction: degrees to the right and up. */
export const turn = (page: Page, yaw: number, pitch: number): Promise<void> =>
  page.evaluate(([y, p]) => {
    const { studio } = window.holocast!;
    const d = studio.camera.position.clone().set(Math.sin(y) * Math.cos(p), Math.sin(p), -Math.cos(y) * Math.cos(p));
    studio.controls.lookAlong(d);
  }, [(yaw * Math.PI) / 180, (pitch * Math.PI) / 180] as const);
