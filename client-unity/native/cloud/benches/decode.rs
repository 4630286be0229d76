//! Decodes the frames that `frames/main.go` wrote to the directory HOLOCAST_FRAMES. `make -C
//! client-unity/native bench` runs both.

use std::time::Instant;

fn main() {
    let Some(dir) = std::env::var_os("HOLOCAST_FRAMES") else {
        println!("HOLOCAST_FRAMES is not set: run `make -C client-unity/native bench`");
        return;
    };
    for name in ["nfov-a", "nfov-b", "nfov-c", "fhd-a"] {
        let path = std::path::Path::new(&dir).join(name).with_extension("hcpf");
        let object = match std::fs::read(&path) {
            Ok(b) => b,
            Err(e) => {
                println!("{}: {e}", path.display());
                std::process::exit(1);
            }
        };
        let mut decoder = cloud::Decoder::new();
        let mut words = Vec::new();
        let mut points = 0;
        let mut times: Vec<f64> = (0..200)
            .map(|_| {
                let began = Instant::now();
                match decoder.decode(&[&object], &cloud::Limits::default(), &mut words) {
                    Ok(f) => points = f.points,
                    Err(e) => println!("{name}: {e}"),
                }
                began.elapsed().as_secs_f64() * 1e3
            })
            .collect();
        times.sort_by(f64::total_cmp);
        println!("rust  {name:7} {points:8} points  p50 {:.2} ms  min {:.2} ms", times[times.len() / 2], times[0]);
    }
}
