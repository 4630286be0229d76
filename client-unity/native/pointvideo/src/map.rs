//! The map of segments, lossless.

use cloud::Runs;

/// Symbols below this are candidates; the others are values plus this.
const CANDIDATES: u8 = 8;

/// The maps of a group's current and previous frame. Each row is preceded by one pixel outside the
/// grid, and the first row by a whole row of such pixels; they are 0.
#[derive(Debug, Default)]
pub(crate) struct Map {
    now: Vec<u8>,
    before: Vec<u8>,
    /// Bytes per row.
    stride: usize,
}

impl Map {
    /// Decodes the planes of a frame: a key frame, or the successor of the last decoded frame, of the
    /// same size. Returns the number of nonzero pixels; None if the planes are damaged.
    pub fn decode(&mut self, planes: &[u8], width: usize, height: usize, key: bool) -> Option<usize> {
        let pixels = width * height;
        let (wrong, symbols) = count(planes, pixels)?;
        if symbols.len() != wrong {
            return None;
        }
        self.stride = width + 1;
        if key {
            for map in [&mut self.now, &mut self.before] {
                map.clear();
                map.resize(self.stride * (height + 1), 0);
            }
        } else {
            self.before.copy_from_slice(&self.now);
        }
        let (mut runs, mut symbols) = (Runs::new(planes, pixels), symbols.iter());
        let mut wrong = runs.next()?;
        for y in 0..height {
            let first = self.stride * (y + 1) + 1;
            let mut x = 0;
            loop {
                let end = width.min(wrong - y * width);
                self.predict(first + x, first + end, key);
                if end == width {
                    break;
                }
                self.correct(first + end, *symbols.next()?, key)?;
                wrong = runs.next()?;
                x = end + 1;
            }
        }
        Some(self.now.iter().filter(|m| **m != 0).count())
    }

    /// Row y.
    pub fn row(&self, y: usize) -> &[u8] {
        &self.now[self.stride * (y + 1) + 1..self.stride * (y + 2)]
    }

    /// Sets correctly predicted pixels. In a frame after a key frame, `now` holds the previous frame's.
    #[inline]
    fn predict(&mut self, from: usize, to: usize, key: bool) {
        for at in from..to {
            // An unchanged pixel leaves the following ones unchanged.
            if !key && !self.changed(at - 1) {
                return;
            }
            if key || self.changed(at - self.stride) {
                self.now[at] = self.spatial(at);
            }
        }
    }

    #[inline]
    fn changed(&self, at: usize) -> bool {
        self.now[at] != self.before[at]
    }

    #[inline]
    fn spatial(&self, at: usize) -> u8 {
        let (n, nw) = (self.now[at - self.stride], self.now[at - self.stride - 1]);
        if n != nw {
            n
        } else {
            self.now[at - 1]
        }
    }

    /// Sets a mispredicted pixel. None if its symbol is invalid.
    fn correct(&mut self, at: usize, symbol: u8, key: bool) -> Option<()> {
        let (w, n, p) = (self.now[at - 1], self.now[at - self.stride], self.before[at]);
        let spatial = key || self.changed(at - 1) && self.changed(at - self.stride);
        let prediction = if spatial { self.spatial(at) } else { p };
        let value = match symbol.checked_sub(CANDIDATES) {
            Some(v) => Some(v).filter(|v| *v != prediction),
            None => {
                let all = [0, w, n, p];
                let new = |i: &usize| all[*i] != prediction && !all[..*i].contains(&all[*i]);
                (0..all.len()).filter(new).nth(symbol.into()).map(|i| all[i])
            }
        };
        self.now[at] = value?;
        Some(())
    }
}

/// Number of mispredicted pixels, and the bytes after the runs.
fn count(planes: &[u8], pixels: usize) -> Option<(usize, &[u8])> {
    let (mut runs, mut n) = (Runs::new(planes, pixels), 0);
    while runs.next()? != pixels {
        n += 1;
    }
    Some((n, runs.rest()))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Encodes a map pixel by pixel, as the specification says.
    pub(crate) fn encode(now: &[u8], before: Option<&[u8]>, width: usize) -> Vec<u8> {
        let (mut runs, mut symbols, mut gap) = (Vec::new(), Vec::new(), 0);
        let end = |runs: &mut Vec<u8>, gap: usize| {
            runs.extend(std::iter::repeat_n(255, gap / 255));
            runs.push((gap % 255) as u8);
        };
        for i in 0..now.len() {
            let (x, y) = (i % width, i / width);
            let at = |map: &[u8], dx: usize, dy: usize| if x < dx || y < dy { 0 } else { map[i - dx - dy * width] };
            let changed = |dx, dy| before.is_some_and(|b| at(now, dx, dy) != at(b, dx, dy));
            let (w, n, nw) = (at(now, 1, 0), at(now, 0, 1), at(now, 1, 1));
            let p = before.map_or(0, |b| b[i]);
            let spatial = if n != nw { n } else { w };
            let prediction = if before.is_none() || changed(1, 0) && changed(0, 1) { spatial } else { p };
            if now[i] == prediction {
                gap += 1;
                continue;
            }
            end(&mut runs, std::mem::take(&mut gap));
            let mut candidates = Vec::new();
            for c in [0, w, n, p] {
                if c != prediction && !candidates.contains(&c) {
                    candidates.push(c);
                }
            }
            let candidate = candidates.iter().position(|c| *c == now[i]);
            symbols.push(candidate.map_or(now[i] + CANDIDATES, |c| c as u8));
        }
        end(&mut runs, gap);
        runs.extend(symbols);
        runs
    }

    fn rows(m: &Map, height: usize) -> Vec<u8> {
        (0..height).flat_map(|y| m.row(y).to_vec()).collect()
    }

    proptest! {
        #[test]
        fn decodes_what_was_encoded(
            width in 1usize..40, height in 1usize..12,
            frames in prop::collection::vec(prop::collection::vec((0u8..6, 1usize..300), 1..60), 1..4),
        ) {
            let mut m = Map::default();
            let mut before: Option<Vec<u8>> = None;
            for runs in frames {
                // The rest of the map stays as in the previous frame.
                let mut now: Vec<u8> = runs.iter().flat_map(|(v, n)| vec![v * 49; *n % (2 * width)]).collect();
                now.truncate(width * height);
                let had = now.len();
                now.extend(before.as_ref().map_or(vec![7; width * height], |b| b.clone()).drain(had..));
                let planes = encode(&now, before.as_deref(), width);
                let points = m.decode(&planes, width, height, before.is_none());
                prop_assert_eq!(points, Some(now.iter().filter(|v| **v != 0).count()));
                prop_assert_eq!(rows(&m, height), &now[..]);
                before = Some(now);
            }
        }

        #[test]
        fn takes_any_planes(planes in prop::collection::vec(0u8..12, 0..60), more: Vec<u8>) {
            let mut m = Map::default();
            let _ = m.decode(&planes, 5, 4, true);
            let _ = m.decode(&more, 300, 2, true);
            let _ = m.decode(&planes, 300, 2, false);
        }
    }

    #[test]
    fn errors() {
        let bad = |planes: &[u8]| Map::default().decode(planes, 2, 2, true).is_none();
        assert_eq!(Map::default().decode(&[4], 2, 2, true), Some(0));
        assert_eq!(Map::default().decode(&[0, 3, 12], 2, 2, true), Some(4));
        assert!(bad(&[]) && bad(&[5]) && bad(&[0, 2, 12]), "runs");
        assert!(bad(&[0, 3]) && bad(&[4, 9]) && bad(&[0, 3, 9, 9]), "number of symbols");
        assert!(bad(&[0, 3, 0]) && bad(&[0, 3, 7]), "no candidate");
        assert!(bad(&[0, 3, 8]), "the prediction's value");
    }
}
