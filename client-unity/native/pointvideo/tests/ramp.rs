//! Decodes objects made of the pictures of video/tests/data/ramp-high.h264, intact and damaged.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use cloud::{Frame, FrameError, Limits};
use pointvideo::Decoder;
use proptest::prelude::*;

const SIDE: usize = 64;

/// Eight frames; 0 and 5 are key frames.
fn pictures() -> Vec<Vec<u8>> {
    let bytes = include_bytes!("../../video/tests/data/ramp-high.h264");
    let mut starts: Vec<_> = (0..bytes.len()).filter(|at| bytes[*at..].starts_with(&[0, 0, 0, 1, 9])).collect();
    starts.push(bytes.len());
    starts.windows(2).map(|w| bytes[w[0]..w[1]].to_vec()).collect()
}

/// A zstd frame of one uncompressed block (RFC 8878 §3.1.1).
fn zstd(content: &[u8]) -> Vec<u8> {
    let n = content.len();
    let mut b = vec![0x28, 0xb5, 0x2f, 0xfd, 0xa0];
    b.extend((n as u32).to_le_bytes());
    b.extend(&((n as u32) << 3 | 1).to_le_bytes()[..3]);
    b.extend(content);
    b
}

/// Planes of a map: in a key frame, the first half of each row is 1; in other frames, nothing changes.
fn planes(key: bool) -> Vec<u8> {
    if !key {
        let mut gaps = vec![255; SIDE * SIDE / 255];
        gaps.push((SIDE * SIDE % 255) as u8);
        return gaps;
    }
    // The first row's pixel 0 becomes 1 and pixel 32 becomes 0; the others are predicted.
    let mut gaps = vec![0, 31];
    gaps.extend(vec![255; (SIDE * SIDE - 33) / 255]);
    gaps.push(((SIDE * SIDE - 33) % 255) as u8);
    gaps.extend([8 + 1, 0]);
    gaps
}

/// An object of frame n.
fn object(n: usize) -> Vec<u8> {
    let (index, pictures) = (n % 5, pictures());
    let planes = planes(index == 0);
    let mut b = b"HCPF\x01\x04\x02\x00".to_vec();
    b.extend((n as u32).to_le_bytes());
    b.extend([0; 16]);
    b.extend([3, 0, 0, 1, SIDE as u8, 0, SIDE as u8, 0]);
    b.extend((SIDE as u32 * SIDE as u32 / 2).to_le_bytes());
    b.extend((planes.len() as u32).to_le_bytes());
    b.extend([0xe8, 3, 0, 0, 16, 0, index as u8, 0]); // 1 mm, whole steps
    let map = zstd(&planes);
    b.extend((map.len() as u32).to_le_bytes());
    b.extend((pictures[n].len() as u32).to_le_bytes());
    b.extend(map);
    b.extend(&pictures[n]);
    b.extend(&pictures[n]);
    b
}

fn decode(d: &mut Decoder, object: &[u8]) -> Result<(Frame, Vec<u32>), FrameError> {
    let mut words = Vec::new();
    d.decode(object, &Limits::default(), &mut words).map(|f| (f, words))
}

#[test]
fn decodes_in_order() {
    let mut d = Decoder::new(false);
    for n in 0..8 {
        let (f, words) = decode(&mut d, &object(n)).unwrap();
        assert_eq!((f.points, f.header.sequence, f.header.camera), (SIDE * SIDE / 2, n as u32, 3));
        assert_eq!(words.len(), SIDE * SIDE);
        for (i, p) in words.chunks(2).enumerate() {
            assert_eq!((p[0] & 0xfff, p[0] >> 12 & 0xfff), ((i % 32) as u32, (i / 32) as u32));
            let luma = 30.0 + 190.0 * (f64::from(p[0] & 0xfff) + 0.5) / SIDE as f64;
            assert!((f64::from(p[1] & 0xffff) - (luma - 18.0)).abs() < 8.0, "{n} {i}");
            let red = luma + 1.5748 * (40.0 + 10.0 * n as f64 - 128.0);
            assert!((f64::from(p[0] >> 24) - red.clamp(0.0, 255.0)).abs() < 16.0, "{n} {i}");
        }
    }
}

#[test]
fn waits_for_a_key_frame_after_an_error() {
    let mut d = Decoder::new(false);
    let field = |d: &mut Decoder, b: &[u8]| decode(d, b).err().map_or("", |e| e.field);
    assert_eq!(field(&mut d, &object(1)), "index");
    assert_eq!(field(&mut d, &object(0)), "");
    assert_eq!(field(&mut d, &object(2)), "index");
    assert_eq!(field(&mut d, &object(1)), "index");
    assert_eq!(field(&mut d, &object(5)), "");
    let mut other = object(6);
    other[44] = 1;
    assert_eq!(field(&mut d, &other), "parameters");
    assert_eq!(field(&mut d, &object(0)), "");
    assert_eq!(field(&mut d, &object(1)[..70]), "length");
    let mut small = object(0);
    small[32] = 60;
    assert_eq!(field(&mut d, &small), "planes");
    let no_picture = object(0);
    assert_eq!(field(&mut d, &no_picture[..no_picture.len() - pictures()[0].len()]), "picture");
    assert_eq!(field(&mut d, &object(5)), "");
    assert_eq!(field(&mut d, &object(6)), "");
}

#[test]
fn limits_are_enforced() {
    let (mut d, mut words) = (Decoder::new(false), Vec::new());
    let mut field = |l: Limits| d.decode(&object(0), &l, &mut words).err().map_or("", |e| e.field);
    assert_eq!(field(Limits { max_points: 2047, grid: None }), "points");
    assert_eq!(field(Limits { grid: Some((64, 63)), ..Limits::default() }), "width");
    assert_eq!(field(Limits { max_points: 2048, grid: Some((64, 64)) }), "");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// Damage causes an error or wrong points, never a crash.
    #[test]
    fn takes_any_damage(frame in 0usize..3, at in 0usize..4096, v: u8, cut in 0usize..4096, head: bool) {
        let limits = Limits { max_points: 10_000, grid: None };
        let (mut d, mut words) = (Decoder::new(false), Vec::new());
        for n in 0..3 {
            let mut b = object(n);
            if n == frame {
                let n = b.len();
                b[at % if head { 100 } else { n }] = v;
                b.truncate(n - if cut < 2048 { 0 } else { cut % n });
            }
            let _ = d.decode(&b, &limits, &mut words);
            prop_assert!(words.len() <= 2 * limits.max_points + 2);
        }
    }
}
