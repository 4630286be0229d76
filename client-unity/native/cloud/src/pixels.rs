//! Points of layouts A and W at their pixels, for a renderer that looks up a point's neighbors.

/// Pixels around the grid that never hold a point; neighbors need no bounds checks.
pub const BORDER: usize = 4;

/// Size in words of a grid of two words per pixel, with its border.
pub fn grid_words(width: usize, height: usize) -> usize {
    2 * (width + 2 * BORDER) * (height + 2 * BORDER)
}

/// Writes points, two words each, at their pixels. `grid` has `grid_words(width, height)` zeros.
/// Points outside the grid are skipped.
pub fn scatter(points: &[u32], width: usize, height: usize, grid: &mut [u32]) {
    let stride = width + 2 * BORDER;
    for p in points.chunks_exact(2) {
        let (x, y) = ((p[0] & 0xfff) as usize, (p[0] >> 12 & 0xfff) as usize);
        let at = 2 * ((y + BORDER) * stride + x + BORDER);
        if x < width && y < height {
            if let Some(to) = grid.get_mut(at..at + 2) {
                to.copy_from_slice(p);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(x: u32, y: u32, depth: u32) -> [u32; 2] {
        [x | y << 12 | 7 << 24, depth | 8 << 16 | 9 << 24]
    }

    #[test]
    fn points_lie_at_their_pixels() {
        let points = [point(0, 0, 1000), point(2, 1, 2000), point(3, 0, 1), point(0, 2, 1), point(4095, 4095, 1)];
        let (width, height) = (3, 2);
        let mut grid = vec![0; grid_words(width, height)];
        scatter(points.as_flattened(), width, height, &mut grid);
        let stride = width + 2 * BORDER;
        for (i, words) in grid.chunks_exact(2).enumerate() {
            let expected = match (i % stride, i / stride) {
                (BORDER, BORDER) => point(0, 0, 1000),
                (6, 5) => point(2, 1, 2000),
                _ => [0, 0],
            };
            assert_eq!(words, expected, "pixel {i}");
        }
    }

    #[test]
    fn a_short_grid_is_not_exceeded() {
        let mut grid = [0; 10];
        scatter(&point(2, 1, 2000), 3, 2, &mut grid);
        assert_eq!(grid, [0; 10]);
    }
}
