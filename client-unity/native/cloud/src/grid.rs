//! Layout A: the validity mask, and depth and color by median-edge prediction.

use crate::header::{Header, Share};
use crate::lanes::Lanes;
use crate::runs::Runs;
use crate::Escapes;

/// A pixel in the predictor's representation, four 16-bit lanes from the lowest: depth, R−G, G in
/// the high byte, B−G. Depth and G have their top bit flipped so that signed comparison orders
/// them. Sums and differences wrap, as the specification requires.
type Pixel = u64;

const FLIPPED: Pixel = 0x8000_0000_8000;

/// Residuals of depth, R−G, G and B−G.
const fn residual(depth: i32, rg: i32, g: i32, bg: i32) -> Pixel {
    depth as u16 as u64 | (rg as u16 as u64) << 16 | (g as u8 as u64) << 40 | (bg as u16 as u64) << 48
}

/// The term that median-edge prediction subtracts from W + N.
#[inline(always)]
fn corner(w: Lanes, n: Lanes, nw: Lanes) -> Lanes {
    nw.max(w.min(n)).min(w.max(n))
}

/// Decodes grids, reusing its buffers.
pub(crate) struct Grid {
    bits: Vec<u64>,
    nibbles: Vec<u8>,
    row: Vec<Pixel>,
    residuals: Vec<Pixel>,
    escaped: Vec<u16>,
    /// Residuals by byte of two nibbles: depth and G here, R−G and B−G in `chroma`. 0 for an escape.
    depth_green: [Pixel; 256],
    chroma: [Pixel; 256],
    /// True if either nibble of a byte is an escape.
    escapes: [bool; 256],
}

impl Grid {
    pub fn new() -> Self {
        let mut g = Grid {
            bits: Vec::new(),
            nibbles: Vec::new(),
            row: Vec::new(),
            residuals: Vec::new(),
            escaped: Vec::new(),
            depth_green: [0; 256],
            chroma: [0; 256],
            escapes: [false; 256],
        };
        let unzigzag = |z: i32| if z == 15 { 0 } else { z >> 1 ^ -(z & 1) };
        for b in 0..256 {
            let (high, low) = (b as i32 >> 4, b as i32 & 15);
            g.depth_green[b] = residual(unzigzag(high), 0, unzigzag(low), 0);
            g.chroma[b] = residual(0, unzigzag(high), 0, unzigzag(low));
            g.escapes[b] = high == 15 || low == 15;
        }
        g
    }

    pub fn bytes(&self) -> usize {
        8 * (self.bits.capacity() + self.row.capacity() + self.residuals.capacity())
            + self.nibbles.capacity()
            + 2 * self.escaped.capacity()
    }

    /// Decodes the planes of one description into `out`, two words per point. Returns false if
    /// `raw` does not hold the planes of that many points.
    pub fn decode(&mut self, raw: &[u8], h: &Header, out: &mut [u32]) -> bool {
        let share = h.share();
        let n = h.points as usize;
        let Some((used, points)) = self.mask(raw, share.width, share.height) else { return false };
        let planes = &raw[used..];
        let packed = n.div_ceil(2);
        if points != n || planes.len() < 2 * packed + n {
            return false;
        }
        let (depth, planes) = planes.split_at(packed);
        let (green, planes) = planes.split_at(packed);
        let (chroma, escapes) = planes.split_at(n);
        // Per point, the depth nibble (high) and the G nibble (low).
        self.nibbles.resize(2 * packed, 0);
        for ((pair, d), g) in self.nibbles.chunks_exact_mut(2).zip(depth).zip(green) {
            pair[0] = (d & 0xf0) | g >> 4;
            pair[1] = d << 4 | (g & 15);
        }
        let mut escapes = Escapes { left: escapes, bad: false };
        self.rows(chroma, &mut escapes, share, out);
        escapes.spent()
    }

    /// Expands the gaps into validity bits, 64 pixels per word, each row starting a new word.
    /// Returns the bytes read and the number of valid pixels; None if the gaps do not add up to the
    /// grid.
    fn mask(&mut self, raw: &[u8], width: usize, height: usize) -> Option<(usize, usize)> {
        let words = width.div_ceil(64);
        let pixels = width * height;
        self.bits.clear();
        self.bits.resize(words * height, 0);
        // Mark the mispredicted pixels first, then derive the rows.
        let (mut row, mut y, mut runs) = (0, 0, Runs::new(raw, pixels));
        loop {
            let pos = runs.next()?;
            if pos == pixels {
                break;
            }
            while pos - row >= width {
                row += width;
                y += 1;
            }
            let x = pos - row;
            self.bits[y * words + x / 64] |= 1 << (x % 64);
        }
        let mut points = 0;
        for y in 0..if pixels > 0 { height } else { 0 } {
            let (done, rest) = self.bits.split_at_mut(y * words);
            let above = if y > 0 { &done[(y - 1) * words..] } else { &[] };
            let mut carry = above.first().is_some_and(|w| w & 1 != 0);
            let mut carry_above = u64::from(carry);
            for (i, here) in rest[..words].iter_mut().enumerate() {
                let north = above.get(i).copied().unwrap_or(0);
                let wrong = *here;
                let edge = north ^ (north << 1 | carry_above);
                carry_above = north >> 63;
                // Validity is constant between events.
                let mut events = edge | wrong;
                let (mut valid, mut from) = (0u64, 0);
                while events != 0 {
                    let x = events.trailing_zeros();
                    if carry {
                        valid |= (1 << x) - (1u64 << from);
                    }
                    if edge >> x & 1 != 0 {
                        carry = north >> x & 1 != 0;
                    }
                    carry ^= wrong >> x & 1 != 0;
                    from = x;
                    events &= events - 1;
                }
                if carry {
                    valid |= (1u64 << from).wrapping_neg();
                }
                if width - 64 * i < 64 {
                    valid &= (1 << (width - 64 * i)) - 1;
                }
                *here = valid;
                points += valid.count_ones() as usize;
            }
        }
        Some((raw.len() - runs.rest().len(), points))
    }

    fn rows(&mut self, chroma: &[u8], escapes: &mut Escapes<'_>, s: Share, out: &mut [u32]) {
        let words = s.width.div_ceil(64);
        if words == 0 {
            return;
        }
        // `row[x + 1]` holds pixel x of the row above until pixel x of this row replaces it.
        self.row.clear();
        self.row.resize(s.width + 1, FLIPPED);
        self.residuals.resize(s.width, 0);
        self.escaped.resize(s.width + 1, 0);
        let mut taken = 0;
        let mut out = out.chunks_exact_mut(2);
        for (y, bits) in self.bits.chunks_exact(words).enumerate() {
            let n: usize = bits.iter().map(|b| b.count_ones() as usize).sum();
            let (nibbles, chroma) = (&self.nibbles[taken..taken + n], &chroma[taken..taken + n]);
            taken += n;
            // List pixels with escapes first, since branching on each would be mispredicted.
            let mut m = 0;
            for (i, ((dg, c), r)) in nibbles.iter().zip(chroma).zip(&mut self.residuals).enumerate() {
                let (dg, c) = (usize::from(*dg), usize::from(*c));
                *r = self.depth_green[dg] | self.chroma[c];
                self.escaped[m] = i as u16;
                m += usize::from(self.escapes[dg] | self.escapes[c]);
            }
            for &i in &self.escaped[..m] {
                let i = usize::from(i);
                let (dg, c) = (u32::from(nibbles[i]), u32::from(chroma[i]));
                let depth = escapes.residual(dg >> 4, Escapes::COORDINATE);
                let rg = escapes.residual(c >> 4, Escapes::CHROMA);
                let green = escapes.residual(dg & 15, Escapes::GREEN);
                let bg = escapes.residual(c & 15, Escapes::CHROMA);
                self.residuals[i] = residual(depth, rg, green, bg);
            }
            if escapes.bad {
                return;
            }
            let line = (((y * s.step + s.dy) << 12) + s.dx) as u32;
            let step = s.step as u32;
            // In the first column, the pixel above stands in for the left neighbour.
            let mut w = Lanes::new(self.row[1]);
            let mut nw = w;
            let mut residuals = self.residuals[..n].iter();
            let mut x = 0;
            while x < s.width {
                let end = run_end(bits, x, s.width, false);
                for p in &mut self.row[x + 1..end + 1] {
                    let north = Lanes::new(*p);
                    w = w.add(north).sub(corner(w, north, nw));
                    nw = north;
                    *p = w.bits();
                }
                x = run_end(bits, end, s.width, true);
                let run = &mut self.row[end + 1..x + 1];
                let mut word = line + step * end as u32;
                for ((p, r), out) in run.iter_mut().zip(&mut residuals).zip(&mut out) {
                    let north = Lanes::new(*p);
                    w = w.add(north.add(Lanes::new(*r))).sub(corner(w, north, nw));
                    nw = north;
                    *p = w.bits();
                    let v = *p ^ FLIPPED;
                    let green = (v >> 40) as u32 & 0xff;
                    let red = ((v >> 16) as u32).wrapping_add(green);
                    let blue = ((v >> 48) as u32).wrapping_add(green);
                    out[0] = word | red << 24;
                    out[1] = v as u32 & 0xffff | green << 16 | blue << 24;
                    word = word.wrapping_add(step);
                }
            }
        }
    }
}

/// First pixel from x on whose validity differs from `valid`, or `width`.
#[inline]
fn run_end(bits: &[u64], mut x: usize, width: usize, valid: bool) -> usize {
    let flip = if valid { u64::MAX } else { 0 };
    while x < width {
        let w = (bits[x / 64] ^ flip) >> (x % 64);
        if w != 0 {
            return width.min(x + w.trailing_zeros() as usize);
        }
        x += 64 - x % 64;
    }
    width
}
