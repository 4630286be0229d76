//! Conformance with the vectors of internal/tile360/testdata, shared by all implementations.

#![allow(clippy::panic)]

use serde::Deserialize;
use tile360::{ows, Crowd, Gop, Grid, Look, Planner, Problem, Request, Vec3, View, BUDGET_PERCENTILE, REFINE};

fn read<T: for<'a> Deserialize<'a>>(name: &str) -> T {
    let path = format!("{}/../../../internal/tile360/testdata/{name}.json", env!("CARGO_MANIFEST_DIR"));
    let b = std::fs::read(&path).unwrap_or_else(|e| panic!("{path}: {e}"));
    serde_json::from_slice(&b).unwrap_or_else(|e| panic!("{path}: {e}"))
}

/// Compares numbers with a relative tolerance of 10⁻⁹.
#[track_caller]
fn near(got: &[f64], want: &[f64], what: &str) {
    assert_eq!(got.len(), want.len(), "{what}");
    for (i, (g, w)) in got.iter().zip(want).enumerate() {
        assert!((g - w).abs() <= 1e-9 * w.abs().max(1.0), "{what}[{i}]: {g}, want {w}");
    }
}

type V = [f64; 3];

#[derive(Deserialize)]
struct GridOf {
    columns: usize,
    rows: usize,
    width: usize,
    height: usize,
}

impl GridOf {
    fn grid(&self) -> Grid {
        Grid { columns: self.columns, rows: self.rows, width: self.width, height: self.height }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ViewOf {
    field_of_view: [f64; 2],
    samples: usize,
}

impl ViewOf {
    fn view(&self, g: Grid) -> View {
        View::new(g, self.field_of_view[0].to_radians(), self.field_of_view[1].to_radians(), self.samples)
    }
}

#[derive(Deserialize)]
struct CrowdOf {
    rate: f64,
    viewers: Vec<Vec<V>>,
}

impl CrowdOf {
    fn crowd(&self) -> Crowd {
        Crowd { rate: self.rate, viewers: self.viewers.iter().map(|v| v.iter().map(|d| Vec3(*d)).collect()).collect() }
    }
}

#[derive(Deserialize)]
struct SampleOf {
    t: f64,
    gaze: V,
}

#[test]
fn geometry() {
    #[derive(Deserialize)]
    struct Direction {
        direction: V,
        yaw: f64,
        pitch: f64,
        picture: [f64; 2],
    }
    #[derive(Deserialize)]
    struct OfGrid {
        #[serde(flatten)]
        grid: GridOf,
        rects: Vec<[usize; 4]>,
        tiles: Vec<usize>,
    }
    #[derive(Deserialize)]
    struct LookOf {
        direction: V,
        p: f64,
    }
    #[derive(Deserialize)]
    struct Viewport {
        #[serde(flatten)]
        grid: GridOf,
        #[serde(flatten)]
        view: ViewOf,
        looks: Vec<LookOf>,
        share: Vec<f64>,
        seen: Vec<f64>,
    }
    #[derive(Deserialize)]
    struct All {
        directions: Vec<Direction>,
        grids: Vec<OfGrid>,
        viewports: Vec<Viewport>,
    }
    let all: All = read("geometry");
    for d in &all.directions {
        let v = Vec3(d.direction);
        let (yaw, pitch) = v.angles();
        near(&[yaw, pitch], &[d.yaw, d.pitch], "angles");
        near(&v.equirect(), &d.picture, "picture");
    }
    for g in &all.grids {
        let grid = g.grid.grid();
        assert_eq!((0..grid.tiles()).map(|t| grid.rect(t)).collect::<Vec<_>>(), g.rects);
        let tiles: Vec<_> = all.directions.iter().map(|d| grid.at(Vec3(d.direction).equirect())).collect();
        assert_eq!(tiles, g.tiles);
    }
    for v in &all.viewports {
        let looks: Vec<_> = v.looks.iter().map(|l| Look { gaze: Vec3(l.direction), p: l.p }).collect();
        let (share, seen) = v.view.view(v.grid.grid()).expect(&looks);
        near(&share, &v.share, "share");
        near(&seen, &v.seen, "seen");
    }
}

#[test]
fn prediction() {
    #[derive(Deserialize)]
    struct Ahead {
        seconds: f64,
        linear: V,
        predict: V,
        share: Vec<f64>,
    }
    #[derive(Deserialize)]
    struct Case {
        #[serde(flatten)]
        grid: GridOf,
        view: ViewOf,
        samples: Option<Vec<SampleOf>>,
        crowd: Option<CrowdOf>,
        ahead: Vec<Ahead>,
    }
    for (i, c) in read::<Vec<Case>>("prediction").iter().enumerate() {
        let mut gaze = tile360::Gaze::default();
        gaze.crowd = c.crowd.as_ref().map(CrowdOf::crowd);
        for s in c.samples.iter().flatten() {
            gaze.add(s.t, Vec3(s.gaze));
        }
        for a in &c.ahead {
            let what = format!("case {i}, {} s", a.seconds);
            near(&gaze.linear(a.seconds).0, &a.linear, &what);
            near(&gaze.predict(a.seconds).0, &a.predict, &what);
            let mut looks = Vec::new();
            gaze.looks(a.seconds, 1.0, &mut looks);
            near(&c.view.view(c.grid.grid()).expect(&looks).0, &a.share, &what);
        }
    }
}

#[test]
fn sorting() {
    #[derive(Deserialize)]
    struct PlanOf {
        quality: Vec<i64>,
        order: Vec<usize>,
        bytes: f64,
        loss: f64,
        bound: f64,
        expected: f64,
    }
    #[derive(Deserialize)]
    struct Plans {
        ows: PlanOf,
        greedy: PlanOf,
    }
    #[derive(Deserialize)]
    struct Case {
        name: String,
        qualities: usize,
        seen: Vec<f64>,
        miss: Vec<f64>,
        bytes: Vec<f64>,
        distortion: Vec<f64>,
        budget: f64,
        capacity: Option<Vec<f64>>,
        plans: Plans,
    }
    for c in read::<Vec<Case>>("ows") {
        let p = Problem {
            qualities: c.qualities,
            seen: c.seen,
            miss: c.miss,
            bytes: c.bytes,
            distortion: c.distortion,
            budget: c.budget,
            capacity: c.capacity.unwrap_or_default(),
        };
        for (name, refine, want) in [("ows", REFINE, &c.plans.ows), ("greedy", 0, &c.plans.greedy)] {
            let (got, what) = (ows(&p, refine), format!("{}, {name}", c.name));
            let quality: Vec<_> = got.quality.iter().map(|q| q.map_or(-1, |q| q as i64)).collect();
            assert_eq!((&quality, &got.order), (&want.quality, &want.order), "{what}");
            near(
                &[got.bytes, got.loss, got.bound, got.expected],
                &[want.bytes, want.loss, want.bound, want.expected],
                &what,
            );
        }
    }
}

#[test]
fn planner() {
    #[derive(Deserialize)]
    struct GopOf {
        start: f64,
        duration: f64,
        miss: Vec<f64>,
        bytes: Vec<f64>,
        distortion: Vec<f64>,
        have: Option<Vec<i64>>,
    }
    #[derive(Deserialize)]
    struct Chosen {
        loss: f64,
        bound: f64,
        expected: f64,
    }
    #[derive(Deserialize)]
    struct Step {
        samples: Option<Vec<SampleOf>>,
        rates: Option<Vec<f64>>,
        mean: f64,
        p10: f64,
        gops: Vec<GopOf>,
        seconds: f64,
        pending: f64,
        requests: Vec<[usize; 3]>,
        chosen: Chosen,
    }
    #[derive(Deserialize)]
    struct Case {
        #[serde(flatten)]
        grid: GridOf,
        view: ViewOf,
        qualities: usize,
        latency: f64,
        crowd: Option<CrowdOf>,
        steps: Vec<Step>,
    }
    for (i, c) in read::<Vec<Case>>("planner").iter().enumerate() {
        let mut p = Planner::new(c.view.view(c.grid.grid()), c.qualities, c.latency);
        p.gaze.crowd = c.crowd.as_ref().map(CrowdOf::crowd);
        for (k, s) in c.steps.iter().enumerate() {
            let what = format!("case {i}, step {k}");
            s.samples.iter().flatten().for_each(|x| p.gaze.add(x.t, Vec3(x.gaze)));
            s.rates.iter().flatten().for_each(|r| p.capacity.add(*r));
            near(&[p.capacity.mean(), p.capacity.percentile(BUDGET_PERCENTILE)], &[s.mean, s.p10], &what);
            let gop = |g: &GopOf| Gop {
                start: g.start,
                duration: g.duration,
                miss: g.miss.clone(),
                bytes: g.bytes.clone(),
                distortion: g.distortion.clone(),
                have: g.have.iter().flatten().map(|q| usize::try_from(*q).ok()).collect(),
            };
            let gops: Vec<_> = s.gops.iter().map(gop).collect();
            let want: Vec<_> = s
                .requests
                .iter()
                .map(|[gop, tile, quality]| Request { gop: *gop, tile: *tile, quality: *quality })
                .collect();
            assert_eq!(p.plan(&gops, s.seconds, s.pending), want, "{what}");
            let chosen = [p.chosen.loss, p.chosen.bound, p.chosen.expected];
            near(&chosen, &[s.chosen.loss, s.chosen.bound, s.chosen.expected], &what);
        }
    }
}
