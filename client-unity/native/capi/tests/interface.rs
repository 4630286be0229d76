//! Struct layouts as seen from C, and invalid calls.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::mem::{offset_of, size_of};
use std::process::Command;
use std::ptr::{null, null_mut};

use common::*;
use holocast::*;

macro_rules! layout {
    ($out:ident, $t:ident { $($field:ident),* }) => {
        $out.push(format!("sizeof({}) == {}", stringify!($t), size_of::<$t>()));
        $($out.push(format!("offsetof({}, {}) == {}", stringify!($t), stringify!($field), offset_of!($t, $field)));)*
    };
}

fn layouts() -> Vec<String> {
    let mut out = Vec::new();
    layout!(
        out,
        HcConfig {
            size,
            abi_version,
            url,
            certificate_hash,
            viewer,
            flags,
            delivery_timeout_ms,
            decode_threads,
            reserved
        }
    );
    layout!(
        out,
        HcState {
            size,
            phase,
            flags,
            catalog_version,
            sessions_version,
            error_version,
            cameras,
            sessions,
            reconnects,
            reserved
        }
    );
    layout!(
        out,
        HcTrack {
            size,
            camera,
            layout,
            descriptions,
            width,
            height,
            max_points,
            delivery_timeout_ms,
            framerate,
            bitrate,
            fx,
            fy,
            cx,
            cy,
            rotation,
            translation,
            depth_min,
            depth_max,
            flags,
            version,
            quality,
            camera_name
        }
    );
    layout!(out, HcSubscribe { size, camera, quality, descriptions, reserved });
    layout!(
        out,
        HcFrame {
            size,
            camera,
            handle,
            sequence,
            layout,
            words_per_point,
            points,
            descriptions,
            descriptions_total,
            width,
            height,
            bytes,
            decode_us,
            captured_us,
            device_us,
            arrived_us,
            decoded_us,
            delay_us,
            flags,
            track_version,
            middle,
            floor
        }
    );
    layout!(
        out,
        HcPicture {
            size,
            flags,
            handle,
            width,
            height,
            matrix,
            decode_us,
            captured_us,
            arrived_us,
            decoded_us,
            yaw,
            pitch,
            roll,
            reserved
        }
    );
    layout!(out, HcClock { size, source, local_us, relay_us, error_us, rtt_us, min_rtt_us, samples, steps });
    layout!(
        out,
        HcStats {
            size,
            cameras,
            shown_fps,
            fps,
            delay_p50_ms,
            delay_p95_ms,
            delay_p99_ms,
            shown_p50_ms,
            shown_p95_ms,
            shown_p99_ms,
            jitter_ms,
            mbit_per_s,
            points_per_frame,
            decode_ms,
            density,
            first_frame_ms,
            run_fps,
            run_p50_ms,
            run_p95_ms,
            run_p99_ms,
            frames,
            frames_shown,
            frames_lost,
            frames_late,
            frames_duplicate,
            frames_partial,
            frames_skipped,
            frames_damaged,
            descriptions_late,
            subgroups_reset,
            publisher_restarts,
            bytes,
            receipts,
            memory_bytes,
            frames_repaired,
            frames_abandoned,
            parts_lost,
            repair_requests
        }
    );
    layout!(out, HcPlayback { size, flags, duration_ms, position_ms });
    out
}

/// The header compiles as C and C++ without warnings, and its structs match the library's, without
/// padding.
#[test]
fn header() {
    let mut text = String::from(
        "#include \"holocast.h\"\n#include <stddef.h>\n\
         #ifdef __cplusplus\n#define _Static_assert static_assert\n#endif\n",
    );
    for l in layouts() {
        text += &format!("_Static_assert({l}, \"{l}\");\n");
    }
    text += &format!("_Static_assert(HC_ABI_VERSION == {HC_ABI_VERSION}, \"\");\n");
    text += "int main(void) { return hc_abi_version() == 0; }\n";
    let dir = env!("CARGO_TARGET_TMPDIR");
    for (compiler, file) in [("cc", "header.c"), ("c++", "header.cc")] {
        let file = format!("{dir}/{file}");
        std::fs::write(&file, &text).unwrap();
        let include = concat!("-I", env!("CARGO_MANIFEST_DIR"), "/../include");
        let flags = ["-Wall", "-Wextra", "-Werror", "-Wpadded", "-fsyntax-only", include, &file];
        assert!(Command::new(compiler).args(flags).status().unwrap().success(), "{compiler} rejects the header");
    }
}

/// The C# side hard-codes these sizes: changing one requires a new ABI version.
#[test]
fn sizes() {
    let sizes = [
        size_of::<HcConfig>(),
        size_of::<HcState>(),
        size_of::<HcTrack>(),
        size_of::<HcSubscribe>(),
        size_of::<HcFrame>(),
        size_of::<HcPicture>(),
        size_of::<HcClock>(),
        size_of::<HcStats>(),
        size_of::<HcPlayback>(),
        size_of::<HcView>(),
    ];
    assert_eq!(sizes, [48, 40, 296, 24, 120, 72, 56, 296, 24, 128]);
}

#[test]
fn invalid_urls_and_hashes() {
    for (url, hash, code, why) in [
        ("", None, HC_E_URL, "the URL is missing"),
        ("localhost:4443/demo", None, HC_E_URL, "does not have the form moqt://host:port/session"),
        ("https://localhost/demo", None, HC_E_URL, "must begin with moqt://"),
        ("moqt://localhost:x/demo", None, HC_E_URL, "has an invalid port"),
        ("moqt://localhost/demo", Some("12ab"), HC_E_ARGUMENT, "is not 64 hex digits"),
    ] {
        match (Open { hash, ..Open::url(url) }).open() {
            Err((c, text)) => assert!(c == code && text.contains(why), "{url}: {c} {text}"),
            Ok(_) => panic!("{url} was opened"),
        }
    }
}

#[test]
#[allow(clippy::undocumented_unsafe_blocks)] // the interface must survive all of these calls
fn invalid_calls() {
    let mut c = null_mut();
    let mut config = HcConfig {
        size: size::<HcConfig>() + 8,
        abi_version: HC_ABI_VERSION,
        url: c"moqt://127.0.0.1:9/x".as_ptr(),
        certificate_hash: null(),
        viewer: null(),
        flags: HC_NO_RECEIPTS,
        delivery_timeout_ms: 0,
        decode_threads: 1,
        reserved: 0,
    };
    unsafe {
        assert_eq!(hc_abi_version(), HC_ABI_VERSION);
        assert_eq!(hc_open(null(), &mut c), HC_E_ARGUMENT);
        assert_eq!(hc_open(&config, null_mut()), HC_E_ARGUMENT);
        assert_eq!(hc_open(&config, &mut c), HC_E_VERSION);
        assert_eq!(
            thread_error(),
            "a struct has 56 bytes, but the library expects 48: install plugin and package from one release"
        );
        config.size = size::<HcConfig>();
        config.abi_version = 99;
        assert_eq!(hc_open(&config, &mut c), HC_E_VERSION);
        assert!(thread_error().contains("ABI version 99") && c.is_null());
        config.abi_version = HC_ABI_VERSION;
        config.url = c"moqt://\xff/".as_ptr();
        assert_eq!(hc_open(&config, &mut c), HC_E_ARGUMENT);
        assert_eq!(thread_error(), "the URL is not UTF-8");

        let mut state = HcState::default();
        let mut frame = HcFrame { size: size::<HcFrame>(), ..HcFrame::default() };
        let mut stats = HcStats { size: size::<HcStats>(), ..HcStats::default() };
        assert_eq!(hc_poll(null_mut(), &mut state), HC_E_ARGUMENT);
        hc_close(null_mut());

        let client = Open::url("moqt://127.0.0.1:9/x").open().unwrap();
        let c = client.0;
        assert_eq!(hc_poll(c, &mut state), HC_E_VERSION); // size is 0
        assert_eq!(hc_poll(c, null_mut()), HC_E_ARGUMENT);
        assert_eq!(hc_frame_acquire(c, 0, &mut frame), HC_EMPTY);
        assert_eq!(hc_frame_acquire(c, HC_ALL_CAMERAS, &mut frame), HC_E_ARGUMENT);
        assert_eq!(hc_frame_acquire(c, 70_000, &mut frame), HC_E_ARGUMENT);
        let mut points = 0;
        assert_eq!(hc_frame_copy(c, 7, 1, null_mut(), 0, &mut points), HC_E_HANDLE);
        assert_eq!(hc_frame_copy(c, 7, 0, null_mut(), 0, &mut points), HC_E_ARGUMENT);
        assert_eq!(hc_frame_copy(c, 7, 1, null_mut(), 0, null_mut()), HC_E_ARGUMENT);
        let mut needed = 0;
        assert_eq!(hc_frame_grid(c, 7, null_mut(), 0, &mut needed), HC_E_HANDLE);
        assert_eq!(hc_frame_grid(c, 7, null_mut(), 0, null_mut()), HC_E_ARGUMENT);
        assert_eq!(hc_frame_release(c, 7, HC_SHOWN_NOW), HC_E_HANDLE);
        assert_eq!(hc_frame_release(c, 7, -5), HC_E_ARGUMENT);
        assert_eq!(hc_stats(c, 3, &mut stats), HC_EMPTY);
        let mut picture = HcPicture { size: size::<HcPicture>(), ..HcPicture::default() };
        assert_eq!(hc_picture_acquire(c, &mut picture), HC_EMPTY);
        assert_eq!(hc_picture_acquire(c, null_mut()), HC_E_ARGUMENT);
        assert_eq!(hc_picture_copy(c, 7, 0, null_mut(), 0), HC_E_HANDLE);
        assert_eq!(hc_picture_release(c, 7, HC_SHOWN_NOW), HC_E_HANDLE);
        assert_eq!(hc_picture_release(c, 7, -5), HC_E_ARGUMENT);
        assert_eq!(hc_stats(c, HC_SPHERE, &mut stats), HC_EMPTY);
        assert_eq!(hc_gaze(c, 0.0, 0.0, 1.0, 90.0, 60.0), HC_OK);
        assert_eq!(hc_gaze(c, f32::NAN, 0.0, 1.0, 90.0, 60.0), HC_E_ARGUMENT);
        assert_eq!(hc_gaze(c, 0.0, 0.0, 1.0, 90.0, 180.0), HC_E_ARGUMENT);
        let mut view = HcView { size: size::<HcView>(), width: 90.0, height: 60.0, ..HcView::default() };
        assert_eq!(hc_view(c, &view), HC_OK);
        assert_eq!(hc_view(c, null()), HC_E_ARGUMENT);
        view.max_bitrate = -1.0;
        assert_eq!(hc_view(c, &view), HC_E_ARGUMENT);
        view = HcView { max_bitrate: 0.0, height: 180.0, ..view };
        assert_eq!(hc_view(c, &view), HC_E_ARGUMENT);
        view = HcView { height: 60.0, rotation: [f64::NAN; 9], ..view };
        assert_eq!(hc_view(c, &view), HC_E_ARGUMENT);
        view.size = 0;
        assert_eq!(hc_view(c, &view), HC_E_VERSION);
        let mut playback = HcPlayback { size: size::<HcPlayback>(), ..HcPlayback::default() };
        assert_eq!(hc_playback(c, HC_PLAYBACK_QUERY, 0.0, &mut playback), HC_OK);
        assert_eq!(hc_playback(c, HC_PLAYBACK_SEEK, f64::NAN, &mut playback), HC_E_ARGUMENT);
        assert_eq!(hc_playback(c, 17, 0.0, &mut playback), HC_E_ARGUMENT);
        assert_eq!(hc_playback(c, HC_PLAYBACK_PLAY, 0.0, &mut playback), HC_E_STATE);
        let mut needed = 0;
        assert_eq!(hc_rays(c, 0, 1, null_mut(), 0, &mut needed), HC_EMPTY);
        assert_eq!(hc_catalog(c, null_mut(), 0, &mut points), HC_OK);
        assert_eq!(hc_error(c, null_mut(), 0, null_mut()), HC_E_ARGUMENT);
        let mut short = [1 as std::ffi::c_char; 8];
        assert_eq!(hc_error(c, short.as_mut_ptr(), 8, &mut needed), HC_E_BUFFER);
        assert!(short[7] == 0 && needed > 8);
    }
}

#[test]
#[allow(clippy::undocumented_unsafe_blocks)] // links are null or NUL-terminated, and the buffer has the given capacity
fn pairing() {
    let mut needed = 0;
    let mut address = [0 as std::ffi::c_char; 64];
    let mut pair = |link| unsafe { hc_pair(link, address.as_mut_ptr(), address.len(), &mut needed) };
    assert_eq!(pair(null()), HC_E_ARGUMENT);
    assert_eq!(pair(c"moqt://localhost/demo".as_ptr()), HC_E_URL);
    assert!(thread_error().contains("a pairing link has the form"));
    // Connecting to a host name, unlike an address, spawns tasks.
    assert_eq!(pair(c"http://localhost:1/pair/ABCD2345#AAECAwQFBgcICQoLDA0ODw".as_ptr()), HC_E_URL);
    assert!(thread_error().contains("localhost:1 does not answer over HTTP"), "{}", thread_error());
}

#[test]
#[allow(clippy::undocumented_unsafe_blocks)] // lengths match objects; words has its capacity
fn decode_without_a_client() {
    let dir = repository().join("internal/pointcloud/testdata");
    let read = |n: &str| std::fs::read(dir.join(n)).unwrap();
    let objects: Vec<_> =
        ["noise-a4-0", "noise-a4-1", "noise-a4-2", "noise-a4-3"].iter().map(|n| read(&format!("{n}.hcpf"))).collect();
    let decode = |objects: &[Vec<u8>], most: u32, words: &mut [u32]| {
        let p: Vec<_> = objects.iter().map(|o| o.as_ptr()).collect();
        let n: Vec<_> = objects.iter().map(Vec::len).collect();
        let mut f = HcFrame { size: size::<HcFrame>(), ..HcFrame::default() };
        let out = if words.is_empty() { null_mut() } else { words.as_mut_ptr() };
        let code = unsafe { hc_decode(p.as_ptr(), n.as_ptr(), p.len() as u32, most, out, words.len(), &mut f) };
        (code, f)
    };
    let (code, f) = decode(&objects, 0, &mut []);
    assert_eq!((code, f.words_per_point, f.descriptions, f.descriptions_total), (HC_E_BUFFER, 2, 4, 4));
    let mut words = vec![0; (f.points * 2) as usize];
    let (code, g) = decode(&objects, 0, &mut words);
    assert_eq!((code, g.points), (HC_OK, f.points));
    assert!(words.chunks(2).all(|w| (w[0] & 0xfff) < f.width && w[1] & 0xffff != 0));
    let (code, part) = decode(&objects[..1], 0, &mut words);
    assert!(code == HC_OK && part.points < f.points && part.flags & HC_FRAME_PARTIAL != 0);
    assert_eq!(decode(&objects, f.points - 1, &mut words).0, HC_E_DECODE);
    assert!(thread_error().contains("points"));
    assert_eq!(decode(&[vec![0; 100]], 0, &mut words).0, HC_E_DECODE);
    assert_eq!(decode(&[], 0, &mut words).0, HC_E_ARGUMENT);
}
