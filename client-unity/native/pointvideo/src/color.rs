//! Full-range BT.709.

/// Offsets of R, G and B from the luma.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Chroma {
    r: i16,
    g: i16,
    b: i16,
}

impl Chroma {
    /// (65536 Y + n) >> 16 is Y + (n >> 16).
    pub fn new(cb: u8, cr: u8) -> Self {
        let (cb, cr) = (i32::from(cb) - 128, i32::from(cr) - 128);
        let add = |n: i32| ((n + 32768) >> 16) as i16;
        Chroma { r: add(103_206 * cr), g: add(-12_276 * cb - 30_679 * cr), b: add(121_609 * cb) }
    }

    /// R, G and B of a pixel.
    #[inline(always)]
    pub fn rgb(self, luma: u8) -> [u32; 3] {
        let add = |v: i16| (i16::from(luma) + v).clamp(0, 255) as u32;
        [add(self.r), add(self.g), add(self.b)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_specified() {
        for n in (0u32..1 << 24).step_by(997) {
            let (y, cb, cr) = (n as u8, (n >> 8) as u8, (n >> 16) as u8);
            let (luma, b, r) = (i64::from(y), i64::from(cb) - 128, i64::from(cr) - 128);
            let clamp = |v: i64| ((v + 32768) >> 16).clamp(0, 255) as u32;
            let want = [
                clamp(65536 * luma + 103_206 * r),
                clamp(65536 * luma - 12_276 * b - 30_679 * r),
                clamp(65536 * luma + 121_609 * b),
            ];
            assert_eq!(Chroma::new(cb, cr).rgb(y), want);
        }
    }
}
