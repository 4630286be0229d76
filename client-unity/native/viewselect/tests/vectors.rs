//! Conformance with the vectors of internal/viewselect/testdata, shared by all implementations.

#![allow(clippy::panic, clippy::unwrap_used)]

use cloud::Transform;
use serde::Deserialize;
use viewselect::{ahead, budget, choose, choose_within, surface, unknown_error, worth, Quality, Sample, View};

#[derive(Deserialize)]
struct Vectors {
    surfaces: Vec<SurfaceCase>,
    worths: Vec<WorthCase>,
    choices: Vec<ChoiceCase>,
}

#[derive(Deserialize)]
struct Pose {
    r: [f64; 9],
    t: [f64; 3],
}

impl Pose {
    fn transform(&self) -> Transform {
        Transform { r: self.r, t: self.t }
    }
}

#[derive(Deserialize)]
struct SurfaceCase {
    rays: Vec<[f32; 2]>,
    width: usize,
    depth: Vec<u16>,
    pose: Pose,
    stride: usize,
    samples: Vec<[f32; 11]>,
}

#[derive(Deserialize)]
struct WorthCase {
    cameras: Vec<Vec<[f32; 11]>>,
    views: Vec<ViewCase>,
    worth: Vec<f64>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ViewCase {
    eye: Pose,
    tan_x: f64,
    tan_y: f64,
    velocity: [f64; 3],
    turn: f64,
    after: f64,
}

#[derive(Deserialize)]
struct ChoiceCase {
    worth: Vec<f64>,
    rates: Vec<Vec<f64>>,
    errors: Vec<Vec<f64>>,
    budget: f64,
    current: Option<Vec<i32>>,
    choice: Vec<i32>,
}

fn vectors() -> Vectors {
    let path = format!("{}/../../../internal/viewselect/testdata/vectors.json", env!("CARGO_MANIFEST_DIR"));
    let b = std::fs::read(&path).unwrap_or_else(|e| panic!("{path}: {e}"));
    serde_json::from_slice(&b).unwrap_or_else(|e| panic!("{path}: {e}"))
}

fn sample(v: &[f32; 11]) -> Sample {
    Sample {
        point: [v[0], v[1], v[2]],
        normal: [v[3], v[4], v[5]],
        area: v[6],
        facing: v[7],
        sensor: [v[8], v[9], v[10]],
    }
}

fn flat(s: &Sample) -> [f32; 11] {
    let (p, n, c) = (s.point, s.normal, s.sensor);
    [p[0], p[1], p[2], n[0], n[1], n[2], s.area, s.facing, c[0], c[1], c[2]]
}

#[test]
fn surfaces() {
    for (i, c) in vectors().surfaces.iter().enumerate() {
        let rays: Vec<f32> = c.rays.iter().flat_map(|[x, y]| [if *x == 1e9 { f32::NAN } else { *x }, *y]).collect();
        let got = surface(&rays, c.width, |i| c.depth[i], &c.pose.transform(), c.stride);
        assert_eq!(got.len(), c.samples.len(), "surface {i}");
        for (g, w) in got.iter().map(flat).zip(&c.samples) {
            for (g, w) in g.iter().zip(w) {
                assert!((g - w).abs() <= 1e-6 * w.abs().max(1.0), "surface {i}: {g}, want {w}");
            }
        }
    }
}

#[test]
fn worths() {
    for (i, c) in vectors().worths.iter().enumerate() {
        let cameras: Vec<Vec<Sample>> = c.cameras.iter().map(|list| list.iter().map(sample).collect()).collect();
        let view = |v: &ViewCase| View { eye: v.eye.transform(), tan: [v.tan_x, v.tan_y] };
        let views: Vec<View> = c.views.iter().flat_map(|v| ahead(&view(v), v.velocity, v.turn, v.after)).collect();
        for (g, w) in worth(&cameras, &views).iter().zip(&c.worth) {
            assert!((g - w).abs() <= 1e-9, "worth {i}: {g}, want {w}");
        }
    }
}

#[test]
fn choices() {
    let index = |q: &i32| usize::try_from(*q).ok();
    for (i, c) in vectors().choices.iter().enumerate() {
        let of = |(rates, errors): (&Vec<f64>, &Vec<f64>)| {
            rates.iter().zip(errors).map(|(r, e)| Quality { rate: *r, error: *e }).collect()
        };
        let options: Vec<Vec<Quality>> = c.rates.iter().zip(&c.errors).map(of).collect();
        let current: Option<Vec<_>> = c.current.as_ref().map(|list| list.iter().map(index).collect());
        let got = choose(&c.worth, &options, c.budget, current.as_deref());
        let want: Vec<_> = c.choice.iter().map(index).collect();
        assert_eq!(got.quality, want, "choice {i}");
        assert!(got.gap < 0.06, "choice {i}: gap {}", got.gap);
    }
}

/// The cases of TestChooseWithin in internal/viewselect.
#[test]
fn unequal_numbers_of_qualities() {
    let ladder: Vec<Quality> =
        [4e6, 2e6, 1e6].iter().enumerate().map(|(q, rate)| Quality { rate: *rate, error: unknown_error(q) }).collect();
    let options = [ladder.clone(), ladder[..1].to_vec(), ladder[..2].to_vec()];
    assert_eq!(budget(&options, 1), 8e6);
    for (worths, budget, want) in [
        ([0.1, 0.1, 0.1], 12e6, [0, 0, 0]),
        ([0.5, 0.1, 0.0], 10e6, [0, 0, 1]),
        ([0.0, 0.1, 0.5], 9e6, [2, 0, 0]),
        ([0.5, 0.5, 0.5], 1e6, [2, 0, 1]),
    ] {
        assert_eq!(choose_within(&worths, &options, budget, None), want);
    }
}
