/**
 * Returns the end of the runs that start at `at`; 0 if they are unterminated or exceed `pixels`
 * (docs/spec/point-cloud-frame.md#mask).
 */
export function runsEnd(at: usize, end: usize, pixels: i32): usize {
  let pos = 0;
  while (at < end) {
    const b = <i32>load<u8>(at++);
    pos += b;
    if (pos > pixels) return 0;
    if (b == 255) continue;
    if (pos == pixels) return at;
    pos++;
  }
  return 0;
}
