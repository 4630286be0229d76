//! Watches a session through the C interface, polling 60 times a second like a viewer, and prints
//! statistics: `watch URL [SECONDS [CERTIFICATE-HASH [QUALITY]]]`. The last line is JSON.
//! An empty hash means none.

use std::ffi::CString;
use std::mem::size_of;
use std::ptr::null_mut;
use std::time::{Duration, Instant};

use holocast::*;

fn size<T>() -> u32 {
    size_of::<T>() as u32
}

fn text(client: *mut HcClient) -> String {
    let mut b = [0 as std::ffi::c_char; 512];
    let mut needed = 0;
    // SAFETY: the buffer holds the given number of bytes.
    unsafe { hc_error(client, b.as_mut_ptr(), b.len(), &mut needed) };
    b.iter().take_while(|c| **c != 0).map(|c| *c as u8 as char).collect()
}

fn main() {
    let args: Vec<_> = std::env::args().collect();
    let (Some(url), seconds) = (args.get(1), args.get(2).and_then(|s| s.parse().ok()).unwrap_or(10.0)) else {
        println!("usage: watch URL [SECONDS [CERTIFICATE-HASH [QUALITY]]]");
        std::process::exit(2);
    };
    let c_string = |s: &str| CString::new(s).unwrap_or_default();
    let hash = args.get(3).filter(|h| !h.is_empty()).map(|h| c_string(h));
    let (url, quality) = (c_string(url), args.get(4).map(|q| c_string(q)));
    let config = HcConfig {
        size: size::<HcConfig>(),
        abi_version: HC_ABI_VERSION,
        url: url.as_ptr(),
        certificate_hash: hash.as_ref().map_or(std::ptr::null(), |h| h.as_ptr()),
        viewer: std::ptr::null(),
        flags: 0,
        delivery_timeout_ms: 0,
        decode_threads: 0,
        reserved: 0,
    };
    let mut client = null_mut();
    // SAFETY: config and client outlive the calls; each call gets a live client and live structs of
    // the right size.
    unsafe {
        if hc_open(&config, &mut client) != HC_OK {
            println!("{}", text(null_mut()));
            std::process::exit(1);
        }
        let all = HcSubscribe {
            size: size::<HcSubscribe>(),
            camera: HC_ALL_CAMERAS,
            quality: quality.as_ref().map_or(std::ptr::null(), |q| q.as_ptr()),
            descriptions: 0,
            reserved: 0,
        };
        hc_subscribe(client, &all);
        let mut state = HcState { size: size::<HcState>(), ..HcState::default() };
        let mut shown = (u32::MAX, u32::MAX);
        let mut words: Vec<u32> = Vec::new();
        let mut cameras: Vec<u32> = Vec::new();
        let mut catalog = 0;
        let mut stats = HcStats { size: size::<HcStats>(), ..HcStats::default() };
        let mut end = None;
        let began = Instant::now();
        while end.is_none_or(|e| Instant::now() < e) && began.elapsed() < Duration::from_secs_f64(seconds + 30.0) {
            hc_poll(client, &mut state);
            if (state.phase, state.error_version) != shown {
                shown = (state.phase, state.error_version);
                eprintln!("{:8.3} s  phase {}  {}", began.elapsed().as_secs_f64(), state.phase, text(client));
            }
            if state.catalog_version != catalog {
                catalog = state.catalog_version;
                let mut tracks: [HcTrack; 64] = std::mem::zeroed();
                tracks[0].size = size::<HcTrack>();
                let mut count = 0;
                if hc_catalog(client, tracks.as_mut_ptr(), 64, &mut count) == HC_OK {
                    cameras = tracks[..count as usize].iter().map(|t| t.camera).collect();
                    cameras.dedup();
                }
            }
            for camera in &cameras {
                let mut f = HcFrame { size: size::<HcFrame>(), ..HcFrame::default() };
                if hc_frame_acquire(client, *camera, &mut f) != HC_OK {
                    continue;
                }
                words.resize((f.points * f.words_per_point) as usize, 0);
                let mut points = 0;
                hc_frame_copy(client, f.handle, 1, words.as_mut_ptr(), words.len(), &mut points);
                hc_frame_release(client, f.handle, HC_SHOWN_NOW);
                end.get_or_insert(Instant::now() + Duration::from_secs_f64(seconds));
            }
            std::thread::sleep(Duration::from_micros(16_667));
        }
        hc_stats(client, HC_ALL_CAMERAS, &mut stats);
        hc_close(client);
        println!(
            "{{\"fps\":{:.2},\"shown_fps\":{:.2},\"frame_delay_ms\":{{\"p50\":{:.2},\"p95\":{:.2},\"p99\":{:.2}}},\
             \"shown_ms_p50\":{:.2},\"frames\":{},\
             \"frames_shown\":{},\"frames_lost\":{},\"points_per_frame\":{:.0},\
             \"decode_ms\":{:.2},\"mbit_per_s\":{:.1},\"first_frame_ms\":{:.1},\
             \"receipts\":{},\"memory_mib\":{:.1},\"skipped\":{},\"damaged\":{}}}",
            stats.run_fps,
            stats.shown_fps,
            stats.run_p50_ms,
            stats.run_p95_ms,
            stats.run_p99_ms,
            stats.shown_p50_ms,
            stats.frames,
            stats.frames_shown,
            stats.frames_lost,
            stats.points_per_frame,
            stats.decode_ms,
            stats.mbit_per_s,
            stats.first_frame_ms,
            stats.receipts,
            stats.memory_bytes as f64 / 1048576.0,
            stats.frames_skipped,
            stats.frames_damaged
        );
    }
}
