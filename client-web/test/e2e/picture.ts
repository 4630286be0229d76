/** Pictures as pixels, and their comparison by region. */
import type { Page } from "playwright-core";

export interface Picture {
  readonly width: number;
  readonly height: number;
  /** R G B A of each pixel. */
  readonly rgba: Uint8Array;
}

/** The page's canvas, without the panels over it. */
export async function canvasPicture(page: Page): Promise<Picture> {
  const { width, height, data } = await page.evaluate(async () => {
    const bitmap = await createImageBitmap(await window.holocast!.studio.picture());
    const canvas = new OffscreenCanvas(bitmap.width, bitmap.height);
    const g = canvas.getContext("2d")!;
    g.drawImage(bitmap, 0, 0);
    const { data } = g.getImageData(0, 0, bitmap.width, bitmap.height);
    let text = "";
    for (let i = 0; i < data.length; i += 8192) text += String.fromCharCode(...data.subarray(i, i + 8192));
    return { width: bitmap.width, height: bitmap.height, data: btoa(text) };
  });
  return { width, height, rgba: new Uint8Array(Buffer.from(data, "base64")) };
}

export interface Difference {
  /** Number of regions that the reference covers fully, and of empty ones. */
  readonly covered: number;
  readonly empty: number;
  /** Maximum difference of a covered region's mean colour, 0…255. */
  readonly worst: number;
  /** Maximum share of non-background pixels in a region where the reference is empty. */
  readonly stray: number;
  /** Structural similarity of the luma, over windows that the reference covers. */
  readonly ssim: number;
}

const luma = (p: Uint8Array, i: number): number => 0.2126 * p[i]! + 0.7152 * p[i + 1]! + 0.0722 * p[i + 2]!;

/** Mean structural similarity (Wang et al., 2004) over windows of 8×8 pixels every 4 pixels. */
function similarity(got: Picture, want: Picture): number {
  const [side, step, c1, c2] = [8, 4, (0.01 * 255) ** 2, (0.03 * 255) ** 2] as const;
  const { width, height } = got;
  let sum = 0;
  let windows = 0;
  for (let y = 0; y + side <= height; y += step) {
    for (let x = 0; x + side <= width; x += step) {
      let [ma, mb, aa, bb, ab, opaque] = [0, 0, 0, 0, 0, 0];
      for (let k = 0; k < side * side; k++) {
        const i = 4 * ((y + (k >> 3)) * width + x + (k & 7));
        const [a, b] = [luma(got.rgba, i), luma(want.rgba, i)];
        if (want.rgba[i + 3]! > 0) opaque++;
        ma += a;
        mb += b;
        aa += a * a;
        bb += b * b;
        ab += a * b;
      }
      const n = side * side;
      if (opaque < n) continue;
      ma /= n;
      mb /= n;
      const [va, vb, cov] = [aa / n - ma * ma, bb / n - mb * mb, ab / n - ma * mb];
      sum += ((2 * ma * mb + c1) * (2 * cov + c2)) / ((ma * ma + mb * mb + c1) * (va + vb + c2));
      windows++;
    }
  }
  return sum / windows;
}

/** Compares a picture with a reference whose background is transparent. */
export function compare(
  got: Picture,
  want: Picture,
  background: readonly [number, number, number],
  region = 16,
): Difference {
  if (got.width !== want.width || got.height !== want.height)
    throw new Error(`${got.width}×${got.height} against ${want.width}×${want.height}`);
  let covered = 0;
  let empty = 0;
  let worst = 0;
  let stray = 0;
  for (let y = 0; y + region <= got.height; y += region) {
    for (let x = 0; x + region <= got.width; x += region) {
      const a = [0, 0, 0];
      const b = [0, 0, 0];
      let opaque = 0;
      let other = 0;
      for (let v = y; v < y + region; v++) {
        for (let u = x; u < x + region; u++) {
          const i = 4 * (v * got.width + u);
          if (want.rgba[i + 3]! > 0) opaque++;
          for (let c = 0; c < 3; c++) {
            a[c]! += got.rgba[i + c]!;
            b[c]! += want.rgba[i + c]!;
          }
          if (background.some((c, k) => Math.abs(got.rgba[i + k]! - c) > 2)) other++;
        }
      }
      const n = region * region;
      if (opaque === n) {
        covered++;
        for (let c = 0; c < 3; c++) worst = Math.max(worst, Math.abs(a[c]! - b[c]!) / n);
      } else if (opaque === 0) {
        empty++;
        stray = Math.max(stray, other / n);
      }
    }
  }
  return { covered, empty, worst, stray, ssim: similarity(got, want) };
}
