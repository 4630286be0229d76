/** Rendering of 360° video in all directions, with and without tiles. */
import { execFileSync } from "node:child_process";
import { mkdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import type { Page } from "playwright-core";
import { beforeAll, describe, expect, it } from "vitest";
import { Cinema, scene, sharp, turn, video, type Coding } from "./cinema.ts";
import { repo, until } from "./lab.ts";
import { canvasPicture, type Picture } from "./picture.ts";

const cinema = new Cinema();
const { lab, open } = cinema;
const images = process.env["PICTURES"] ?? `${repo}client-web/test/out`;

/** Renders the view of an equirectangular picture on the CPU. */
function reference(of: Picture, yaw: number, pitch: number, width: number, height: number, fov = 66): Picture {
  const rgba = new Uint8Array(4 * width * height).fill(255);
  const t = Math.tan((fov * Math.PI) / 360);
  const [sy, cy, sp, cp] = [
    Math.sin((yaw * Math.PI) / 180),
    Math.cos((yaw * Math.PI) / 180),
    Math.sin((pitch * Math.PI) / 180),
    Math.cos((pitch * Math.PI) / 180),
  ];
  for (let v = 0; v < height; v++) {
    for (let u = 0; u < width; u++) {
      const x = t * ((2 * (u + 0.5)) / width - 1) * (width / height);
      const y = t * (1 - (2 * (v + 0.5)) / height);
      const [dx, dy, dz] = [x * cy + (cp - y * sp) * sy, sp + y * cp, (cp - y * sp) * cy - x * sy];
      const px = (Math.atan2(dx, dz) / (2 * Math.PI) + 0.5) * of.width - 0.5;
      const py = (0.5 - Math.asin(dy / Math.hypot(dx, dy, dz)) / Math.PI) * of.height - 0.5;
      const [x0, y0] = [Math.floor(px), Math.floor(py)];
      const at = (i: number, j: number, c: number) =>
        of.rgba[4 * (Math.max(0, Math.min(of.height - 1, j)) * of.width + ((i + of.width) % of.width)) + c]!;
      for (let c = 0; c < 3; c++) {
        const a = at(x0, y0, c) + (px - x0) * (at(x0 + 1, y0, c) - at(x0, y0, c));
        const b = at(x0, y0 + 1, c) + (px - x0) * (at(x0 + 1, y0 + 1, c) - at(x0, y0 + 1, c));
        rgba[4 * (v * width + u) + c] = a + (py - y0) * (b - a);
      }
    }
  }
  return { width, height, rgba };
}

/**
 * Compares regions of two pictures. `worst` is the maximum difference of the mean colour; `least` and `detail` are the
 * minimum and mean share of the reference's detail that is present.
 */
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
          for (let v = y; v < y + region; v++)
            for (let u = x; u < x + region; u++) list.push(p.rgba[4 * (v * p.width + u) + c]! - mean);
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

/** Colour in the middle of the picture. */
async function middle(page: Page): Promise<number[]> {
  const p = await canvasPicture(page);
  const i = 4 * ((p.height >> 1) * p.width + (p.width >> 1));
  return [...p.rgba.subarray(i, i + 3)];
}

declare global {
  interface Window {
    /** Number of decoded tiles in view since showTiles(true). */
    shownTiles?: number;
  }
}

/** Hides all tiles, or shows them again. */
const showTiles = (page: Page, tiles: boolean): Promise<void> =>
  page.evaluate((tiles) => {
    const sphere = window.holocast!.studio.sphere!;
    const { show, uploadTile } = Object.getPrototypeOf(sphere) as typeof sphere;
    window.shownTiles = 0;
    sphere.uploadTile = (tile, frame) => {
      const uploaded = uploadTile.call(sphere, tile, frame);
      if (uploaded) window.shownTiles!++;
      return uploaded;
    };
    sphere.show = (tile, decoded) => show.call(sphere, tile, tiles && decoded);
    if (!tiles) for (let t = 0; t < sphere.sphere.tiles.length; t++) sphere.show(t, false);
  }, tiles);

describe("rendering of 360° video", () => {
  it("renders like its source in all directions, and sharpens after a turn", async () => {
    await cinema.publish("sphere", cinema.mono.file);
    const page = await cinema.watch("sphere");
    mkdirSync(images, { recursive: true });
    for (const [yaw, pitch] of [[0, 0], [95, 10], [-150, -20], [180, 0], [30, 70]] as const) {
      await turn(page, yaw, pitch);
      const got = await canvasPicture(page);
      const want = reference(cinema.mono.picture, yaw, pitch, got.width, got.height);
      const blurred = judge(got, want);
      // A slow machine shows fewer tiles at times.
      let d = blurred;
      await until(`${yaw}, ${pitch}: a sharp picture of the source`, async () => {
        await sharp(page);
        d = judge(await canvasPicture(page), want);
        return d.worst < 10 && d.detail > 0.5;
      }).finally(() => console.log(JSON.stringify({ yaw, pitch, blurred, d })));
      expect(blurred.worst, `${yaw}, ${pitch}: base sphere right after the turn`).toBeLessThan(40);
    }
    const v = (await video(page))!;
    expect(v.bad).toBe(0);
    await page.screenshot({ path: `${images}/web-360.png` });
  });

  // Judging by each film's size, players would assume the other colour standard.
  it.each<[string, number, Coding]>([
    ["BT.601", 1280, { matrix: "smpte170m" }],
    ["BT.709", 640, { matrix: "bt709" }],
    ["BT.601, full range", 1280, { matrix: "smpte170m", full: true }],
  ])("has the right colours: %s", async (name, width, coding) => {
    const bars = [[200, 40, 40], [40, 190, 40], [50, 60, 210]] as const;
    const third = (c: number) => `if(lt(X,W/3),${bars[0][c]},if(lt(X,2*W/3),${bars[1][c]},${bars[2][c]}))`;
    const { file } = cinema.film(
      `bars-${width}-${coding.full}`,
      width,
      width / 2,
      `geq=r='${third(0)}':g='${third(1)}':b='${third(2)}'`,
      coding,
    );
    const session = `colours-${width}-${coding.full}`;
    await cinema.publish(session, file);
    const page = await cinema.watch(session);
    for (const [i, yaw] of [-120, 0, 120].entries()) {
      await turn(page, yaw, 0);
      for (const seen of ["tiles", "base sphere"] as const) {
        await showTiles(page, seen === "tiles");
        if (seen === "tiles") {
          await sharp(page);
          await until("tiles in view", () => page.evaluate(() => window.shownTiles! > 0));
        }
        // Coding errors differ from frame to frame; a wrong matrix or range is off by more.
        let rgb: number[] = [];
        await until(`${bars[i]!.join()} on ${seen}`, async () => {
          rgb = await middle(page);
          return rgb.every((v, c) => Math.abs(v - bars[i]![c]!) < 9);
        }).finally(() => console.log(name, seen, rgb.join(), "for", bars[i]!.join()));
      }
    }
  });

  it("requests the tiles in view if the rate does not suffice for all, and others after a turn", async () => {
    await cinema.publish("turn", cinema.mono.file, "--grid", "8x4");
    const page = await cinema.watch("turn", "&rate=1");
    const before = await until("a view without all tiles", async () => {
      const v = await sharp(page);
      return v.tiles.includes(-1) ? v : undefined;
    });
    await turn(page, 170, 0);
    await until("a blurred view", async () => (await video(page))!.viewport_quality < 0.4);
    await sharp(page);
    const after = await until("the motion-to-quality time", async () => {
      const v = (await video(page))!;
      return v.motion_to_quality_ms !== null && v.viewport_quality > 0.45 ? v : undefined;
    });
    console.log(
      JSON.stringify({
        motion: after.motion_to_quality_ms,
        before: before.tiles.join(),
        after: after.tiles.join(),
        messages: after.tile_messages,
      }),
    );
    await until("detail in the new view", async () => {
      const got = await canvasPicture(page);
      return judge(got, reference(cinema.mono.picture, 170, 0, got.width, got.height)).detail > 0.4;
    });
  });

  it("shows the base sphere in place of a missing tile", async () => {
    await cinema.publish("missing", cinema.mono.file);
    const page = await cinema.watch("missing");
    await sharp(page);
    const first = await canvasPicture(page);
    const want = reference(cinema.mono.picture, 0, 0, first.width, first.height);
    const complete = await until("a completely sharp view", async () => {
      const d = judge(await canvasPicture(page), want);
      return d.least > 0.6 ? d : undefined;
    });
    await page.evaluate(() => {
      const sphere = window.holocast!.studio.sphere!;
      const show = sphere.show.bind(sphere);
      sphere.show = (tile, decoded) => show(tile, decoded && tile !== 1); // upper left of the centre
      sphere.show(1, false);
    });
    const d = judge(await canvasPicture(page), want);
    console.log(JSON.stringify({ complete, d }));
    expect(d.worst).toBeLessThan(40); // not black
    expect(d.least).toBeLessThan(complete.least - 0.2); // but not sharp
  });

  it("shows each eye its own half of a stereo film", async () => {
    const stereo = cinema.film("stereo", 640, 640, "geq=r='if(lt(Y,H/2),200,30)':g='60':b='if(lt(Y,H/2),30,200)'");
    await cinema.publish("stereo", stereo.file, "--stereo", "top-bottom");
    const page = await cinema.watch("stereo");
    await sharp(page);
    const left = await middle(page);
    await page.evaluate(() => window.holocast!.studio.camera.layers.set(2)); // like the right eye's camera in WebXR
    const right = await middle(page);
    console.log(left, right);
    expect(left[0]! - left[2]!).toBeGreaterThan(100);
    expect(right[2]! - right[0]!).toBeGreaterThan(100);
  });

  it("shows each eye its own half in WebXR", async () => {
    const stereo = cinema.film("stereo-xr", 640, 640, "geq=r='if(lt(Y,H/2),200,30)':g='60':b='if(lt(Y,H/2),30,200)'");
    await cinema.publish("xr", stereo.file, "--stereo", "top-bottom");
    const iwer = readFileSync(
      fileURLToPath(new URL("../../node_modules/iwer/build/iwer.min.js", import.meta.url)),
      "utf8",
    );
    const device =
      "const xr = new IWER.XRDevice(IWER.metaQuest3); xr.stereoEnabled = true; " +
        "xr.installRuntime({ forceInstall: true });";
    const page = await cinema.watch("xr", "", `${iwer}; { ${device} }`);
    const button = page.locator("button#vr");
    await until("the button", () => button.isVisible());
    await button.click();
    await until("a WebXR session", () => page.evaluate(() => window.holocast!.studio.renderer.xr.isPresenting));
    const before = (await video(page))!.pictures;
    await until("more pictures", async () => (await video(page))!.pictures > before + 5);
    await until("a sharp view of both eyes", async () => (await video(page))!.viewport_quality > 0.45);
    // The emulator renders the eyes next to each other.
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
            else studio.renderer.xr.getSession()!.requestAnimationFrame(look); // not drawn yet
          });
        }),
    );
    console.log(JSON.stringify(eyes));
    expect(eyes[0]![0]! - eyes[0]![2]!).toBeGreaterThan(100);
    expect(eyes[1]![2]! - eyes[1]![0]!).toBeGreaterThan(100);
    await button.dispatchEvent("click");
    await until("the end of the WebXR session", () =>
      page.evaluate(() => !window.holocast!.studio.renderer.xr.isPresenting),
    );
    await sharp(page);
  });

  describe("larger than the GPU's textures", () => {
    let picture: Picture;
    beforeAll(() => {
      picture = cinema.film("small", 960, 480, scene(2)).picture;
      const [file, folder] = [join(cinema.folder, "8k.mp4"), join(cinema.folder, "8k")];
      const scaled = ["-vf", "fps=2,scale=7680:3840:flags=neighbor", "-preset", "ultrafast", "-t", "2", file];
      execFileSync("ffmpeg", ["-v", "error", "-i", join(cinema.folder, "small.mp4"), ...scaled]);
      lab.run("holocast", "prepare", file, folder, "--grid", "8x4", "--qualities", "1", "--preset", "ultrafast");
    });

    /** Init script for a GPU with a limit. */
    const limited = (limit: number) => `{
      const { getParameter, texStorage2D } = WebGL2RenderingContext.prototype;
      Object.assign(WebGL2RenderingContext.prototype, {
        getParameter(name) {
          return name === this.MAX_TEXTURE_SIZE ? ${limit} : getParameter.call(this, name);
        },
        texStorage2D(target, levels, format, width, height) {
          if (Math.max(width, height) > ${limit}) throw new Error(\`a texture of \${width}×\${height}\`);
          texStorage2D.call(this, target, levels, format, width, height);
        },
      });
    }`;

    it.each([
      [4096, "with the tiles in view"],
      [512, "without tiles"],
      [256, "with a smaller base sphere"],
    ])("%i pixels: is shown %s", async (limit) => {
      const session = `8k-${limit}`;
      const link = `moqt://127.0.0.1:${cinema.port}/${session}`;
      open.push(lab.program("holocast", "replay", join(cinema.folder, "8k"), link, "--loop"));
      const page = await cinema.watch(session, "", limited(limit));
      for (const yaw of [0, 170]) {
        await turn(page, yaw, 0);
        if (limit === 4096) await sharp(page);
        let d = { worst: 0, least: 0, detail: 0 };
        await until(`a picture at ${yaw}`, async () => {
          const got = await canvasPicture(page);
          d = judge(got, reference(picture, yaw, 0, got.width, got.height));
          return d.worst < 40 && (limit < 4096 || d.detail > 0.5);
        }).finally(() => console.log(limit, yaw, JSON.stringify(d)));
      }
      const v = (await video(page))!;
      if (limit < 4096) expect([v.viewport_quality, v.tile_hits, v.tile_messages]).toEqual([0, 0, 0]);
      else expect(v.tiles.filter((q) => q >= 0).length).toBeLessThanOrEqual(16);
      expect(await page.evaluate(() => window.holocast!.studio.renderer.getContext().getError())).toBe(0);
    });
  });

  it("logs no errors", () => expect(lab.errors).toEqual([]));
});
