/** 360° video in tiles: films of our own, cut and encoded by the capture server. */
import { execFileSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import type { Page } from "playwright-core";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import type { VideoStats } from "../../src/ui/video.ts";
import { freePort, hide, hideable, Lab, repo, shows, stats, until, type Program } from "./lab.ts";
import { canvasPicture, type Picture } from "./picture.ts";

const lab = new Lab();
const folder = mkdtempSync(join(tmpdir(), "holocast-film-"));
let port: number;
let relay: Program;
const open: (Page | Program)[] = [];
const WIDTH = 1280;
const HEIGHT = 640;
const images = process.env["PICTURES"] ?? `${repo}client-web/test/out`;

/** A still: colours that change slowly over the sphere, and fine checks everywhere, which only tiles can show. */
const still = "128+70*sin(2*PI*X/W)";
const checks = "24*(2*mod(floor(X/5)+floor(Y/5),2)-1)";
const scene = `geq=r='${still}+${checks}':g='128+70*cos(4*PI*X/W)+${checks}':b='40+170*Y/H+${checks}'`;

interface Coding {
  readonly matrix: "bt709" | "smpte170m";
  readonly full?: boolean;
}

/** Encodes seconds of a still that filters make; returns the file, and the still's pixels, R G B. */
function film(name: string, width: number, height: number, filter: string, { matrix, full }: Coding = { matrix: "bt709" }): { file: string; picture: Picture } {
  const file = join(folder, `${name}.mp4`);
  const input = ["-v", "error", "-f", "lavfi", "-i", `color=gray:size=${width}x${height}:rate=10`, "-vf", `format=rgb24,${filter}`];
  const rgba = execFileSync("ffmpeg", [...input, "-frames:v", "1", "-f", "rawvideo", "-pix_fmt", "rgba", "-"], { maxBuffer: 64 << 20 });
  const one = join(folder, `${name}.png`);
  execFileSync("ffmpeg", [...input, "-frames:v", "1", one]);
  execFileSync("ffmpeg", ["-v", "error", "-loop", "1", "-framerate", "10", "-i", one, "-t", "6", "-vf", `scale=out_color_matrix=${matrix}:out_range=${full ? "pc" : "tv"}`, "-colorspace", matrix, "-c:v", "libx264", "-preset", "veryfast", "-crf", "10", "-pix_fmt", full ? "yuvj420p" : "yuv420p", file]);
  return { file, picture: { width, height, rgba: new Uint8Array(rgba) } };
}

/** Seconds of grey, each brighter than the one before, and a tone in every other one. */
const GREYS = 8;
const grey = (second: number): number => 30 + 25 * second;
function steps(): string {
  const file = join(folder, "steps.mp4");
  execFileSync("ffmpeg", [
    "-v", "error", "-f", "lavfi", "-i", "color=gray:size=640x320:rate=10", "-f", "lavfi", "-i", "aevalsrc='0.5*sin(2*PI*440*t)*lt(mod(t,2),1)':s=48000",
    "-t", `${GREYS}`, "-vf", `geq=lum='${grey(0)}+25*floor(T+0.01)':cb=128:cr=128`, "-c:v", "libx264", "-crf", "10", "-pix_fmt", "yuv420p", "-c:a", "aac", file,
  ]);
  return file;
}

let mono: ReturnType<typeof film>;

beforeAll(async () => {
  mono = film("mono", WIDTH, HEIGHT, scene);
  await lab.open();
  port = await freePort();
  relay = await lab.relay(port);
});
afterEach(async () => {
  for (const x of open.splice(0)) await ("close" in x ? x.close() : x.stop());
});
afterAll(async () => {
  await lab.close();
  rmSync(folder, { recursive: true, force: true });
});

async function publish(session: string, file: string, ...args: string[]): Promise<Program> {
  const p = lab.program("capture-server", "--source", `equirect:${file}`, "--grid", "4x2", "--qualities", "2", ...args, `moqt://127.0.0.1:${port}/${session}`);
  open.push(p);
  await p.says(/publishing/);
  return p;
}

async function watch(session: string, extra = "", init?: string): Promise<Page> {
  const page = await lab.page(init);
  open.push(page);
  await page.goto(lab.link(port, session, extra));
  await page.waitForFunction(() => window.holocast !== undefined);
  await until("the sphere", async () => ((await video(page))?.pictures ?? 0) > 3, 60_000);
  return page;
}

const video = async (page: Page): Promise<VideoStats | null> => (await stats(page)).video;
const sharp = (page: Page): Promise<VideoStats> =>
  until("a sharp view", async () => {
    const v = (await video(page))!;
    return v.viewport_quality > 0.45 ? v : undefined;
  }, 60_000);

/** Turns the head: degrees to the right and up. */
const turn = (page: Page, yaw: number, pitch: number): Promise<void> =>
  page.evaluate(([y, p]) => {
    const { studio } = window.holocast!;
    const d = studio.camera.position.clone().set(Math.sin(y) * Math.cos(p), Math.sin(p), -Math.cos(y) * Math.cos(p));
    studio.controls.lookAlong(d);
  }, [(yaw * Math.PI) / 180, (pitch * Math.PI) / 180] as const);

/** What a viewer sees of an equirectangular picture, pixel by pixel. */
function reference(of: Picture, yaw: number, pitch: number, width: number, height: number, fov = 66): Picture {
  const rgba = new Uint8Array(4 * width * height).fill(255);
  const t = Math.tan((fov * Math.PI) / 360);
  const [sy, cy, sp, cp] = [Math.sin((yaw * Math.PI) / 180), Math.cos((yaw * Math.PI) / 180), Math.sin((pitch * Math.PI) / 180), Math.cos((pitch * Math.PI) / 180)];
  for (let v = 0; v < height; v++) {
    for (let u = 0; u < width; u++) {
      const x = t * ((2 * (u + 0.5)) / width - 1) * (width / height);
      const y = t * (1 - (2 * (v + 0.5)) / height);
      const [dx, dy, dz] = [x * cy + (cp - y * sp) * sy, sp + y * cp, (cp - y * sp) * cy - x * sy];
      const px = (Math.atan2(dx, dz) / (2 * Math.PI) + 0.5) * of.width - 0.5;
      const py = (0.5 - Math.asin(dy / Math.hypot(dx, dy, dz)) / Math.PI) * of.height - 0.5;
      const [x0, y0] = [Math.floor(px), Math.floor(py)];
      const at = (i: number, j: number, c: number) => of.rgba[4 * (Math.max(0, Math.min(of.height - 1, j)) * of.width + ((i + of.width) % of.width)) + c]!;
      for (let c = 0; c < 3; c++) {
        const a = at(x0, y0, c) + (px - x0) * (at(x0 + 1, y0, c) - at(x0, y0, c));
        const b = at(x0, y0 + 1, c) + (px - x0) * (at(x0 + 1, y0 + 1, c) - at(x0, y0 + 1, c));
        rgba[4 * (v * width + u) + c] = a + (py - y0) * (b - a);
      }
    }
  }
  return { width, height, rgba };
}

/** The greatest difference of a region's mean colour, and the share of the reference's detail that is there: of the regions, the least and the mean. */
function judge(got: Picture, want: Picture, region = 64): { worst: number; least: number; detail: number } {
  let worst = 0;
  const shares: number[] = [];
  for (let y = 0; y + region <= got.height; y += region) {
    for (let x = 0; x + region <= got.width; x += region) {
      let both = 0;
      let power = 0;
      for (let c = 0; c < 3; c++) {
        const of = (p: Picture, mean = 0) => {
          const list = [];
          for (let v = y; v < y + region; v++) for (let u = x; u < x + region; u++) list.push(p.rgba[4 * (v * p.width + u) + c]! - mean);
          return list;
        };
        const mean = (l: number[]) => l.reduce((a, b) => a + b, 0) / l.length;
        const [g, w] = [of(got), of(want)];
        const [mg, mw] = [mean(g), mean(w)];
        worst = Math.max(worst, Math.abs(mg - mw));
        g.forEach((a, i) => {
          both += (a - mg) * (w[i]! - mw);
          power += (w[i]! - mw) ** 2;
        });
      }
      shares.push(both / power);
    }
  }
  return { worst, least: Math.min(...shares), detail: shares.reduce((a, b) => a + b, 0) / shares.length };
}

describe("360° video", () => {
  it("looks like its source wherever one looks, and sharpens where the head turns to", async () => {
    await publish("sphere", mono.file);
    const page = await watch("sphere");
    mkdirSync(images, { recursive: true });
    for (const [yaw, pitch] of [[0, 0], [95, 10], [-150, -20], [180, 0], [30, 70]] as const) {
      await turn(page, yaw, pitch);
      const blurred = judge(await canvasPicture(page), reference(mono.picture, yaw, pitch, 960, 640));
      const v = await sharp(page);
      await new Promise((resolve) => setTimeout(resolve, 600));
      const d = judge(await canvasPicture(page), reference(mono.picture, yaw, pitch, 960, 640));
      console.log(JSON.stringify({ yaw, pitch, blurred, d, motion: v.motion_to_quality_ms, hits: v.tile_hits, tiles: v.tiles.join(), messages: v.tile_messages }));
      expect(blurred.worst, `${yaw}, ${pitch}: at once, the sphere beneath`).toBeLessThan(40);
      expect(d.worst, `${yaw}, ${pitch}`).toBeLessThan(10);
      expect(d.detail, `${yaw}, ${pitch}`).toBeGreaterThan(0.5);
    }
    const v = (await video(page))!;
    expect(v.bad).toBe(0);
    await page.screenshot({ path: `${images}/web-360.png` });
  });

  // Each of a size for which players assume the other standard.
  it.each<[string, number, Coding]>([
    ["BT.601", 1280, { matrix: "smpte170m" }],
    ["BT.709", 640, { matrix: "bt709" }],
    ["BT.601 of full range", 1280, { matrix: "smpte170m", full: true }],
  ])("has the right colours of a film in %s", async (name, width, coding) => {
    const bars = [[200, 40, 40], [40, 190, 40], [50, 60, 210]] as const;
    const third = (c: number) => `if(lt(X,W/3),${bars[0][c]},if(lt(X,2*W/3),${bars[1][c]},${bars[2][c]}))`;
    const { file } = film(`bars-${width}-${coding.full}`, width, width / 2, `geq=r='${third(0)}':g='${third(1)}':b='${third(2)}'`, coding);
    const session = `colours-${width}-${coding.full}`;
    await publish(session, file);
    const page = await watch(session);
    for (const [i, yaw] of [-120, 0, 120].entries()) {
      await turn(page, yaw, 0);
      for (const seen of ["tiles", "the sphere beneath"]) {
        await sharp(page);
        await page.evaluate((tiles) => {
          const sphere = window.holocast!.studio.sphere!;
          const show = Object.getPrototypeOf(sphere).show as typeof sphere.show;
          sphere.show = (tile, there) => show.call(sphere, tile, tiles && there);
          if (!tiles) for (let t = 0; t < 8; t++) sphere.show(t, false);
        }, seen === "tiles");
        await new Promise((resolve) => setTimeout(resolve, 500));
        const shown = await canvasPicture(page);
        const at = 4 * ((shown.height >> 1) * shown.width + (shown.width >> 1));
        const rgb = [...shown.rgba.subarray(at, at + 3)];
        console.log(name, seen, rgb.join(), "for", bars[i]!.join());
        rgb.forEach((v, c) => expect(Math.abs(v - bars[i]![c]!), `${seen}: ${rgb.join()} for ${bars[i]!.join()}`).toBeLessThan(9));
      }
    }
  });

  it("asks for what is looked at where not everything fits, and again when the head turns", async () => {
    await publish("turn", mono.file, "--grid", "8x4");
    const page = await watch("turn", "&rate=1.2");
    const before = await sharp(page);
    expect(before.tiles.filter((q) => q >= 0).length, before.tiles.join()).toBeLessThan(24);
    await turn(page, 170, 0);
    await until("a view that is not sharp", async () => (await video(page))!.viewport_quality < 0.4);
    await sharp(page);
    const after = await until("the time it took", async () => {
      const v = (await video(page))!;
      return v.motion_to_quality_ms !== null && v.viewport_quality > 0.45 ? v : undefined;
    }, 60_000);
    console.log(JSON.stringify({ motion: after.motion_to_quality_ms, before: before.tiles.join(), after: after.tiles.join(), messages: after.tile_messages }));
    const d = judge(await canvasPicture(page), reference(mono.picture, 170, 0, 960, 640));
    expect(d.detail).toBeGreaterThan(0.4);
  });

  it("shows the sphere where a tile never comes", async () => {
    await publish("missing", mono.file);
    const page = await watch("missing");
    await sharp(page);
    const whole = await until("all of the view to be sharp", async () => {
      const d = judge(await canvasPicture(page), reference(mono.picture, 0, 0, 960, 640));
      return d.least > 0.6 ? d : undefined;
    }, 60_000);
    await page.evaluate(() => {
      const sphere = window.holocast!.studio.sphere!;
      const show = sphere.show.bind(sphere);
      sphere.show = (tile, there) => show(tile, there && tile !== 1); // above and left of where one looks
      sphere.show(1, false);
    });
    const d = judge(await canvasPicture(page), reference(mono.picture, 0, 0, 960, 640));
    console.log(JSON.stringify({ whole, d }));
    expect(d.worst).toBeLessThan(40); // not black
    expect(d.least).toBeLessThan(whole.least - 0.2); // but not sharp
  });

  it("goes on when the relay comes back", async () => {
    await publish("again", mono.file);
    const page = await watch("again");
    await relay.stop();
    relay = await lab.relay(port);
    const before = (await video(page))!.pictures;
    await until("more pictures", async () => ((await video(page))?.pictures ?? 0) > before + 10, 60_000);
    await sharp(page);
    expect((await stats(page)).reconnects).toBeGreaterThan(0);
  });

  it("shows each eye its own half of a stereo film", async () => {
    const stereo = film("stereo", 640, 640, "geq=r='if(lt(Y,H/2),200,30)':g='60':b='if(lt(Y,H/2),30,200)'");
    await publish("stereo", stereo.file, "--stereo", "top-bottom");
    const page = await watch("stereo");
    await sharp(page);
    const middle = async () => {
      const p = await canvasPicture(page);
      const i = 4 * ((p.height >> 1) * p.width + (p.width >> 1));
      return [...p.rgba.subarray(i, i + 3)];
    };
    const left = await middle();
    await page.evaluate(() => window.holocast!.studio.camera.layers.set(2)); // as WebXR has the right eye's camera
    const right = await middle();
    console.log(left, right);
    expect(left[0]! - left[2]!).toBeGreaterThan(100);
    expect(right[2]! - right[0]!).toBeGreaterThan(100);
  });

  it("shows each eye its own half in WebXR", async () => {
    const stereo = film("stereo-xr", 640, 640, "geq=r='if(lt(Y,H/2),200,30)':g='60':b='if(lt(Y,H/2),30,200)'");
    await publish("xr", stereo.file, "--stereo", "top-bottom");
    const iwer = readFileSync(fileURLToPath(new URL("../../node_modules/iwer/build/iwer.min.js", import.meta.url)), "utf8");
    const device = "const xr = new IWER.XRDevice(IWER.metaQuest3); xr.stereoEnabled = true; xr.installRuntime({ forceInstall: true });";
    const page = await watch("xr", "", `${iwer}; { ${device} }`);
    const button = page.locator("button#vr");
    await until("the button", () => button.isVisible());
    await button.click();
    await until("a WebXR session", () => page.evaluate(() => window.holocast!.studio.renderer.xr.isPresenting));
    const before = (await video(page))!.pictures;
    await until("video to go on", async () => (await video(page))!.pictures > before + 5);
    await until("a sharp view of both eyes", async () => (await video(page))!.viewport_quality > 0.45, 60_000);
    // What the emulator shows of both eyes, side by side.
    const eyes = await page.evaluate(
      () =>
        new Promise<number[][]>((resolve) => {
          const { studio } = window.holocast!;
          studio.renderer.xr.getSession()!.requestAnimationFrame(function look() {
            const gl = studio.renderer.getContext();
            const { drawingBufferWidth: width, drawingBufferHeight: height } = gl;
            const at = (x: number) => {
              const rgba = new Uint8Array(4);
              gl.readPixels(Math.floor(x * width), height >> 1, 1, 1, gl.RGBA, gl.UNSIGNED_BYTE, rgba);
              return [...rgba];
            };
            const both = [at(0.25), at(0.75)];
            if (both.every((p) => p[0]! + p[2]! > 0)) resolve(both);
            else studio.renderer.xr.getSession()!.requestAnimationFrame(look); // nothing was drawn in this frame
          });
        }),
    );
    console.log(JSON.stringify(eyes));
    expect(eyes[0]![0]! - eyes[0]![2]!).toBeGreaterThan(100);
    expect(eyes[1]![2]! - eyes[1]![0]!).toBeGreaterThan(100);
    await button.dispatchEvent("click");
    await until("its end", () => page.evaluate(() => !window.holocast!.studio.renderer.xr.isPresenting));
    await sharp(page);
  });

  it("goes on after the tab stalled, and after it was hidden", async () => {
    await publish("stall", mono.file);
    const page = await watch("stall", "", hideable);
    await sharp(page);
    const before = (await video(page))!;
    await page.evaluate(() => {
      for (const end = performance.now() + 4000; performance.now() < end; ); // the page is busy, its workers are not
    });
    await until("more pictures", async () => (await video(page))!.pictures > before.pictures + 5);
    const after = await sharp(page);
    await until("pictures in time", async () => (await video(page))!.delay_ms < 2500);
    expect(after.bad).toBe(before.bad);

    await hide(page, true);
    const hidden = await stats(page);
    await new Promise((resolve) => setTimeout(resolve, 3000));
    const still = await stats(page);
    await hide(page, false);
    expect(still.video!.pictures - hidden.video!.pictures).toBeLessThan(10);
    await until("pictures again", async () => (await video(page))!.pictures > still.video!.pictures + 5);
    await sharp(page);
  });

  it("refuses a catalog whose grid makes no sense", async () => {
    const file = join(folder, "catalog.json");
    const hcsphere = { projection: "equirectangular", stereo: "mono", width: 16384, height: 8192, columns: 128, rows: 128, qualities: 8 };
    const track = {
      name: "video", packaging: "loc", isLive: true, role: "video", renderGroup: 2, targetLatency: 1000, codec: "avc1.42c01e", width: 480, height: 240,
      framerate: 30, maxGopDuration: 1000, hcsphere,
    };
    writeFileSync(file, JSON.stringify({ version: "draft-01", generatedAt: 1, tracks: [track] }));
    open.push(await lab.publisher(port, "grid", "--catalog", file));
    const page = await lab.page();
    open.push(page);
    await page.goto(lab.link(port, "grid"));
    const text = await until("the reason", async () => {
      const message = page.locator("#message");
      return (await message.isVisible()) && /128×128 tiles/.test(await message.innerText()) ? message.innerText() : undefined;
    });
    expect(text).toContain("hcsphere");
    expect((await stats(page)).video).toBeNull();
  });

  describe("of a recording", () => {
    let prepared: string;
    beforeAll(async () => {
      prepared = join(folder, "steps");
      const p = lab.program("holocast", "prepare", steps(), prepared, "--grid", "4x2", "--qualities", "2", "--preset", "veryfast");
      await until("the film to be prepared", async () => !p.running, 120_000);
    }, 150_000);

    /** The grey in the middle of the view, as a second that has it. */
    const second = async (page: Page): Promise<number> => {
      const { width, height, rgba } = await canvasPicture(page);
      const shown = rgba[4 * ((height >> 1) * width + (width >> 1))]!;
      return (shown * (219 / 255) + 16 - grey(0)) / 25;
    };
    /** The second shown at a place, standing still. */
    const at = async (page: Page, ms: number): Promise<number> => {
      await page.locator("#place").fill(`${ms}`);
      let last = NaN;
      let since = 0;
      await until(`a picture at ${ms} ms`, async () => {
        const { playback } = await stats(page);
        const now = await second(page);
        if (playback!.position_ms !== ms || playback!.playing || playback!.waiting || !(Math.abs(now - last) < 0.1)) since = performance.now();
        last = now;
        return performance.now() - since > 700;
      });
      return last;
    };

    it("is paused and moved about in, tiles and all", async () => {
      const p = lab.program("holocast", "replay", prepared, `moqt://127.0.0.1:${port}/past`, "--loop");
      open.push(p);
      const page = await watch("past");
      await until("the playback bar", () => page.locator("#playback").isVisible());
      const s = await stats(page);
      expect(s.playback).toMatchObject({ live: true, playing: true });
      expect(Math.abs(s.playback!.duration_ms - 1000 * GREYS)).toBeLessThan(200);
      await page.locator("button#play").click();
      await until("a pause", async () => !(await stats(page)).playback!.playing);
      for (const ms of [500, 6300, 2950, 0, 4050]) expect(await at(page, ms), `at ${ms} ms`).toBeCloseTo(Math.floor(ms / 1000), 0);
      await sharp(page);

      // To look around while it stands brings the tiles there.
      await turn(page, 180, 0);
      await sharp(page);

      await page.locator("button#play").click();
      const before = (await video(page))!.pictures;
      await until("its end", async () => {
        const { playing, position_ms, duration_ms } = (await stats(page)).playback!;
        return !playing && position_ms === duration_ms;
      }, 60_000);
      expect((await video(page))!.pictures - before).toBeGreaterThan(10);
      expect((await video(page))!.bad).toBe(0);
      await page.locator("button#golive").click();
      const shared = (await video(page))!.pictures;
      await until("the shared replay", async () => (await stats(page)).playback!.live && (await video(page))!.pictures > shared + 5);
      await until("tiles of it", async () => (await video(page))!.viewport_quality > 0.45, 60_000);
    });

    it("goes on when the shared replay begins again", async () => {
      open.push(lab.program("holocast", "replay", prepared, `moqt://127.0.0.1:${port}/loop`, "--loop"));
      const page = await watch("loop");
      let last = 0;
      await until("it to begin again", async () => {
        const { shown_ms } = (await video(page))!;
        const again = shown_ms < last - 3000;
        last = shown_ms;
        return again;
      });
      const before = (await video(page))!.pictures;
      await until("more pictures", async () => (await video(page))!.pictures > before + 15);
      await sharp(page);
    });

    it.each([["live", false], ["at the viewer's own pace", true]] as const)("is heard in time, %s", async (_, own) => {
      const session = own ? "heard" : "heard-live";
      if (own) open.push(lab.program("holocast", "replay", prepared, `moqt://127.0.0.1:${port}/${session}`, "--loop"));
      else await publish(session, join(folder, "steps.mp4"));
      const page = await watch(session);
      const button = page.locator("button#sound");
      await until("the button", () => button.isVisible());
      expect((await video(page))!.sound).toMatchObject({ on: false, played: 0 });
      if (own) {
        await until("the playback bar", () => page.locator("#playback").isVisible());
        await button.click();
        await page.locator("#place").fill("0");
      } else {
        await button.click();
      }
      await until("sound", async () => (await video(page))!.sound!.played > 20);
      // Brightness and tone change at the same moments. That pictures are drawn late on a busy machine, or left out, is
      // not the sound's: what counts is when the first picture of each second was due.
      const apart = await page.evaluate(
        () =>
          new Promise<number[]>((resolve) => {
            const { studio, stats } = window.holocast!;
            const pen = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true })!;
            const seen: { due: number; timestamp: number }[] = [];
            const heard: number[] = [];
            let brightness = -1;
            let loud: boolean | undefined;
            const sphere = studio.sphere!;
            const whole = sphere.whole.bind(sphere);
            sphere.whole = (frame) => {
              pen.drawImage(frame, 0, 0, 1, 1);
              const now = pen.getImageData(0, 0, 1, 1).data[0]!;
              const timestamp = frame.timestamp / 1000;
              if (brightness >= 0 && Math.abs(now - brightness) > 12) seen.push({ due: performance.now() - stats().video!.due_ms + timestamp, timestamp });
              brightness = now;
              whole(frame);
            };
            const listening = setInterval(() => {
              const now = stats().video!.sound!.level > 0.1;
              if (loud !== undefined && now !== loud) heard.push(performance.now());
              loud = now;
            }, 5);
            setTimeout(() => {
              clearInterval(listening);
              const behind = (a: number, b: number) => ((((a - b + 50) % 1000) + 1000) % 1000) - 50; // a live frame's time varies
              const first = seen.find((s) => seen.every((o) => behind(o.timestamp, s.timestamp) < 500)) ?? seen[0]!;
              resolve(seen.flatMap(({ due, timestamp }) => {
                const t = due - behind(timestamp, first.timestamp);
                const nearest = heard.toSorted((a, b) => Math.abs(a - t) - Math.abs(b - t))[0];
                return nearest === undefined ? [] : [Math.round(nearest - t)];
              }));
            }, 5500);
          }),
      );
      const sound = (await video(page))!.sound!;
      console.log(JSON.stringify({ apart, sound }));
      expect(apart.length).toBeGreaterThanOrEqual(3);
      const middle = apart.toSorted((a, b) => a - b)[apart.length >> 1]!;
      expect(Math.abs(middle)).toBeLessThan(100);
      await button.click();
      await until("silence", async () => (await video(page))!.sound!.level < 0.01 || !(await video(page))!.sound!.on);
    });
  });

  /** A film as a source, encoded as it is published, or before. */
  const sources: Record<string, () => string> = {
    live: () => `equirect:${mono.file}`,
    prepared: () => {
      const tour = join(folder, "tour");
      lab.run("holocast", "prepare", mono.file, tour, "--grid", "4x2", "--qualities", "2", "--preset", "ultrafast");
      return `tiles:${tour}`;
    },
  };
  it.each(Object.keys(sources))("surrounds a hologram, %s", async (kind) => {
    const p = lab.program("capture-server", "--source", sources[kind]!(), "--grid", "4x2", "--qualities", "2", "--source", "synthetic", "--fps", "5", `moqt://127.0.0.1:${port}/both-${kind}`);
    open.push(p);
    await p.says(/publishing/);
    const page = await watch(`both-${kind}`);
    expect((await stats(page)).playback).toBeNull(); // nobody can pause a camera
    const s = await shows(page, 3);
    expect(s.cameras).toBe(1);
    expect(s.points).toBeGreaterThan(1000);
    const before = s.video!.pictures;
    await until("both to go on", async () => {
      const now = await stats(page);
      return now.frames > s.frames + 2 && now.video!.pictures > before + 5;
    });
    await page.screenshot({ path: `${images}/web-hologram-in-360.png` });
  });

  it("turns as a phone is turned", async () => {
    await publish("phone", mono.file);
    const page = await watch("phone", "", "Object.defineProperty(navigator, 'maxTouchPoints', { value: 5 })");
    await page.locator("button#motion").click();
    await page.locator("button#motion[aria-pressed=true]").waitFor(); // it listens from then on
    // Upright, facing some way; then a quarter turn to the right; then up to the sky.
    const held = (alpha: number, beta: number) =>
      page.evaluate(([alpha, beta]) => {
        dispatchEvent(new DeviceOrientationEvent("deviceorientation", { alpha: alpha!, beta: beta!, gamma: 0 }));
        return [...window.holocast!.studio.gaze];
      }, [alpha, beta]);
    const near = (...v: number[]) => v.map((x) => expect.closeTo(x, 1));
    expect(await held(200, 90)).toEqual(near(0, 0, 1)); // wherever the phone points, the view stays as it was
    expect(await held(110, 90)).toEqual(near(1, 0, 0));
    expect((await held(110, 150))[1]).toBeGreaterThan(0.8);
  });

  it("turns by keys", async () => {
    await publish("keys", mono.file);
    const page = await watch("keys");
    const gaze = () => page.evaluate(() => [...window.holocast!.studio.gaze]);
    const before = await gaze();
    await page.keyboard.down("ArrowRight");
    await until("a turn to the right", async () => (await gaze())[0]! > before[0]! + 0.3);
    await page.keyboard.up("ArrowRight");
    expect((await page.evaluate(() => window.holocast!.studio.view.eye)).every((x) => Math.abs(x) < 0.1)).toBe(true); // there is nowhere to go
    const text = await page.locator("#stats").innerText();
    expect(text).toContain("Motion to quality");
    expect(text).not.toContain("Points");
    expect(await page.locator("button#walk").isHidden()).toBe(true);
    expect(await page.locator("button#motion").isHidden()).toBe(true);
    expect(lab.errors).toEqual([]);
  });
});
