//! Decodes 360° video of 3840×1920 with OpenH264: 8×4 tiles with 1, 2 and 4 threads, and the whole picture with one.
//! Needs ffmpeg with libx264.
//!
//!     cargo bench -p video --bench tiles

#![allow(clippy::panic)]

use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use video::{Config, OpenH264, Picture, VideoDecoder};

const WIDTH: usize = 3840;
const HEIGHT: usize = 1920;
const FRAMES: usize = 30;
const PASSES: usize = 3;

/// A tile's configuration and frames.
struct Stream {
    config: Config,
    frames: Vec<Vec<u8>>,
}

/// Encodes a moving test picture with some noise as a stream per tile.
fn encode(folder: &Path, columns: usize, rows: usize) -> std::io::Result<Vec<Stream>> {
    let tiles = columns * rows;
    let (w, h) = (WIDTH / columns, HEIGHT / rows);
    let source = "scroll=horizontal=0.0007:vertical=0.0004,noise=alls=4:allf=t";
    let mut graph = format!("testsrc2=size={WIDTH}x{HEIGHT}:rate=30,{source},split={tiles}");
    (0..tiles).for_each(|n| graph += &format!("[s{n}]"));
    for n in 0..tiles {
        graph += &format!(";[s{n}]crop={w}:{h}:{}:{}[t{n}]", n % columns * w, n / columns * h);
    }
    let mut ffmpeg = Command::new("ffmpeg");
    ffmpeg.args(["-v", "error", "-y", "-filter_complex", &graph]);
    for n in 0..tiles {
        // The settings with which `holocast prepare` encodes the best quality.
        ffmpeg.args(["-map", &format!("[t{n}]"), "-frames:v", &FRAMES.to_string(), "-c:v", "libx264", "-preset"]);
        ffmpeg.args(["ultrafast", "-qp", "22", "-g", "30", "-pix_fmt", "yuv420p", "-threads", "1"]);
        ffmpeg.args(["-x264-params", "aud=1"]).arg(folder.join(format!("{n}.h264")));
    }
    if !ffmpeg.status()?.success() {
        return Err(std::io::Error::other("ffmpeg failed"));
    }
    (0..tiles).map(|n| stream(&std::fs::read(folder.join(format!("{n}.h264")))?)).collect()
}

/// Reads NAL units separated by start codes, of frames that begin with an access unit delimiter.
fn stream(bytes: &[u8]) -> std::io::Result<Stream> {
    let starts: Vec<usize> = (3..bytes.len()).filter(|at| bytes[at - 3..*at] == [0, 0, 1]).collect();
    let (mut sets, mut frames) = ([Vec::new(), Vec::new()], Vec::<Vec<u8>>::new());
    for (i, at) in starts.iter().enumerate() {
        let mut nal = &bytes[*at..starts.get(i + 1).map_or(bytes.len(), |next| next - 3)];
        while let [rest @ .., 0] = nal {
            nal = rest;
        }
        match nal.first().map(|h| h & 31) {
            Some(kind @ (7 | 8)) => sets[usize::from(kind) - 7] = nal.to_vec(),
            Some(9) => frames.push(Vec::new()),
            _ => frames.last_mut().into_iter().for_each(|f| {
                f.extend((nal.len() as u32).to_be_bytes());
                f.extend(nal);
            }),
        }
    }
    let mut avcc = vec![1, 0, 0, 0, 0xff];
    for (set, count) in sets.iter().zip([0xe1, 1]) {
        avcc.push(count);
        avcc.extend((set.len() as u16).to_be_bytes());
        avcc.extend(set);
    }
    let config = Config::parse(&avcc).map_err(std::io::Error::other)?;
    Ok(Stream { config, frames })
}

/// Time to decode each frame of all streams, ms.
fn decode(streams: &[Stream], threads: usize) -> Vec<f64> {
    let decoders: Vec<_> = streams
        .iter()
        .map(|s| {
            let mut d = OpenH264::default();
            d.configure(&s.config).unwrap_or_else(|e| panic!("{e}"));
            Mutex::new((d, Picture::default()))
        })
        .collect();
    let one = |frame: usize| {
        let (next, began) = (AtomicUsize::new(0), Instant::now());
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| loop {
                    let n = next.fetch_add(1, Ordering::Relaxed);
                    let (Some(stream), Some(decoder)) = (streams.get(n), decoders.get(n)) else { return };
                    let (decoder, picture) = &mut *decoder.lock().unwrap_or_else(PoisonError::into_inner);
                    decoder.decode(&stream.frames[frame], picture).unwrap_or_else(|e| panic!("{e}"));
                });
            }
        });
        began.elapsed().as_secs_f64() * 1e3
    };
    (0..FRAMES).map(one).collect()
}

/// Processor time of this process, ms; 0 on systems other than Linux.
fn processor() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // User and system time follow the program's name by 12 and 13 fields, in units of 10 ms (proc(5)).
    let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    fields.skip(11).take(2).filter_map(|v| v.parse::<f64>().ok()).sum::<f64>() * 10.0
}

fn main() -> std::io::Result<()> {
    let folder = std::env::temp_dir().join(format!("holocast-tiles-{}", std::process::id()));
    for (columns, rows, threads) in [(8, 4, &[1, 2, 4][..]), (1, 1, &[1])] {
        std::fs::create_dir_all(&folder)?;
        let streams = encode(&folder, columns, rows);
        std::fs::remove_dir_all(&folder)?;
        let streams = streams?;
        let bytes: usize = streams.iter().flat_map(|s| &s.frames).map(Vec::len).sum();
        for n in threads {
            let before = processor();
            let mut times: Vec<f64> = (0..PASSES).flat_map(|_| decode(&streams, *n)).collect();
            times.sort_by(f64::total_cmp);
            println!(
                "{columns}×{rows} tiles, {:.0} Mbit/s, {n} threads: p50 {:.1} ms per frame, min {:.1}, processor {:.1}",
                bytes as f64 * 8.0 * 30.0 / FRAMES as f64 / 1e6,
                times[times.len() / 2],
                times[0],
                (processor() - before) / times.len() as f64
            );
        }
    }
    Ok(())
}
