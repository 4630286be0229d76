//! Layouts B and C: unorganized points.

use crate::Escapes;

#[inline(always)]
fn put(out: &mut [u32], x: i32, y: i32, z: i32, r: i32, g: i32, b: i32) {
    out[0] = (x & 0xffff) as u32 | (y as u32) << 16;
    out[1] = (z & 0xffff) as u32 | ((r & 0xff) as u32) << 16 | (g as u32) << 24;
    out[2] = (b & 0xff) as u32;
}

/// Decodes layout B to three words per point. Returns false if `raw` does not hold the planes of
/// `n` points.
pub(crate) fn deltas(raw: &[u8], n: usize, out: &mut [u32]) -> bool {
    let packed = n.div_ceil(2);
    if raw.len() < 4 * packed + n {
        return false;
    }
    let (xs, rest) = raw.split_at(packed);
    let (ys, rest) = rest.split_at(packed);
    let (zs, rest) = rest.split_at(packed);
    let (gs, rest) = rest.split_at(packed);
    let (chroma, escapes) = rest.split_at(n);
    let mut escapes = Escapes { left: escapes, bad: false };
    let mut v = [0i32; 6];
    for (k, (out, c)) in out.chunks_exact_mut(3).zip(chroma).enumerate() {
        let shift = 4 * (!k & 1);
        let nibble = |plane: &[u8]| u32::from(plane[k / 2] >> shift) & 15;
        let z = [nibble(xs), nibble(ys), nibble(zs), u32::from(c >> 4), nibble(gs), u32::from(c & 15)];
        if z.contains(&15) {
            let most = [
                Escapes::COORDINATE,
                Escapes::COORDINATE,
                Escapes::COORDINATE,
                Escapes::CHROMA,
                Escapes::GREEN,
                Escapes::CHROMA,
            ];
            for i in 0..6 {
                v[i] = v[i].wrapping_add(escapes.residual(z[i], most[i]));
            }
        } else {
            for i in 0..6 {
                v[i] = v[i].wrapping_add((z[i] >> 1) as i32 ^ -((z[i] & 1) as i32));
            }
        }
        let [x, y, z, rg, g, bg] = v;
        put(out, x, y, z, rg.wrapping_add(g), g, bg.wrapping_add(g));
    }
    escapes.spent()
}

/// Decodes layout C to three words per point; `raw` has nine bytes per point.
pub(crate) fn records(raw: &[u8], out: &mut [u32]) -> bool {
    if raw.len() != out.len() * 3 {
        return false;
    }
    for (out, b) in out.chunks_exact_mut(3).zip(raw.chunks_exact(9)) {
        let n = |i: usize| i32::from(b[i]);
        let pair = |i: usize| n(i) | n(i + 1) << 8;
        put(out, pair(0), pair(2), pair(4), n(6), n(7), n(8));
    }
    true
}
