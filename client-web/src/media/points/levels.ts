/** The depths of layout W's levels (docs/spec/video-frame.md#levels). */

/** Number of levels of 247 segments of 220 levels each. */
export const LEVELS = 247 * 220 + 1;
const MAX_DEPTH = 65535;

/** The quantizer of a group's depths. */
export interface Quantizer {
  /** Standard deviation of the sensor's depth at 0 m, µm. */
  readonly sigma0: number;
  /** Its growth, µm per m². */
  readonly sigma2: number;
  /** In 1/16 standard deviation. */
  readonly step: number;
}

/** Returns the depth of each level, mm. */
export function levelDepths(q: Quantizer): Uint16Array {
  /** Distance from depth z to z + 1, in 2⁻¹⁶ levels. All values are integers below 2⁵³. */
  const growth = (z: number): number =>
    Math.floor(1048576000 / (q.step * (q.sigma0 + Math.floor((q.sigma2 * z * z) / 1000000))));
  const depths = new Uint16Array(LEVELS);
  let z = 1;
  let v = growth(0); // of z
  let next = v + growth(1); // of z + 1
  for (let level = 0; level < LEVELS; level++) {
    const target = 65536 * level;
    while (z < MAX_DEPTH && Math.abs(next - target) < Math.abs(v - target)) {
      z++;
      v = next;
      next += growth(z);
    }
    depths[level] = z;
  }
  return depths;
}
