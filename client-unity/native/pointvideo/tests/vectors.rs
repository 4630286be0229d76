//! Test vectors shared by all decoders (internal/pointvideo/testdata).
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::Path;

use cloud::Limits;
use pointvideo::Decoder;
use serde::Deserialize;

#[derive(Deserialize)]
struct Manifest {
    valid: Vec<Valid>,
    invalid: Vec<Invalid>,
}

#[derive(Deserialize)]
struct Valid {
    name: String,
    width: usize,
    height: usize,
    frames: Vec<Picture>,
}

#[derive(Deserialize)]
struct Picture {
    object: String,
    index: u16,
    sequence: u32,
    points: usize,
    depth: String,
    color: String,
}

#[derive(Deserialize)]
struct Invalid {
    name: String,
    objects: Vec<String>,
    error: String,
}

fn read(name: &str) -> Vec<u8> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../internal/pointvideo/testdata");
    std::fs::read(dir.join(name)).unwrap()
}

fn manifest() -> Manifest {
    serde_json::from_slice(&read("manifest.json")).unwrap()
}

/// SHA-256 of depth and color, laid out as the manifest says.
fn digests(words: &[u32], width: usize, height: usize) -> [String; 2] {
    let (mut depth, mut color) = (vec![0u8; 2 * width * height], vec![0u8; 3 * width * height]);
    for p in words.chunks(2) {
        let at = (p[0] >> 12 & 0xfff) as usize * width + (p[0] & 0xfff) as usize;
        depth[2 * at..2 * at + 2].copy_from_slice(&(p[1] as u16).to_le_bytes());
        color[3 * at..3 * at + 3].copy_from_slice(&[(p[0] >> 24) as u8, (p[1] >> 16) as u8, (p[1] >> 24) as u8]);
    }
    [depth, color].map(|b| {
        let digest = ring::digest::digest(&ring::digest::SHA256, &b);
        digest.as_ref().iter().map(|v| format!("{v:02x}")).collect()
    })
}

#[test]
fn valid_objects() {
    let list = manifest().valid;
    assert!(list.len() >= 7);
    for v in list {
        let (mut d, mut words) = (Decoder::new(false), Vec::new());
        for f in v.frames {
            let object = read(&f.object);
            let frame =
                d.decode(&object, &Limits::default(), &mut words).unwrap_or_else(|e| panic!("{}: {e}", f.object));
            let h = frame.header;
            assert_eq!((usize::from(h.width), usize::from(h.height)), (v.width, v.height), "{}", v.name);
            assert_eq!((h.sequence, frame.points), (f.sequence, f.points), "{}", f.object);
            assert_eq!(pointvideo::is_key(&object), f.index == 0, "{}", f.object);
            assert_eq!(digests(&words, v.width, v.height), [f.depth, f.color], "{}", f.object);
        }
    }
}

#[test]
fn invalid_objects() {
    let list = manifest().invalid;
    assert!(list.len() >= 48);
    for v in list {
        let (mut d, mut words) = (Decoder::new(false), Vec::new());
        let last = v.objects.len() - 1;
        for (i, name) in v.objects.iter().enumerate() {
            let error = d.decode(&read(name), &Limits::default(), &mut words).err();
            let want = if i == last { v.error.as_str() } else { "" };
            assert_eq!(error.as_ref().map_or("", |e| e.field), want, "{}: {name}: {error:?}", v.name);
        }
    }
}

/// Damaged vectors cause no panic.
#[test]
fn damaged_objects() {
    let (mut d, mut words) = (Decoder::new(false), Vec::new());
    let limits = Limits { max_points: 20_000, grid: Some((64, 48)) };
    let (key, next) = (read("room-0.hcpf"), read("room-1.hcpf"));
    for at in 0..next.len().min(400) {
        for bit in [0, 3, 7] {
            let mut damaged = next.clone();
            damaged[at] ^= 1 << bit;
            d.decode(&key, &limits, &mut words).unwrap();
            let _ = d.decode(&damaged, &limits, &mut words);
        }
    }
}
