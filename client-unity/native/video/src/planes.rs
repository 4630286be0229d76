//! Copies pictures from the buffers of platform decoders.

use crate::{wrong, Picture, VideoError};

/// Order of the chroma samples, which follow the luma plane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Chroma {
    /// Cb and Cr interleaved (NV12).
    Interleaved,
    /// All Cb, then all Cr, with half the stride (I420).
    #[cfg_attr(windows, allow(dead_code))]
    Planar,
}

/// Layout of a decoder's buffer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Layout {
    pub chroma: Chroma,
    /// Bytes per luma row.
    pub stride: usize,
    /// Luma rows, the invisible ones included.
    pub rows: usize,
    /// Left and top of the visible part, even.
    pub crop: (usize, usize),
}

/// Copies the visible part, of `width` × `height`.
pub(crate) fn copy(
    bytes: &[u8], layout: &Layout, width: usize, height: usize, into: &mut Picture,
) -> Result<(), VideoError> {
    let Layout { chroma, stride, rows, crop: (left, top) } = *layout;
    let (w, h) = (width.div_ceil(2), height.div_ceil(2));
    let luma = stride.checked_mul(rows);
    let fits =
        left.checked_add(width).is_some_and(|n| n <= stride) && top.checked_add(height).is_some_and(|n| n <= rows);
    let (Some(luma), true) = (luma, fits) else {
        return wrong(format!("the decoder's buffer of {stride}×{rows} is smaller than a picture of {width}×{height}"));
    };
    let short = || VideoError(format!("the decoder's buffer of {} bytes is too small for its format", bytes.len()));
    // Bytes at an offset.
    let run = |at: usize, n: usize| at.checked_add(n).and_then(|end| bytes.get(at..end)).ok_or_else(short);
    (into.width, into.height) = (width, height);
    into.planes.iter_mut().for_each(Vec::clear);
    let [y, cb, cr] = &mut into.planes;
    for row in 0..height {
        y.extend_from_slice(run((top + row) * stride + left, width)?);
    }
    let (left, top) = (left / 2, top / 2);
    for row in 0..h {
        match chroma {
            Chroma::Interleaved => {
                let pairs = run(luma + (top + row) * stride + 2 * left, 2 * w)?;
                cb.extend(pairs.iter().step_by(2));
                cr.extend(pairs.iter().skip(1).step_by(2));
            }
            Chroma::Planar => {
                let at = luma + (top + row) * (stride / 2) + left;
                cb.extend_from_slice(run(at, w)?);
                cr.extend_from_slice(run(at + (stride / 2) * rows.div_ceil(2), w)?);
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A buffer whose luma is 10 × row + column; Cb adds 100 to the chroma position, Cr 200.
    fn buffer(chroma: Chroma, stride: usize, rows: usize) -> Vec<u8> {
        let luma = (0..rows).flat_map(|r| (0..stride).map(move |c| (10 * r + c) as u8));
        let plane =
            |n: usize| (0..rows.div_ceil(2)).flat_map(move |r| (0..stride / 2).map(move |c| (n + 10 * r + c) as u8));
        match chroma {
            Chroma::Planar => luma.chain(plane(100)).chain(plane(200)).collect(),
            Chroma::Interleaved => luma.chain(plane(100).zip(plane(200)).flat_map(|(a, b)| [a, b])).collect(),
        }
    }

    #[test]
    fn copies_the_visible_part() {
        for chroma in [Chroma::Interleaved, Chroma::Planar] {
            let bytes = buffer(chroma, 8, 6);
            let mut p = Picture::default();
            copy(&bytes, &Layout { chroma, stride: 8, rows: 6, crop: (2, 2) }, 4, 2, &mut p).unwrap_or_default();
            assert_eq!((p.width, p.height), (4, 2));
            assert_eq!(p.planes[0], [22, 23, 24, 25, 32, 33, 34, 35], "{chroma:?}");
            assert_eq!(p.planes[1..], [[111, 112], [211, 212]], "{chroma:?}");
            // Odd sizes round chroma up.
            copy(&bytes, &Layout { chroma, stride: 8, rows: 6, crop: (0, 0) }, 3, 3, &mut p).unwrap_or_default();
            assert_eq!(p.planes[0], [0, 1, 2, 10, 11, 12, 20, 21, 22], "{chroma:?}");
            assert_eq!(p.planes[1], [100, 101, 110, 111], "{chroma:?}");
        }
    }

    #[test]
    fn rejects_impossible_buffers() {
        let chroma = Chroma::Interleaved;
        let bytes = buffer(chroma, 8, 6);
        let mut p = Picture::default();
        for (stride, rows, crop, size) in [
            (8, 6, (0, 0), (9, 2)),
            (8, 6, (0, 0), (2, 7)),
            (8, 6, (6, 0), (4, 2)),
            (8, 6, (usize::MAX, 0), (4, 2)),
            (9, 6, (0, 0), (8, 6)),
            (8, 60, (0, 0), (8, 6)),
            (usize::MAX, 2, (0, 0), (8, 2)),
        ] {
            let layout = Layout { chroma, stride, rows, crop };
            assert!(copy(&bytes, &layout, size.0, size.1, &mut p).is_err(), "{layout:?} {size:?}");
        }
    }
}
