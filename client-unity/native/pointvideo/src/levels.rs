//! Depths by segment and luma sample.

use crate::object::Quantizer;

/// Segments, map values 1 to 247.
const SEGMENTS: usize = 247;
/// Levels from a segment's start to the next one's.
const STEPS: usize = 220;
/// Luma sample of the lowest level of an even segment.
const BLACK: usize = 18;

/// Depths in mm, 256 per map value; 0 for map value 0.
pub(crate) struct Depths(Vec<u16>);

impl Depths {
    pub fn new(q: Quantizer) -> Self {
        let levels = levels(q);
        let mut table = vec![0; 256];
        for h in 0..SEGMENTS {
            table.extend((0..256usize).map(|y| {
                let q = y.saturating_sub(BLACK).min(STEPS);
                levels[STEPS * h + if h % 2 == 0 { q } else { STEPS - q }]
            }));
        }
        table.resize(256 * 256, 0);
        Depths(table)
    }

    /// Depth of a pixel, by map value and luma sample.
    #[inline(always)]
    pub fn get(&self, map: u8, luma: u8) -> u16 {
        self.0[usize::from(map) << 8 | usize::from(luma)]
    }
}

/// The depth of each level, mm.
fn levels(q: Quantizer) -> Vec<u16> {
    let (sigma0, sigma2, step) = (u64::from(q.sigma0), u64::from(q.sigma2), u64::from(q.step));
    let mut v = 0u64;
    let values: Vec<u64> = (0..=65535u64)
        .map(|z| {
            let here = v;
            v += 1_048_576_000 / (step * (sigma0 + sigma2 * z * z / 1_000_000));
            here
        })
        .collect();
    let mut z = 1;
    (0..=(SEGMENTS * STEPS) as u64)
        .map(|level| {
            // Steps never grow with depth, so the distance to a level has a single minimum.
            let off = |z: usize| values[z].abs_diff(65536 * level);
            while z < 65535 && off(z + 1) < off(z) {
                z += 1;
            }
            z as u16
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearest_depths() {
        for q in [(1000, 1000, 16), (1, 0, 1), (65535, 65535, 128), (700, 60, 24), (30000, 65535, 1)] {
            let q = Quantizer { sigma0: q.0, sigma2: q.1, step: q.2 };
            let (mut v, mut values) = (0u64, Vec::new());
            for z in 0..=65535u64 {
                values.push(v);
                let s = u64::from(q.sigma0) + u64::from(q.sigma2) * z * z / 1_000_000;
                v += 1_048_576_000 / (u64::from(q.step) * s);
            }
            let got = levels(q);
            for level in (0..got.len()).step_by(3571) {
                let want = (1..65536).min_by_key(|z| values[*z].abs_diff(65536 * level as u64));
                assert_eq!(Some(usize::from(got[level])), want, "{q:?} level {level}");
            }
        }
    }

    #[test]
    fn segments_alternate() {
        let q = Quantizer { sigma0: 1000, sigma2: 0, step: 16 };
        let d = Depths::new(q);
        assert_eq!((d.get(0, 100), d.get(1, 0), d.get(1, 18), d.get(1, 255)), (0, 1, 1, 220));
        // Segment 1 falls from level 440 to level 220.
        assert_eq!((d.get(2, 0), d.get(2, 18), d.get(2, 238), d.get(3, 18)), (440, 440, 220, 440));
        assert_eq!(d.get(247, 238), (247 * 220) as u16);
    }
}
