//! End-to-end tests of the C interface with the real relay and publishers.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::process::Command;
use std::time::{Duration, Instant};

use common::*;
use holocast::*;

/// Statistics of a live session, compared with `holocast play` on the same stream.
#[test]
fn live_session() {
    let _lock = lock_shared();
    let port = free_port();
    let _relay = relay(port, &[]);
    let url = url(port);
    let _receipts = Process::start("publisher", &["--receipts", &url]);
    let receipts = _receipts.lines.clone();
    let _camera = Process::start("capture-server", &["--source", "synthetic", "--http", "", &url]);
    let client = Open { viewer: Some("tester"), ..Open::url(&url) }.open().unwrap();
    client.subscribe(HC_ALL_CAMERAS, "");
    client.wait(HC_PHASE_LIVE);
    let tracks = client.tracks();
    let (full, low) = (&tracks[0], &tracks[1]);
    assert!(full.bitrate > low.bitrate && full.max_points > low.max_points && full.width > low.width);
    assert_eq!((full.layout, full.descriptions, full.flags, low.flags), (HC_LAYOUT_A, 1, HC_TRACK_SUBSCRIBED, 0));
    assert!(full.fx > 100.0 && full.framerate == 30.0 && full.quality[0] == b'f' as std::ffi::c_char);

    // A frame's words are grid pixels that have a ray.
    let f = until("a frame", || client.acquire(0));
    assert_eq!((f.track_version, f.width, f.height, f.words_per_point), (full.version, full.width, full.height, 2));
    let words = client.copy(&f, 1);
    assert_eq!(words.len(), 2 * f.points as usize);
    let fourth = client.copy(&f, 4);
    assert!(words.chunks(8).zip(fourth.chunks(2)).all(|(a, b)| a[..2] == *b));
    let grid = client.grid(&f);
    let stride = f.width + 2 * HC_GRID_BORDER;
    assert_eq!(grid.len() as u32, 2 * stride * (f.height + 2 * HC_GRID_BORDER));
    assert_eq!(grid.chunks(2).filter(|p| p[1] != 0).count() as u32, f.points);
    for p in words.chunks(2) {
        let (x, y) = (p[0] & 0xfff, p[0] >> 12 & 0xfff);
        let at = 2 * ((y + HC_GRID_BORDER) * stride + x + HC_GRID_BORDER) as usize;
        assert_eq!(&grid[at..at + 2], p);
    }
    assert_eq!(client.release(&f, HC_SHOWN_NOW), HC_OK);
    assert_eq!(client.release(&f, HC_SHOWN_NOW), HC_E_HANDLE);
    let rays = until("the ray table", || client.rays(full));
    assert_eq!(rays.len(), 2 * (full.width * full.height) as usize);
    for p in words.chunks(2) {
        let (x, y, depth) = (p[0] & 0xfff, p[0] >> 12 & 0xfff, p[1] & 0xffff);
        assert!(x < f.width && y < f.height && depth >= full.depth_min && depth <= full.depth_max);
        assert!(!rays[2 * (y * f.width + x) as usize].is_nan());
    }

    // The relay's clock is this machine's, so a frame's delay must equal its age by the local clock, up to the
    // estimate's error. The estimate needs one timestamp that was not delayed.
    until("an exact frame delay", || {
        let f = client.frame(0);
        let (age, error) = (f.decoded_us as i64 - f.captured_us as i64, client.clock().error_us as i64);
        (f.delay_us > 0 && (f.delay_us - age).abs() <= error + 5_000).then_some(())
    });
    // Prints the delays of both viewers, for the README.
    let play = Process::start("holocast", &["play", &url, "--duration", "5s", "--json"]);
    let lines = play.lines.clone();
    let theirs = until("the player's report", || {
        if let Some(f) = client.acquire(0) {
            client.release(&f, HC_SHOWN_NOW);
        }
        lines.lock().unwrap().last().cloned()
    });
    let s = client.stats();
    let theirs: serde_json::Value = serde_json::from_str(&theirs).unwrap();
    println!(
        "first frame {:.0} ms, {:.1} FPS (player {:.1}), delay p50 {:.1} ms over the last five seconds (player {:.1}), \
         shown {:.1} ms, {} lost",
        s.first_frame_ms,
        s.fps,
        theirs["fps"].as_f64().unwrap(),
        s.delay_p50_ms,
        theirs["frame_delay_ms"]["p50"].as_f64().unwrap(),
        s.shown_p50_ms,
        s.frames_lost
    );
    client.frames(0, 30);
    let s = client.stats();
    assert!(s.frames >= 30 && s.frames_shown > 20 && s.frames_damaged == 0 && s.density == 1.0);
    let clock = until("clock samples", || Some(client.clock()).filter(|c| c.samples > 10));
    assert_eq!(clock.source, HC_CLOCK_RELAY);
    assert!(clock.local_us.abs_diff(clock.relay_us) < 1_000_000);
    assert!(clock.min_rtt_us > 0 && clock.min_rtt_us <= clock.rtt_us + 1);
    let mine = until("receipts", || {
        let lines = receipts.lock().unwrap();
        let mine = lines.iter().filter(|l| l.contains("tester")).count();
        (mine > 20).then_some(mine)
    });
    assert!(client.stats().receipts >= mine as u64);

    // A different quality has a different ray table.
    client.subscribe(0, "low");
    let f = until("a frame of the low quality", || Some(client.frame(0)).filter(|f| f.width == low.width));
    assert_eq!(f.track_version, low.version);
    let subscribed: Vec<_> = client.tracks().iter().map(|t| t.flags).collect();
    assert_eq!(subscribed, [0, HC_TRACK_SUBSCRIBED]);
    until("the ray table of the low quality", || client.rays(low));

    // No frames arrive after unsubscribing. SAFETY: the client is alive.
    assert_eq!(unsafe { hc_unsubscribe(client.0, HC_ALL_CAMERAS) }, HC_OK);
    until("the end of the subscription", || client.tracks().iter().all(|t| t.flags == 0).then_some(()));
    let mut looks = 0;
    until("the last frame", || {
        looks += 1;
        if let Some(f) = client.acquire(0) {
            client.release(&f, HC_SHOWN_NOW); // one frame was still being decoded
            looks = 0;
        }
        (looks == 60).then_some(())
    });
}

/// The camera in view gets the better quality, as the viewer looks from before and behind the performer.
#[test]
fn qualities_follow_the_view() {
    let _lock = lock_shared();
    let port = free_port();
    let _relay = relay(port, &[]);
    let url = url(port);
    let args = ["--source", "synthetic", "--cameras", "2", "--fps", "10", "--depth-mode", "NFOV_2X2BINNED", "--high"];
    let _cameras = Process::start("capture-server", &[&args[..], &["--http", "", &url]].concat());
    let client = Open::url(&url).open().unwrap();
    client.subscribe(HC_ALL_CAMERAS, "");
    client.wait(HC_PHASE_LIVE);
    let mut shown = [0; 2]; // versions of the newest frames' tracks
    for (side, want) in [(1.0, ["high", "low"]), (-1.0, ["low", "high"]), (1.0, ["high", "low"])] {
        // An eye 1.2 m before or behind the performer, whose studio has y up and camera 0 at +z.
        let view = HcView {
            size: size::<HcView>(),
            rotation: [side, 0.0, 0.0, 0.0, -1.0, 0.0, 0.0, 0.0, -side],
            translation: [0.0, 1100.0, 1200.0],
            width: 60.0,
            height: 45.0,
            max_bitrate: 450e3, // the catalog expects 369, 184 and 65 kbit/s at high, medium and low
            ..HcView::default()
        };
        until("frames in the qualities for the view", || {
            // SAFETY: the client is alive, and the struct has its size.
            assert_eq!(unsafe { hc_view(client.0, &view) }, HC_OK);
            for (n, shown) in shown.iter_mut().enumerate() {
                if let Some(f) = client.acquire(n as u32) {
                    *shown = f.track_version;
                    client.release(&f, HC_SHOWN_NOW);
                }
            }
            let quality = |t: &HcTrack| {
                t.quality.iter().take_while(|c| **c != 0).map(|c| char::from(*c as u8)).collect::<String>()
            };
            let tracks = client.tracks();
            let all = want.iter().enumerate().all(|(n, q)| {
                let t = tracks.iter().find(|t| t.camera == n as u32 && quality(t) == *q);
                t.is_some_and(|t| t.flags & HC_TRACK_SUBSCRIBED != 0 && t.version == shown[n])
            });
            all.then_some(())
        });
    }
    assert_eq!(client.stats().frames_damaged, 0);
}

#[test]
fn late_join_in_all_layouts() {
    let _lock = lock_shared();
    for (args, layout, words) in [
        (&["--descriptions", "4", "--fps", "1"][..], HC_LAYOUT_A, 2),
        (&["--layout", "b", "--fps", "1"], HC_LAYOUT_B, 3),
        (&["--layout", "c", "--descriptions", "4", "--fps", "1"], HC_LAYOUT_C, 3),
    ] {
        let port = free_port();
        let _relay = relay(port, &[]);
        let _publisher = publisher(port, args);
        let first = Open::url(&url(port)).open().unwrap();
        first.subscribe(HC_ALL_CAMERAS, "");
        first.frames(0, 3);
        // The joining FETCH delivers a frame before the next one is published.
        let late = Open::url(&url(port)).open().unwrap();
        late.subscribe(HC_ALL_CAMERAS, "");
        let f = late.frame(0);
        assert_eq!((f.layout, f.words_per_point, f.descriptions), (layout, words, f.descriptions_total));
        assert!(f.points > 0 && f.flags & HC_FRAME_PARTIAL == 0);
    }
}

/// Receives frames in datagrams: complete, with fewer descriptions, and over a lossy path.
#[test]
fn frames_in_datagrams() {
    let _lock = lock_shared();
    for (args, wanted) in
        [(&["--descriptions", "1"][..], 0), (&["--descriptions", "4"], 0), (&["--descriptions", "4"], 2)]
    {
        let port = free_port();
        let _relay = relay(port, &[]);
        let url = url(port);
        let _camera = Process::start(
            "capture-server",
            &[&["--source", "synthetic", "--fps", "10", "--http", "", "--delivery", "datagram"], args, &[&url]]
                .concat(),
        );
        let path = Path::to(port);
        let hash = certificate_hash(port);
        let through = format!("moqt://127.0.0.1:{}/test", path.port);
        let client = Open { hash: Some(&hash), ..Open::url(&through) }.open().unwrap();
        let s = HcSubscribe {
            size: size::<HcSubscribe>(),
            camera: 0,
            quality: std::ptr::null(),
            descriptions: wanted,
            reserved: 0,
        };
        // SAFETY: the client and the struct are alive.
        assert_eq!(unsafe { hc_subscribe(client.0, &s) }, HC_OK);
        let frames = client.frames(0, 20);
        let most = if wanted > 0 { wanted } else { frames[0].descriptions_total };
        assert!(
            frames.iter().all(|f| f.descriptions <= most) && frames.iter().any(|f| f.descriptions == most),
            "{frames:?}"
        );
        let whole = client.stats();
        assert!(whole.frames >= 20 && whole.frames_damaged == 0 && whole.publisher_restarts == 0, "{whole:?}");
        path.lose.store(60, std::sync::atomic::Ordering::Relaxed);
        until("repairs", || {
            if let Some(f) = client.acquire(0) {
                client.release(&f, HC_SHOWN_NOW);
            }
            (client.stats().frames_repaired >= whole.frames_repaired + 20).then_some(())
        });
        let s = client.stats();
        println!(
            "{} packets lost on the path, {} frames repaired by {} requests, {} dropped for {} parts, {} lost; \
             before: {} repaired, {} dropped",
            path.lost.load(std::sync::atomic::Ordering::Relaxed),
            s.frames_repaired,
            s.repair_requests,
            s.frames_abandoned,
            s.parts_lost,
            s.frames_lost,
            whole.frames_repaired,
            whole.frames_abandoned
        );
        assert!(s.frames_damaged == 0 && s.memory_bytes < 64 << 20, "{s:?}");
    }
}

/// The relay fetches the parts that it lacks from the publisher. More are lost than its limit of
/// 200 requests per second covers.
#[test]
fn repairs_beyond_the_request_limit() {
    let _lock = lock_shared();
    let port = free_port();
    let _relay = relay(port, &[]);
    let _publisher =
        publisher(port, &["--width", "320", "--height", "288", "--descriptions", "4", "--datagrams", "10"]);
    let client = Open::url(&url(port)).open().unwrap();
    client.subscribe(HC_ALL_CAMERAS, "");
    let when = |what: &str, reached: &dyn Fn(&HcStats) -> bool| {
        until(what, || {
            if let Some(f) = client.acquire(0) {
                client.release(&f, HC_SHOWN_NOW);
            }
            Some(client.stats()).filter(reached)
        })
    };
    let s = when("more requests than a relay takes at once", &|s| s.repair_requests >= 600);
    let s = when("repairs", &|n| n.frames_repaired >= s.frames_repaired + 20);
    let s = when("their frames", &|n| n.frames >= s.frames_repaired);
    println!(
        "{} frames, {} repaired by {} requests, {} dropped",
        s.frames, s.frames_repaired, s.repair_requests, s.frames_abandoned
    );
    assert_eq!(s.frames_damaged, 0, "{s:?}");
}

#[test]
fn fewer_descriptions() {
    let _lock = lock_shared();
    let port = free_port();
    let _relay = relay(port, &[]);
    let _publisher = publisher(port, &["--descriptions", "4"]);
    let client = Open::url(&url(port)).open().unwrap();
    let all =
        HcSubscribe { size: size::<HcSubscribe>(), camera: 0, quality: std::ptr::null(), descriptions: 2, reserved: 0 };
    // SAFETY: the client and the struct are alive.
    assert_eq!(unsafe { hc_subscribe(client.0, &all) }, HC_OK);
    let frames = client.frames(0, 20);
    assert!(frames.iter().all(|f| f.descriptions <= 2 && f.descriptions_total == 4), "{frames:?}");
    assert!(frames.iter().any(|f| f.descriptions == 2));
}

#[test]
fn relay_and_publisher_restart() {
    let _lock = lock_shared();
    let port = free_port();
    let mut first = relay(port, &["--publisher-grace", "1s", "--drain", "1s", "--early-data"]);
    let publisher_1 = publisher(port, &[]);
    let client = Open::url(&url(port)).open().unwrap();
    client.subscribe(HC_ALL_CAMERAS, "");
    client.frames(0, 5);
    // Restart the relay gracefully: it sends GOAWAY, then closes its connections.
    first.ask_to_end();
    first.wait();
    client.wait(HC_PHASE_UNREACHABLE);
    assert!(!client.error().is_empty());
    let second = relay(port, &["--publisher-grace", "1s", "--early-data"]);
    client.wait(HC_PHASE_LIVE);
    client.frames(0, 5);
    assert!(client.state().reconnects >= 1);
    // Crash.
    drop(second);
    let _third = relay(port, &["--publisher-grace", "1s", "--early-data"]);
    let before = client.state().reconnects;
    until("another connection", || {
        client.acquire(0).map(|f| client.release(&f, HC_NOT_SHOWN));
        (client.state().reconnects > before).then_some(())
    });
    client.wait(HC_PHASE_LIVE);
    client.frames(0, 5);
    // The publisher disconnects.
    drop(publisher_1);
    client.wait(HC_PHASE_ENDED);
    let _publisher = publisher(port, &[]);
    client.wait(HC_PHASE_LIVE);
    client.frames(0, 5);
}

/// After an outage the client resumes its session with early data if the relay allows that, and without otherwise.
#[test]
fn resumed_after_an_outage() {
    let _lock = lock_shared();
    for early in [true, false] {
        let port = free_port();
        let relay = relay(port, if early { &["--early-data"] } else { &[] });
        let _publisher = publisher(port, &[]);
        let path = Path::to(port);
        let hash = certificate_hash(port);
        let through = format!("moqt://127.0.0.1:{}/test", path.port);
        let client = Open { hash: Some(&hash), ..Open::url(&through) }.open().unwrap();
        client.subscribe(HC_ALL_CAMERAS, "");
        client.frames(0, 5);
        path.cut.store(true, std::sync::atomic::Ordering::Relaxed);
        client.wait(HC_PHASE_LOST);
        path.cut.store(false, std::sync::atomic::Ordering::Relaxed);
        client.wait(HC_PHASE_LIVE);
        client.frames(0, 5);
        let log = relay.log.lock().unwrap().join("\n");
        assert_eq!(log.contains("early_data=true"), early, "{log}");
    }
}

/// The successor of an upgraded relay knows the tickets, but rejects early data. The client's session begins again on
/// the same connection.
#[test]
fn upgraded_relay_rejects_early_data() {
    let _lock = lock_shared();
    let port = free_port();
    let relay = relay(port, &["--early-data", "--drain-timeout", "1s"]);
    let _publisher = publisher(port, &[]);
    let client = Open::url(&url(port)).open().unwrap();
    client.subscribe(HC_ALL_CAMERAS, "");
    client.frames(0, 5);
    let out = Command::new(program("relay")).args(["upgrade", "--listen", &format!("127.0.0.1:{port}")]).output();
    let text = String::from_utf8(out.unwrap().stdout).unwrap();
    let successor = text.split_whitespace().skip_while(|w| *w != "process").nth(1).map(str::to_owned);
    let _end = Killed(successor.unwrap_or_else(|| panic!("no successor: {text}")));
    until("another session", || {
        client.acquire(0).map(|f| client.release(&f, HC_NOT_SHOWN));
        (client.state().reconnects > 0).then_some(())
    });
    client.frames(0, 5);
    assert_eq!(client.wait(HC_PHASE_LIVE).reconnects, 1);
    let log = relay.log.lock().unwrap().join("\n");
    assert!(!log.contains("early_data=true"), "{log}");
}

/// Kills a process on drop.
struct Killed(String);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = Command::new("kill").args(["-9", &self.0]).status();
    }
}

#[test]
fn goaway_to_another_relay() {
    let _lock = lock_shared();
    let (port, elsewhere) = (free_port(), free_port());
    let _relay = relay(elsewhere, &[]);
    let _publisher = publisher(elsewhere, &[]);
    let address = format!("127.0.0.1:{port}");
    let _away = Process::start("publisher", &["--leave-for", &url(elsewhere), &address]);
    until("a relay", || std::net::TcpStream::connect(&address).ok());
    let client = Open::url(&url(port)).open().unwrap();
    client.subscribe(HC_ALL_CAMERAS, "");
    client.frames(0, 5);
    assert_eq!(client.state().reconnects, 1);
}

/// The relay of a cluster is killed. The client continues at the other one, without the application's help.
#[test]
fn relay_of_a_cluster_lost() {
    let _lock = lock_shared();
    let key = std::env::temp_dir().join(format!("holocast-cluster-{}.key", std::process::id()));
    let _ = std::fs::remove_file(&key);
    let key = key.to_str().unwrap();
    Process::start("relay", &["key", key, "--algorithm", "HS256"]).wait();
    let (first, second, admin) = (free_port(), free_port(), free_port());
    let (bus, admin) = (format!("127.0.0.1:{}", free_port()), [admin, free_port()]);
    let member = |port, admin: u16, bus: &str, join: &str| {
        let admin = format!("127.0.0.1:{admin}");
        let mut args = vec!["--admin", &admin, "--cluster", "test", "--cluster-secret", key, "--cluster-listen", bus];
        if !join.is_empty() {
            args.extend(["--cluster-join", join]);
        }
        relay(port, &args)
    };
    let lost = member(first, admin[0], &bus, "");
    let _stays = member(second, admin[1], "127.0.0.1:0", &bus);
    std::fs::remove_file(key).unwrap();
    for port in admin {
        until("the relays know each other", || {
            http_get(port, "/metrics").filter(|m| m.contains("\nholocast_relay_cluster_relays 1\n"))
        });
    }
    let _publisher = publisher(second, &[]);
    let client = Open::url(&url(first)).open().unwrap();
    client.subscribe(HC_ALL_CAMERAS, "");
    client.frames(0, 30);
    assert_eq!(client.state().reconnects, 0);
    drop(lost);
    until("a session with the other relay", || {
        client.acquire(0).map(|f| client.release(&f, HC_NOT_SHOWN));
        (client.state().reconnects > 0).then_some(())
    });
    client.frames(0, 30);
    assert_eq!((client.state().phase, client.state().reconnects), (HC_PHASE_LIVE, 1));
}

#[test]
fn silent_publisher() {
    let _lock = lock_shared();
    let port = free_port();
    let _relay = relay(port, &[]);
    let _publisher = publisher(port, &["--frames", "10"]);
    let client = Open::url(&url(port)).open().unwrap();
    client.subscribe(HC_ALL_CAMERAS, "");
    client.wait(HC_PHASE_SILENT);
}

#[test]
fn playback_of_a_recording() {
    let _lock = lock_shared();
    let port = free_port();
    let _relay = relay(port, &[]);
    let file = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("recording-{port}.mcap"));
    let file = file.to_str().unwrap();
    let published = Instant::now();
    {
        let _publisher = publisher(port, &[]);
        let mut record = Process::start("holocast", &["record", &url(port), file, "--duration", "6s", "--wait"]);
        record.wait();
    }
    let again = format!("moqt://127.0.0.1:{port}/again");
    let wall_ms = |since: Instant| since.elapsed().as_secs_f64() * 1e3;
    let _replay = Process::start("holocast", &["replay", file, &again, "--loop"]);
    let client = Open::url(&again).open().unwrap();
    client.subscribe(HC_ALL_CAMERAS, "");
    let f = client.frame(0);
    // The delay of a replayed frame counts from its arrival.
    let since_arrival = f.decoded_us as i64 - f.arrived_us as i64;
    assert!(f.flags & HC_FRAME_REPLAYED != 0 && (f.delay_us - since_arrival).abs() <= 1, "{f:?}");
    let both = HC_STATE_REPLAYED | HC_STATE_RECORDING;
    until("the recording", || (client.state().flags & both == both).then_some(()));
    let p = client.playback(HC_PLAYBACK_QUERY, 0.0);
    assert_eq!(p.flags & 7, HC_PLAYBACK_AVAILABLE | HC_PLAYBACK_PLAYING | HC_PLAYBACK_IS_LIVE);
    assert!(p.duration_ms > 2000.0 && p.duration_ms < wall_ms(published), "{p:?}");
    assert!(client.tracks()[0].flags & HC_TRACK_RECORDED != 0);
    // While paused, the position is constant, and only the frame at that position arrives.
    let sought = Instant::now();
    client.playback(HC_PLAYBACK_SEEK, 1000.0);
    client.playback(HC_PLAYBACK_PAUSE, 0.0);
    let paused = |p: &HcPlayback| p.flags & (HC_PLAYBACK_PLAYING | HC_PLAYBACK_IS_LIVE | HC_PLAYBACK_WAITING) == 0;
    let p = until("the pause", || Some(client.playback(HC_PLAYBACK_QUERY, 0.0)).filter(paused));
    assert!((1000.0..=1000.0 + wall_ms(sought)).contains(&p.position_ms), "{p:?}");
    let settled = |client: &Client| {
        let (mut last, mut looks) = (None, 0);
        until("the last frame of the pause", || {
            looks += 1;
            if client.playback(HC_PLAYBACK_QUERY, 0.0).flags & HC_PLAYBACK_WAITING != 0 {
                looks = 0;
            }
            if let Some(f) = client.acquire(0) {
                client.release(&f, HC_SHOWN_NOW);
                (last, looks) = (Some(f), 0);
            }
            (looks == 140).then_some(())
        });
        last
    };
    let frame_at_seek = |client: &Client| {
        let f = client.frame(0);
        settled(client).unwrap_or(f)
    };
    settled(&client);
    // A seek shows its frame even while paused.
    client.playback(HC_PLAYBACK_SEEK, 500.0);
    let at_500 = frame_at_seek(&client);
    client.playback(HC_PLAYBACK_SEEK, 1500.0);
    let at_1500 = frame_at_seek(&client);
    let apart = at_1500.captured_us as f64 - at_500.captured_us as f64;
    assert!((apart / 1e6 - 1.0).abs() < 0.3, "{apart} µs");
    client.playback(HC_PLAYBACK_SEEK, 500.0);
    assert_eq!(frame_at_seek(&client).sequence, at_500.sequence);
    // Playback resumes from there and sends no receipts.
    let receipts = client.stats().receipts;
    let resumed = Instant::now();
    client.playback(HC_PLAYBACK_PLAY, 0.0);
    let frames = client.frames(0, 10);
    assert!(frames.windows(2).all(|w| w[1].sequence > w[0].sequence));
    let ahead_ms = (frames[0].captured_us - at_500.captured_us) as f64 / 1e3;
    assert!(ahead_ms < 1000.0 + wall_ms(resumed), "{ahead_ms} ms");
    assert_eq!(client.stats().receipts, receipts);
    client.playback(HC_PLAYBACK_LIVE, 0.0);
    until("the replay", || (client.playback(HC_PLAYBACK_QUERY, 0.0).flags & HC_PLAYBACK_IS_LIVE != 0).then_some(()));
    client.frames(0, 5);
    let _ = std::fs::remove_file(file);
}

/// Frames are shown despite invalid data between them, and memory does not grow. HOLOCAST_SOAK sets
/// the duration in seconds, for a longer soak test.
#[test]
fn hostile_publisher() {
    let _lock = lock_exclusive();
    let port = free_port();
    let _relay = relay(port, &[]);
    let _publisher = publisher(port, &["--hostile"]);
    let client = Open::url(&url(port)).open().unwrap();
    client.subscribe(HC_ALL_CAMERAS, "");
    let soak = std::env::var("HOLOCAST_SOAK").ok().and_then(|s| s.parse().ok()).unwrap_or(8);
    client.frames(0, 60);
    let (before, began) = (resident(), Instant::now());
    while began.elapsed() < Duration::from_secs(soak) {
        client.frame(0);
    }
    until("undecodable frames", || {
        client.frame(0);
        (client.stats().frames_damaged > 5).then_some(())
    });
    let s = client.stats();
    println!(
        "{} frames, {} damaged, {} KiB before, {} KiB after, {} bytes held",
        s.frames,
        s.frames_damaged,
        before,
        resident(),
        s.memory_bytes
    );
    assert!(s.memory_bytes < 16 << 20, "{s:?}");
    assert!(resident() < before + (24 << 10), "{before} KiB before, {} KiB after", resident());
}

#[test]
fn session_list() {
    let _lock = lock_shared();
    let port = free_port();
    let _relay = relay(port, &["--publisher-grace", "1s"]);
    let list = Open::url(&format!("moqt://127.0.0.1:{port}")).open().unwrap();
    list.wait(HC_PHASE_LISTING);
    let one = publisher(port, &[]);
    until("a session", || (list.sessions() == ["test"]).then_some(()));
    assert_eq!(list.state().sessions, 1);
    drop(one);
    until("its end", || list.sessions().is_empty().then_some(()));
}

#[test]
fn error_messages() {
    let _lock = lock_shared();
    let port = free_port();
    let waits = Open::url(&url(port)).open().unwrap();
    waits.wait(HC_PHASE_UNREACHABLE);
    assert_eq!(
        waits.error(),
        format!("nothing answers at 127.0.0.1:{port}: is the relay running, and does UDP reach it?")
    );
    let _relay = relay(port, &[]);
    waits.wait(HC_PHASE_WAITING);
    let wrong = "00".repeat(32);
    let refused = Open { hash: Some(&wrong), ..Open::url(&url(port)) }.open().unwrap();
    refused.wait(HC_PHASE_CERTIFICATE);
    let text = refused.error();
    assert!(
        text.starts_with(&format!("the certificate of 127.0.0.1:{port} is not trusted: "))
            && text.contains("not the expected 0000"),
        "{text}"
    );
    // The catalog adds the track in a delta update.
    let _publisher = publisher(port, &["--delta"]);
    waits.wait(HC_PHASE_LIVE);
    // SAFETY: the client is alive, and the struct has the right size.
    let played = unsafe {
        let mut p = HcPlayback { size: size::<HcPlayback>(), ..HcPlayback::default() };
        hc_playback(waits.0, HC_PLAYBACK_PLAY, 0.0, &mut p)
    };
    assert_eq!((played, waits.error().as_str()), (HC_E_STATE, "the session has no seekable recording"));
}

/// An encrypted session, with the key in the URL, with another, and without.
#[test]
fn encrypted_session() {
    let _lock = lock_shared();
    let port = free_port();
    let _relay = relay(port, &[]);
    let url = url(port);
    let folder = std::env::temp_dir().join(format!("holocast-e2e-{}", std::process::id()));
    let file = folder.join("session.key");
    std::fs::create_dir(&folder).unwrap();
    let path = file.to_str().unwrap();
    Process::start("holocast", &["key", path]).wait();
    let keys = std::fs::read_to_string(&file).unwrap();
    let key = keys.lines().last().unwrap().replace(' ', ".");
    let args = ["--source", "synthetic", "--fps", "5", "--e2e-key", path, "--http", "", &url];
    let _camera = Process::start("capture-server", &args);

    let client = Open::url(&format!("{url}#e2e={key}")).open().unwrap();
    client.subscribe(HC_ALL_CAMERAS, "");
    client.wait(HC_PHASE_LIVE);
    for f in client.frames(0, 3) {
        assert!(f.points > 10_000);
    }
    for (fragment, why) in
        [("", "the session is encrypted"), ("#e2e=1.AAECAwQFBgcICQoLDA0ODw", "key 1 has another secret")]
    {
        let other = Open::url(&format!("{url}{fragment}")).open().unwrap();
        other.wait(HC_PHASE_REFUSED);
        assert!(other.error().contains(why), "{}", other.error());
    }
    let (_, damaged) = Open::url(&format!("{url}#e2e=1.AA")).open().err().unwrap();
    assert!(damaged.contains("damaged"), "{damaged}");
    std::fs::remove_dir_all(&folder).unwrap();
}
