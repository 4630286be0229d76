/**
 * Decodes the planes of a point-cloud frame (docs/spec/point-cloud-frame.md) into words for the GPU. AssemblyScript,
 * compiled to planes.wasm by `npm run wasm`. Works in the zstd decoder's memory, where the planes already are. It
  * therefore has no static data, and the caller passes all addresses; see ../frame.ts.
 */
import { runsEnd } from "./runs";

// Start and end of the remaining escapes, and a flag set when one is missing or out of range.
let escapes: usize = 0;
let escapesEnd: usize = 0;
let broken: bool = false;

/** Reads the zigzag value of an escaped residual, which is 15 plus a varint of at most three bytes. */
function escaped(max: i32): i32 {
  let rest = 0;
  for (let shift = 0; shift < 21; shift += 7) {
    if (escapes >= escapesEnd) break;
    const b = <i32>load<u8>(escapes++);
    rest |= (b & 0x7f) << shift;
    if (b < 0x80) {
      if (rest > max - 15) break;
      return rest + 15;
    }
  }
  broken = true;
  return 0;
}

// @ts-ignore: decorator
@inline
function nibble(plane: usize, k: i32): i32 {
  return (<i32>load<u8>(plane + (k >>> 1)) >>> ((~k & 1) << 2)) & 15;
}

/**
 * Layout A. `raw` holds `length` bytes of planes. Pixel (i, j) of this description's `w`×`h` grid is
 * pixel (step·i + dx, step·j + dy) of the frame. `row` has 20·w bytes of scratch. `out` receives 8
 * bytes per point: X | Y << 12 | R << 24 with the pixel's X and Y, and depth | G << 16 | B << 24.
 * Returns false if `raw` is inconsistent with the number of points.
 */
export function grid(
  raw: usize, length: usize, points: i32, w: i32, h: i32, step: i32, dx: i32, dy: i32, row: usize, out: usize,
): bool {
  const end = raw + length;
  const packed: usize = (points + 1) >>> 1;
  const depths = runsEnd(raw, end, w * h);
  if (depths == 0 || end - depths < 2 * packed + points) return false;
  const greens = depths + packed;
  const chromas = greens + packed;
  escapes = chromas + points;
  escapesEnd = end;
  broken = false;

  const valids = row + 16 * w;
  memory.fill(row, 0, 17 * w);
  let mask = raw;
  let wrong = 0; // index of the next pixel with a mispredicted validity
  for (;;) {
    const b = <i32>load<u8>(mask++);
    wrong += b;
    if (b != 255) break;
  }
  let k = 0;
  let i = 0;
  for (let y = 0; y < h; y++) {
    const line = ((y * step + dy) << 12) + dx;
    // The first column uses the pixel above as its left neighbour.
    let west = v128.load(row);
    let northwest = west;
    let westValid = load<u8>(valids);
    let northwestValid = westValid;
    for (let x = 0; x < w; x++) {
      const at = row + 16 * x;
      const north = v128.load(at);
      const northValid = load<u8>(valids + x);
      let here = i32x4.max_s(
        i32x4.min_s(west, north),
        i32x4.min_s(i32x4.max_s(west, north), i32x4.sub(i32x4.add(west, north), northwest)),
      );
      let valid = northValid != northwestValid ? northValid : westValid;
      if (i == wrong) {
        valid ^= 1;
        wrong++;
        for (;;) {
          const b = <i32>load<u8>(mask++);
          wrong += b;
          if (b != 255) break;
        }
      }
      if (valid) {
        if (k == points) return false;
        let d = nibble(depths, k);
        const c = <i32>load<u8>(chromas + k);
        let rg = c >>> 4;
        let g = nibble(greens, k);
        let bg = c & 15;
        if (d == 15) d = escaped(0xffff);
        if (rg == 15) rg = escaped(1020);
        if (g == 15) g = escaped(0xff);
        if (bg == 15) bg = escaped(1020);
        let z = i32x4.splat(d);
        z = i32x4.replace_lane(z, 1, rg);
        z = i32x4.replace_lane(z, 2, g);
        z = i32x4.replace_lane(z, 3, bg);
        const one = i32x4.splat(1);
        const residual = v128.xor(i32x4.shr_u(z, 1), i32x4.neg(v128.and(z, one)));
        here = v128.and(i32x4.add(here, residual), i32x4(0xffff, -1, 0xff, -1));
        const green = i32x4.extract_lane(here, 2);
        const red = (i32x4.extract_lane(here, 1) + green) & 0xff;
        const blue = (i32x4.extract_lane(here, 3) + green) & 0xff;
        store<u32>(out, (line + step * x) | (red << 24));
        store<u32>(out, i32x4.extract_lane(here, 0) | (green << 16) | (blue << 24), 4);
        out += 8;
        k++;
      }
      v128.store(at, here);
      store<u8>(valids + x, <u8>valid);
      northwest = north;
      northwestValid = northValid;
      west = here;
      westValid = valid;
      i++;
    }
  }
  return k == points && !broken && escapes == escapesEnd;
}

/**
 * Layout B. `out` receives 12 bytes per point: X | Y << 16, Z | R << 16 | G << 24, and B. Returns
 * false if `raw` is inconsistent with the number of points.
 */
export function cloud(raw: usize, length: usize, points: i32, out: usize): bool {
  const packed: usize = (points + 1) >>> 1;
  if (length < 4 * packed + points) return false;
  const xs = raw;
  const ys = xs + packed;
  const zs = ys + packed;
  const gs = zs + packed;
  const chromas = gs + packed;
  escapes = chromas + points;
  escapesEnd = raw + length;
  broken = false;
  let x = 0, y = 0, z = 0, rg = 0, g = 0, bg = 0;
  for (let k = 0; k < points; k++) {
    x += unzigzag(nibble(xs, k), 0xffff);
    y += unzigzag(nibble(ys, k), 0xffff);
    z += unzigzag(nibble(zs, k), 0xffff);
    const c = <i32>load<u8>(chromas + k);
    rg += unzigzag(c >>> 4, 1020);
    g += unzigzag(nibble(gs, k), 0xff);
    bg += unzigzag(c & 15, 1020);
    point(out, x, y, z, rg + g, g, bg + g);
    out += 12;
  }
  return !broken && escapes == escapesEnd;
}

// @ts-ignore: decorator
@inline
function unzigzag(n: i32, max: i32): i32 {
  const z = n == 15 ? escaped(max) : n;
  return (z >>> 1) ^ -(z & 1);
}

/** Layout C: converts LiveScan3D's 9-byte records to the words of layout B. */
export function records(raw: usize, points: i32, out: usize): void {
  for (let k = 0; k < points; k++) {
    point(
      out, load<u16>(raw), load<u16>(raw, 2), load<u16>(raw, 4), load<u8>(raw, 6), load<u8>(raw, 7), load<u8>(raw, 8),
    );
    raw += 9;
    out += 12;
  }
}

// @ts-ignore: decorator
@inline
function point(out: usize, x: i32, y: i32, z: i32, r: i32, g: i32, b: i32): void {
  store<u32>(out, (x & 0xffff) | (y << 16));
  store<u32>(out, (z & 0xffff) | ((r & 0xff) << 16) | (g << 24), 4);
  store<u32>(out, b & 0xff, 8);
}
