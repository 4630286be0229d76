//! Test vectors shared by all decoders (internal/pointcloud/testdata).
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use cloud::{Decoder, Layout, Limits};
use serde::Deserialize;
use std::path::PathBuf;

#[derive(Deserialize)]
struct Manifest {
    valid: Vec<Valid>,
    invalid: Vec<Invalid>,
}

#[derive(Deserialize)]
struct Valid {
    name: String,
    objects: Vec<String>,
    expected: String,
    header: Fields,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Fields {
    layout: String,
    sequence: u32,
    device_time: String,
    capture_time: String,
    camera: u16,
    description: u8,
    descriptions: u8,
    width: u16,
    height: u16,
    points: usize,
}

#[derive(Deserialize)]
struct Invalid {
    objects: Vec<String>,
    error: String,
}

fn dir() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../internal/pointcloud/testdata")
}

fn read(name: &str) -> Vec<u8> {
    std::fs::read(dir().join(name)).unwrap()
}

fn manifest() -> Manifest {
    serde_json::from_slice(&read("manifest.json")).unwrap()
}

/// Formats the frame as in the expected files.
fn lay_out(layout: Layout, width: usize, height: usize, words: &[u32]) -> Vec<u8> {
    let mut colours = Vec::new();
    if layout == Layout::A {
        let mut depth = vec![0u8; 2 * width * height];
        colours = vec![0; 3 * width * height];
        for w in words.chunks_exact(2) {
            let at = (w[0] >> 12 & 0xfff) as usize * width + (w[0] & 0xfff) as usize;
            depth[2 * at..2 * at + 2].copy_from_slice(&(w[1] as u16).to_le_bytes());
            colours[3 * at..3 * at + 3].copy_from_slice(&[(w[0] >> 24) as u8, (w[1] >> 16) as u8, (w[1] >> 24) as u8]);
        }
        depth.extend(colours);
        return depth;
    }
    let mut out = Vec::new();
    for w in words.chunks_exact(3) {
        out.extend(w[0].to_le_bytes());
        out.extend((w[1] as u16).to_le_bytes());
        colours.extend([(w[1] >> 16) as u8, (w[1] >> 24) as u8, w[2] as u8]);
    }
    out.extend(colours);
    out
}

#[test]
fn valid_frames() {
    let mut d = Decoder::new();
    let mut words = Vec::new();
    let list = manifest().valid;
    assert!(list.len() > 30);
    for v in list {
        let objects: Vec<_> = v.objects.iter().map(|n| read(n)).collect();
        let f = d.decode(&objects, &Limits::default(), &mut words).unwrap_or_else(|e| panic!("{}: {e}", v.name));
        let (h, want) = (&f.header, &v.header);
        assert_eq!(format!("{:?}", h.layout), want.layout, "{}", v.name);
        assert_eq!(
            (h.sequence, h.device_time.to_string(), h.capture_time.to_string(), h.camera, f.points),
            (want.sequence, want.device_time.clone(), want.capture_time.clone(), want.camera, want.points),
            "{}",
            v.name
        );
        assert_eq!(
            (h.description, h.descriptions, h.width, h.height),
            (want.description, want.descriptions, want.width, want.height),
            "{}",
            v.name
        );
        let got = lay_out(h.layout, h.width.into(), h.height.into(), &words);
        assert!(got == read(&v.expected), "{}: the frame differs from {}", v.name, v.expected);
    }
}

#[test]
fn invalid_frames() {
    let mut d = Decoder::new();
    let mut words = Vec::new();
    let list = manifest().invalid;
    assert!(list.len() > 30);
    for v in list {
        let objects: Vec<_> = v.objects.iter().map(|n| read(n)).collect();
        match d.decode(&objects, &Limits::default(), &mut words) {
            Err(e) => assert_eq!(e.field, v.error, "{}: {e}", v.objects[0]),
            Ok(_) => panic!("{} was decoded", v.objects[0]),
        }
    }
}

/// Damaged vectors cause no panic, and no allocation beyond the size in the header.
#[test]
fn damaged_frames() {
    let mut d = Decoder::new();
    let mut words = Vec::new();
    let mut decoded = 0;
    let limits = Limits { max_points: 20_000, grid: None };
    for v in manifest().valid.iter().filter(|v| v.objects.len() == 1) {
        let object = read(&v.objects[0]);
        for at in 0..object.len().min(400) {
            for bit in [0, 3, 7] {
                let mut damaged = object.clone();
                damaged[at] ^= 1 << bit;
                decoded += usize::from(d.decode(&[&damaged], &limits, &mut words).is_ok());
                assert!(words.len() <= 3 * limits.max_points);
            }
            let _ = d.decode(&[&object[..at]], &limits, &mut words);
        }
    }
    assert!(decoded > 0, "damage to times and sequence is undetectable");
}

#[test]
fn limits_are_enforced() {
    let mut d = Decoder::new();
    let mut words = Vec::new();
    let object = read("holes-a1.hcpf");
    let f = d.decode(&[&object], &Limits::default(), &mut words).unwrap();
    let few = Limits { max_points: f.points - 1, grid: None };
    assert_eq!(d.decode(&[&object], &few, &mut words).unwrap_err().field, "points");
    let other = Limits { grid: Some((f.header.width, f.header.height + 1)), ..Limits::default() };
    assert_eq!(d.decode(&[&object], &other, &mut words).unwrap_err().field, "width");
    assert_eq!(cloud::measure(&[&object], &Limits::default()).unwrap(), f);
}

mod rays {
    use cloud::{ray_table, Lens};

    #[test]
    fn ray_table_matches_go_bit_for_bit() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../internal/camera/testdata/raytable.json");
        let v: serde_json::Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
        let i = &v["intrinsics"];
        let n = |f: &str| i[f].as_f64().unwrap();
        let list = |f: &str| i[f].as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect::<Vec<_>>();
        let lens = Lens {
            width: n("width") as usize,
            height: n("height") as usize,
            f: [n("fx"), n("fy")],
            c: [n("cx"), n("cy")],
            k: list("k").try_into().unwrap(),
            p: list("p").try_into().unwrap(),
            max_radius: n("maxRadius"),
        };
        let table = ray_table(&lens);
        let mut without = 0;
        let mut bytes = Vec::new();
        for p in table.chunks_exact(2) {
            without += usize::from(p[0].is_nan());
            bytes.extend(if p[0].is_nan() { 0x7fc0_0000 } else { p[0].to_bits() }.to_le_bytes());
        }
        for p in table.chunks_exact(2) {
            bytes.extend(p[1].to_le_bytes());
        }
        assert_eq!(without as u64, v["withoutRays"].as_u64().unwrap());
        assert_eq!(sha256(&bytes), v["sha256"].as_str().unwrap());
    }

    /// SHA-256 (FIPS 180-4), used only by this test.
    fn sha256(data: &[u8]) -> String {
        let primes = || (2u64..).filter(|n| (2..*n).take_while(|d| d * d <= *n).all(|d| n % d != 0));
        let frac = |x: f64| ((x - x.floor()) * 4_294_967_296.0) as u32;
        let k: Vec<u32> = primes().take(64).map(|p| frac((p as f64).cbrt())).collect();
        let mut h: Vec<u32> = primes().take(8).map(|p| frac((p as f64).sqrt())).collect();
        let mut m = data.to_vec();
        m.push(0x80);
        while m.len() % 64 != 56 {
            m.push(0);
        }
        m.extend((8 * data.len() as u64).to_be_bytes());
        for block in m.chunks_exact(64) {
            let mut w: Vec<u32> = block.chunks_exact(4).map(|b| u32::from_be_bytes(b.try_into().unwrap())).collect();
            for i in 16..64 {
                let s0 = w[i - 15].rotate_right(7) ^ w[i - 15].rotate_right(18) ^ (w[i - 15] >> 3);
                let s1 = w[i - 2].rotate_right(17) ^ w[i - 2].rotate_right(19) ^ (w[i - 2] >> 10);
                w.push(w[i - 16].wrapping_add(s0).wrapping_add(w[i - 7]).wrapping_add(s1));
            }
            let mut v = h.clone();
            for i in 0..64 {
                let s1 = v[4].rotate_right(6) ^ v[4].rotate_right(11) ^ v[4].rotate_right(25);
                let ch = (v[4] & v[5]) ^ (!v[4] & v[6]);
                let t1 = v[7].wrapping_add(s1).wrapping_add(ch).wrapping_add(k[i]).wrapping_add(w[i]);
                let s0 = v[0].rotate_right(2) ^ v[0].rotate_right(13) ^ v[0].rotate_right(22);
                let t2 = s0.wrapping_add((v[0] & v[1]) ^ (v[0] & v[2]) ^ (v[1] & v[2]));
                v.rotate_right(1);
                v[4] = v[4].wrapping_add(t1);
                v[0] = t1.wrapping_add(t2);
            }
            for (h, v) in h.iter_mut().zip(v) {
                *h = h.wrapping_add(v);
            }
        }
        h.iter().map(|x| format!("{x:08x}")).collect()
    }
}
