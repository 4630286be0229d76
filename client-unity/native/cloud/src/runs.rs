/// Positions of mispredicted pixels, coded as the runs between them (docs/spec/point-cloud-frame.md,
/// Mask).
#[derive(Debug, Clone)]
pub struct Runs<'a> {
    left: &'a [u8],
    /// First position after the last one returned.
    from: usize,
    pixels: usize,
}

impl<'a> Runs<'a> {
    /// Reads the runs at the start of `bytes`, for a grid of `pixels` pixels.
    pub fn new(bytes: &'a [u8], pixels: usize) -> Self {
        Runs { left: bytes, from: 0, pixels }
    }

    /// The next position, or `pixels` at the end. None if the runs exceed the grid or do not end.
    #[allow(clippy::should_implement_trait)] // the end is not None
    #[inline]
    pub fn next(&mut self) -> Option<usize> {
        let mut at = self.from;
        loop {
            let (b, left) = self.left.split_first()?;
            self.left = left;
            at += usize::from(*b);
            if at > self.pixels {
                return None;
            }
            if *b < 255 {
                self.from = at + 1;
                return Some(at);
            }
        }
    }

    /// The bytes that follow the runs.
    pub fn rest(&self) -> &'a [u8] {
        self.left
    }
}

#[cfg(test)]
mod tests {
    use super::Runs;

    fn all(bytes: &[u8], pixels: usize) -> Option<(Vec<usize>, usize)> {
        let mut r = Runs::new(bytes, pixels);
        let mut list = Vec::new();
        loop {
            match r.next()? {
                at if at == pixels => return Some((list, r.rest().len())),
                at => list.push(at),
            }
        }
    }

    #[test]
    fn positions_and_errors() {
        assert_eq!(all(&[2, 0, 1, 0, 9], 6), Some((vec![2, 3, 5], 1)));
        assert_eq!(all(&[255, 0, 0], 256), Some((vec![255], 0)));
        assert_eq!(all(&[0], 0), Some((vec![], 0)));
        assert_eq!(all(&[7], 6), None);
        assert_eq!(all(&[255], 255), None);
        assert_eq!(all(&[2, 1], 6), None);
    }
}
