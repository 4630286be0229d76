//! Decodes the group that `cloud/benches/frames` wrote to the directory HOLOCAST_FRAMES. `make -C
//! client-unity/native bench` runs both.

use std::path::Path;
use std::time::Instant;

const PASSES: usize = 10;

fn main() -> std::io::Result<()> {
    let Some(dir) = std::env::var_os("HOLOCAST_FRAMES") else {
        println!("HOLOCAST_FRAMES is not set: run `make -C client-unity/native bench`");
        return Ok(());
    };
    let path = |n: usize| Path::new(&dir).join(format!("nfov-w{n:02}.hcpf"));
    let objects = (0..).map(path).take_while(|p| p.exists()).map(std::fs::read);
    let objects = objects.collect::<Result<Vec<_>, _>>()?;
    let (mut decoder, mut words) = (pointvideo::Decoder::new(false), Vec::new());
    let (mut times, mut keys, mut points) = (Vec::new(), Vec::new(), 0);
    for n in 0..PASSES * objects.len() {
        let object = &objects[n % objects.len()];
        let began = Instant::now();
        let frame = decoder.decode(object, &cloud::Limits::default(), &mut words).map_err(std::io::Error::other)?;
        let list = if pointvideo::is_key(object) { &mut keys } else { &mut times };
        list.push(began.elapsed().as_secs_f64() * 1e3);
        points = frame.points;
    }
    let bytes: usize = objects.iter().map(Vec::len).sum();
    println!("nfov-w: {} bytes per frame", bytes / objects.len().max(1));
    for (name, list) in [("nfov-w", &mut times), ("key", &mut keys)] {
        list.sort_by(f64::total_cmp);
        if let (Some(least), Some(median)) = (list.first(), list.get(list.len() / 2)) {
            println!("rust  {name:7} {points:8} points  p50 {median:.2} ms  min {least:.2} ms");
        }
    }
    Ok(())
}
