/** Times pictures of a depth camera's frame as points and as a surface. */
import { rayTable } from "../../../src/media/points/rays.ts";
import type { CameraTrack } from "../../../src/media/points/track.ts";
import type { Look } from "../../../src/scene/points.ts";
import { Studio } from "../../../src/scene/studio.ts";

/** Times in ms of each picture: of the same frame again, and of a new frame. */
export type Times = Readonly<Record<Look, { readonly same: number[]; readonly fresh: number[] }>>;

declare global {
  interface Window {
    drawLooks: (width: number, height: number, pictures: number) => Promise<Times>;
  }
}

const LOOKS = ["points", "surface"] as const;

/** Draws a person-sized ball before a wall from a grid of `width`×`height` points, looks taking turns. */
window.drawLooks = async (width, height, pictures) => {
  const canvas = document.querySelector("canvas")!;
  const studio = new Studio(canvas);
  studio.resize(canvas.width, canvas.height, 1);
  const grid = { width, height, fx: width, fy: width, cx: width / 2, cy: height / 2, k: [0, 0, 0, 0, 0, 0], p: [0, 0] };
  const track = {
    track: "points", camera: 0, name: "camera", quality: "full", layout: "A", grid, maxPoints: width * height,
    pose: { r: [1, 0, 0, 0, 1, 0, 0, 0, 1], t: [0, 0, 0] },
  } as unknown as CameraTrack;
  studio.setCameras([track]);
  const rays = rayTable(grid);
  studio.setRays(0, rays);
  const words = ballAndWall(width, height, rays);
  studio.lookAt([0.3, 0.2, 0], [0, 0, -1.5]);
  const gl = studio.renderer.getContext() as WebGL2RenderingContext;
  const picture = (upload: boolean): number => {
    const began = performance.now();
    if (upload) studio.upload(0, words, width * height, undefined);
    studio.dirty = true;
    studio.draw(began);
    gl.readPixels(0, 0, 1, 1, gl.RGBA, gl.UNSIGNED_BYTE, new Uint8Array(4)); // waits for the GPU
    return performance.now() - began;
  };
  const times: Times = { points: { same: [], fresh: [] }, surface: { same: [], fresh: [] } };
  for (let i = -1; i < pictures; i++) {
    for (const look of LOOKS) {
      studio.look = look;
      picture(true); // prepares this look
      const same = picture(false);
      const fresh = picture(true);
      await new Promise(requestAnimationFrame);
      if (i < 0) continue; // compiles shaders
      times[look].same.push(same);
      times[look].fresh.push(fresh);
    }
  }
  studio.dispose();
  return times;
};

/** Words of the form "pixels" (media/points/kernel/planes.ts). */
function ballAndWall(width: number, height: number, rays: Float32Array): Uint32Array {
  const words = new Uint32Array(2 * width * height);
  for (let i = 0; i < width * height; i++) {
    const [x, y] = [rays[2 * i]!, rays[2 * i + 1]!];
    // The nearer intersection of the ray with a ball of 450 mm at 1500 mm.
    const a = x * x + y * y + 1;
    const root = 1500 ** 2 - a * (1500 ** 2 - 450 ** 2);
    const z = root > 0 ? (1500 - Math.sqrt(root)) / a : 2500;
    words[2 * i] = (i % width) | (Math.floor(i / width) << 12) | (((i * 7) & 255) << 24);
    words[2 * i + 1] = Math.round(z) | ((i & 255) << 16) | ((i >> 8) << 24);
  }
  return words;
}
