//! Decodes a stream with known samples, intact and damaged.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use proptest::prelude::*;
use video::{BestDecoder, Config, Matrix, OpenH264, Picture, VideoDecoder};

/// avcC and frames of tests/data/ramp.bin.
fn ramp() -> (Vec<u8>, Vec<Vec<u8>>) {
    let mut b: &[u8] = include_bytes!("data/ramp.bin");
    let mut list = Vec::new();
    while !b.is_empty() {
        let (length, rest) = b.split_at(4);
        let (item, rest) = rest.split_at(u32::from_le_bytes(length.try_into().unwrap()) as usize);
        list.push(item.to_vec());
        b = rest;
    }
    (list.remove(0), list)
}

fn off(p: &Picture, plane: usize, wanted: impl Fn(f64, f64) -> f64) -> f64 {
    let (w, h) = if plane == 0 { (p.width, p.height) } else { (p.width / 2, p.height / 2) };
    assert_eq!(p.planes[plane].len(), w * h);
    let at = |i: usize, n: usize| (i as f64 + 0.5) / n as f64;
    let samples = p.planes[plane].iter().enumerate();
    samples.map(|(i, v)| (f64::from(*v) - wanted(at(i % w, w), at(i / w, h))).abs()).fold(0.0, f64::max)
}

/// Decodes the ramp, and compares each picture with its samples.
fn decodes_ramp(decoder: &mut dyn VideoDecoder) {
    let (avcc, frames) = ramp();
    let config = Config::parse(&avcc).unwrap();
    assert_eq!((config.width, config.height, config.matrix, config.full_range), (64, 64, Some(Matrix::Bt601), true));
    let mut p = Picture::default();
    decoder.configure(&config).unwrap();
    for (i, f) in frames.iter().enumerate() {
        decoder.decode(f, &mut p).unwrap();
        assert_eq!((p.width, p.height), (64, 64));
        let worst =
            off(&p, 0, |x, _| 30.0 + 190.0 * x)
                .max(off(&p, 1, |_, y| 60.0 + 130.0 * y))
                .max(off(&p, 2, |_, _| 40.0 + 10.0 * i as f64));
        assert!(worst < 8.0, "frame {i} is off by {worst}");
    }
}

#[test]
fn decodes_each_frame_at_once() {
    decodes_ramp(&mut OpenH264::default());
}

/// With HOLOCAST_VIDEO=platform, OpenH264 must not step in.
#[test]
fn platform_decodes_each_frame_at_once() {
    let mut decoder = BestDecoder::new(true);
    decodes_ramp(&mut decoder);
    let note = decoder.take_note();
    let required = std::env::var("HOLOCAST_VIDEO").is_ok_and(|v| v == "platform");
    assert!(note.is_none() || !required, "{note:?}");
    println!("{}", note.unwrap_or("the platform's decoder decodes".into()));
}

/// By default, OpenH264 delays the output of Main and High profile streams.
#[test]
fn decodes_byte_streams_at_once() {
    for bytes in [&include_bytes!("data/ramp-main.h264")[..], include_bytes!("data/ramp-high.h264")] {
        let (mut decoder, mut p) = (OpenH264::default(), Picture::default());
        let frames = access_units(bytes);
        assert_eq!(frames.len(), 8);
        for (i, f) in frames.iter().enumerate() {
            match Config::of_key_frame(f) {
                Ok(config) if i == 0 => decoder.configure(&config).unwrap(),
                config => assert_eq!(config.is_ok(), i == 5),
            }
            decoder.decode(f, &mut p).unwrap();
            let worst = off(&p, 0, |x, _| 30.0 + 190.0 * x).max(off(&p, 2, |_, _| 40.0 + 10.0 * i as f64));
            assert!(worst < 8.0, "frame {i} is off by {worst}");
        }
    }
}

/// Splits a byte stream before its access unit delimiters.
fn access_units(bytes: &[u8]) -> Vec<&[u8]> {
    let mut starts: Vec<_> = (0..bytes.len()).filter(|at| bytes[*at..].starts_with(&[0, 0, 0, 1, 9])).collect();
    starts.push(bytes.len());
    starts.windows(2).map(|w| &bytes[w[0]..w[1]]).collect()
}

#[test]
fn rejects_wrong_key_frames() {
    let frames = access_units(include_bytes!("data/ramp-high.h264"));
    let error = |b: &[u8]| Config::of_key_frame(b).unwrap_err().to_string();
    assert_eq!(error(frames[1]), "the key frame is no IDR picture");
    assert_eq!(error(&[]), "no sequence parameter set");
    assert_eq!(error(&[frames[0], frames[0]].concat()), "more than one sequence parameter set");
    assert_eq!(error(&frames[0][..16]), "the decoder configuration is truncated");
    let many = [frames[0], &[&[0, 0, 1, 8][..], &[7; 5000]].concat()].concat();
    assert_eq!(error(&many), "parameter sets of more than 4096 bytes");
}

#[test]
fn recovers_at_a_key_frame() {
    let (avcc, frames) = ramp();
    let (mut decoder, mut p) = (OpenH264::default(), Picture::default());
    assert!(decoder.decode(&frames[0], &mut p).is_err(), "without a configuration");
    decoder.configure(&Config::parse(&avcc).unwrap()).unwrap();
    assert!(decoder.decode(&frames[1], &mut p).is_err(), "without a key frame");
    decoder.decode(&frames[0], &mut p).unwrap();
    assert!(decoder.decode(&frames[1][..frames[1].len() - 3], &mut p).is_err(), "cut off");
    decoder.decode(&frames[3], &mut p).unwrap();
    assert!(off(&p, 2, |_, _| 70.0) < 8.0);
}

#[test]
fn rejects_unsupported_configurations() {
    let (avcc, _) = ramp();
    let with = |at: usize, v: u8| {
        let mut b = avcc.clone();
        b[at] = v;
        Config::parse(&b).unwrap_err().to_string()
    };
    assert_eq!(with(0, 2), "unsupported version 2 of the decoder configuration");
    assert_eq!(with(5, 0xe0), "no sequence parameter set");
    assert_eq!(with(8, 0x68), "a parameter set that is none");
    assert_eq!(Config::parse(&avcc[..20]).unwrap_err().to_string(), "the decoder configuration is truncated");
    assert_eq!(Config::parse(&[1; 5000]).unwrap_err().to_string(), "a decoder configuration of 5000 bytes");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// Damage causes an error or a wrong picture, never a crash.
    #[test]
    fn takes_any_damage(frame in 0usize..4, at in 0usize..4096, v: u8, cut in 0usize..4096) {
        let (avcc, mut frames) = ramp();
        let n = frames[frame].len();
        frames[frame][at % n] = v;
        frames[frame].truncate(1 + cut % n);
        let (mut decoder, mut p) = (OpenH264::default(), Picture::default());
        decoder.configure(&Config::parse(&avcc).unwrap()).unwrap();
        for f in &frames {
            let _ = decoder.decode(f, &mut p);
        }
    }

    #[test]
    fn takes_any_damage_to_a_byte_stream(frame in 0usize..8, at in 0usize..4096, v: u8, cut in 0usize..4096) {
        let high = include_bytes!("data/ramp-high.h264");
        let mut frames: Vec<_> = access_units(high).into_iter().map(<[u8]>::to_vec).collect();
        let n = frames[frame].len();
        frames[frame][at % n] = v;
        frames[frame].truncate(1 + cut % n);
        let (mut decoder, mut p) = (OpenH264::default(), Picture::default());
        for f in &frames {
            if let Ok(config) = Config::of_key_frame(f) {
                let _ = decoder.configure(&config);
            }
            let _ = decoder.decode(f, &mut p);
        }
    }

    #[test]
    fn takes_any_configuration(at in 0usize..64, v: u8, any in prop::collection::vec(any::<u8>(), 0..200)) {
        let (mut avcc, _) = ramp();
        let n = avcc.len();
        avcc[at % n] = v;
        let _ = Config::parse(&avcc);
        let _ = Config::parse(&any);
        let _ = Config::of_key_frame(&any);
    }
}
