/**
 * Decodes the map and the pictures of layout W (docs/spec/video-frame.md). AssemblyScript, part of planes.wasm. Each
 * track has an instance with its own memory, in which the map persists between frames; see ../video.ts.
 */
import { runsEnd } from "./runs";

/** Levels per segment, and the luma of a segment's lowest level. */
const SEGMENT = 220;
const LUMA = 18;

/** The map value that `symbol` stands for; -1 if it is invalid. */
function candidate(symbol: i32, prediction: i32, west: i32, north: i32, before: i32): i32 {
  if (symbol >= 8) return symbol - 8 != prediction ? symbol - 8 : -1;
  if (prediction != 0 && symbol-- == 0) return 0;
  if (west != prediction && west != 0 && symbol-- == 0) return west;
  if (north != prediction && north != 0 && north != west && symbol-- == 0) return north;
  const known = before == prediction || before == 0 || before == west || before == north;
  return !known && symbol == 0 ? before : -1;
}

/**
 * Updates the `w`×`h` map at `map` from `length` bytes of planes at `raw`. On entry the map is the previous frame's,
 * with `valid` points. `w` zero bytes precede the map, and `changed` has w bytes of scratch. Returns false if the
 * planes are inconsistent with the number of points.
 */
export function updateMap(
  raw: usize, length: usize, points: i32, key: bool, w: i32, h: i32, map: usize, changed: usize, valid: i32,
): bool {
  const end = raw + length;
  const pixels = w * h;
  let symbols = runsEnd(raw, end, pixels);
  if (symbols == 0) return false;
  memory.fill(changed, 0, w);
  if (key) {
    memory.fill(map, 0, pixels);
    valid = 0;
  }
  let wrong = 0; // index of the next mispredicted pixel
  for (;;) {
    const b = <i32>load<u8>(raw++);
    wrong += b;
    if (b != 255) break;
  }
  let i = 0;
  let at = map;
  for (let y = 0; y < h; y++) {
    let west = 0;
    let westChanged = false;
    let northwest = 0;
    for (let x = 0; x < w; x++) {
      // Pixels after an unchanged one keep their value up to the next mispredicted one.
      if (!key && !westChanged && i < wrong) {
        const kept = min(wrong - i, w - x);
        memory.fill(changed + x, 0, kept);
        i += kept;
        at += kept;
        x += kept;
        if (x == w) break;
        west = load<u8>(at - 1);
        northwest = load<u8>(at - w - 1);
      }
      const before = <i32>load<u8>(at);
      const north = <i32>load<u8>(at - w);
      const spatial = north != northwest ? north : west;
      let value = key || (westChanged && load<u8>(changed + x) != 0) ? spatial : before;
      if (i == wrong) {
        if (symbols == end) return false;
        value = candidate(load<u8>(symbols++), value, west, north, before);
        if (value < 0) return false;
        wrong++;
        for (;;) {
          const b = <i32>load<u8>(raw++);
          wrong += b;
          if (b != 255) break;
        }
      }
      store<u8>(at++, <u8>value);
      westChanged = value != before;
      store<u8>(changed + x, <u8>westChanged);
      valid += i32(value != 0) - i32(before != 0);
      west = value;
      northwest = north;
      i++;
    }
  }
  return valid == points && symbols == end;
}

// @ts-ignore: decorator
@inline
function clamp(v: i32, max: i32): i32 {
  return v < 0 ? 0 : v > max ? max : v;
}

/**
 * Writes the words of the map's points to `out`, in the format of layout A. `levels` holds the depth of each level
 * (u16), `depth` and `luma` the lumas of the depth and color pictures with `stride` bytes per row, `cb` and `cr` the
 * chroma samples, `chromaStep` bytes apart with `chromaStride` bytes per row.
 */
export function points(
  map: usize, w: i32, h: i32, levels: usize, depth: usize, luma: usize, stride: i32,
  cb: usize, cr: usize, chromaStep: i32, chromaStride: i32, out: usize,
): void {
  for (let y = 0; y < h; y++) {
    const chromas = (y >>> 1) * chromaStride;
    for (let x = 0; x < w; x++) {
      const m = <i32>load<u8>(map++);
      if (m == 0) continue;
      const segment = m - 1;
      const q = clamp(<i32>load<u8>(depth + x) - LUMA, SEGMENT);
      const level = SEGMENT * segment + (segment & 1 ? SEGMENT - q : q);
      const z = <i32>load<u16>(levels + 2 * level);
      const chroma = chromas + (x >>> 1) * chromaStep;
      const blue = <i32>load<u8>(cb + chroma) - 128;
      const red = <i32>load<u8>(cr + chroma) - 128;
      let c = i32x4.splat((<i32>load<u8>(luma + x) << 16) + 32768);
      c = i32x4.replace_lane(c, 0, i32x4.extract_lane(c, 0) + 103206 * red);
      c = i32x4.replace_lane(c, 1, i32x4.extract_lane(c, 1) - 12276 * blue - 30679 * red);
      c = i32x4.replace_lane(c, 2, i32x4.extract_lane(c, 2) + 121609 * blue);
      c = i32x4.shr_s(c, 16);
      c = i16x8.narrow_i32x4_s(c, c);
      const rgb = i32x4.extract_lane(i8x16.narrow_i16x8_u(c, c), 0);
      store<u32>(out, x | (y << 12) | (rgb << 24));
      store<u32>(out, z | ((rgb << 8) & 0xffff0000), 4);
      out += 8;
    }
    depth += stride;
    luma += stride;
  }
}
