//! Test wrappers for the C interface, and for the programs that tests run.
#![allow(dead_code, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::ffi::{c_char, CString};
use std::io::{BufRead, BufReader};
use std::net::{TcpListener, UdpSocket};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::{Duration, Instant};

use holocast::*;

pub fn size<T>() -> u32 {
    std::mem::size_of::<T>() as u32
}

/// Hang guard for every wait; generous, since test machines may be busy.
pub const HANG_GUARD: Duration = Duration::from_secs(120);

static RUNNING: RwLock<()> = RwLock::new(());

/// Lock for tests that measure this process's memory. It excludes all tests that start programs.
pub fn lock_exclusive() -> RwLockWriteGuard<'static, ()> {
    RUNNING.write().unwrap_or_else(|e| e.into_inner())
}

/// Lock for the other tests that start programs. They mostly wait and may run concurrently.
pub fn lock_shared() -> RwLockReadGuard<'static, ()> {
    RUNNING.read().unwrap_or_else(|e| e.into_inner())
}

pub fn until<T>(what: &str, mut f: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(v) = f() {
            return v;
        }
        assert!(began.elapsed() < HANG_GUARD, "timed out waiting for {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn text(call: impl Fn(*mut c_char, usize, *mut usize) -> i32) -> String {
    let mut needed = 0;
    call(null_mut(), 0, &mut needed);
    let mut b = vec![0 as c_char; needed + 64];
    call(b.as_mut_ptr(), b.len(), &mut needed);
    let bytes: Vec<u8> = b[..needed.max(1) - 1].iter().map(|c| *c as u8).collect();
    String::from_utf8(bytes).unwrap()
}

pub fn thread_error() -> String {
    // SAFETY: the buffer holds the given number of bytes.
    text(|b, n, needed| unsafe { hc_error(null_mut(), b, n, needed) })
}

pub struct Open<'a> {
    pub url: &'a str,
    pub hash: Option<&'a str>,
    pub viewer: Option<&'a str>,
    pub flags: u32,
}

impl<'a> Open<'a> {
    pub fn url(url: &'a str) -> Self {
        Open { url, hash: None, viewer: None, flags: 0 }
    }

    pub fn open(&self) -> Result<Client, (i32, String)> {
        let url = CString::new(self.url).unwrap();
        let hash = self.hash.map(|h| CString::new(h).unwrap());
        let viewer = self.viewer.map(|v| CString::new(v).unwrap());
        let p = |s: &Option<CString>| s.as_ref().map_or(null(), |s| s.as_ptr());
        let config = HcConfig {
            size: size::<HcConfig>(),
            abi_version: HC_ABI_VERSION,
            url: url.as_ptr(),
            certificate_hash: p(&hash),
            viewer: p(&viewer),
            flags: self.flags,
            delivery_timeout_ms: 0,
            decode_threads: 0,
            reserved: 0,
        };
        let mut c = null_mut();
        // SAFETY: config outlives the call.
        match unsafe { hc_open(&config, &mut c) } {
            HC_OK => Ok(Client(c)),
            code => Err((code, thread_error())),
        }
    }
}

/// A client, closed on drop.
pub struct Client(pub *mut HcClient);

impl Drop for Client {
    fn drop(&mut self) {
        // SAFETY: the client came from hc_open, and this is its last call.
        unsafe { hc_close(self.0) }
    }
}

// Each unsafe call in these methods passes this live client and live structs of the right size.
#[allow(clippy::undocumented_unsafe_blocks)]
impl Client {
    pub fn state(&self) -> HcState {
        let mut s = HcState { size: size::<HcState>(), ..HcState::default() };
        assert_eq!(unsafe { hc_poll(self.0, &mut s) }, HC_OK);
        s
    }

    pub fn error(&self) -> String {
        text(|b, n, needed| unsafe { hc_error(self.0, b, n, needed) })
    }

    pub fn sessions(&self) -> Vec<String> {
        let all = text(|b, n, needed| unsafe { hc_sessions(self.0, b, n, needed) });
        all.split_terminator('\0').map(str::to_owned).collect()
    }

    pub fn subscribe(&self, camera: u32, quality: &str) {
        let quality = CString::new(quality).unwrap();
        let s = HcSubscribe {
            size: size::<HcSubscribe>(),
            camera,
            quality: quality.as_ptr(),
            descriptions: 0,
            reserved: 0,
        };
        assert_eq!(unsafe { hc_subscribe(self.0, &s) }, HC_OK);
    }

    pub fn tracks(&self) -> Vec<HcTrack> {
        let mut list: Vec<HcTrack> = (0..64).map(|_| unsafe { std::mem::zeroed() }).collect();
        list[0].size = size::<HcTrack>();
        let mut count = 0;
        assert_eq!(unsafe { hc_catalog(self.0, list.as_mut_ptr(), 64, &mut count) }, HC_OK);
        list.truncate(count as usize);
        list
    }

    pub fn rays(&self, t: &HcTrack) -> Option<Vec<f32>> {
        let mut needed = 0;
        if unsafe { hc_rays(self.0, t.camera, t.version, null_mut(), 0, &mut needed) } == HC_EMPTY {
            return None;
        }
        let mut rays = vec![0.0; needed];
        assert_eq!(unsafe { hc_rays(self.0, t.camera, t.version, rays.as_mut_ptr(), rays.len(), &mut needed) }, HC_OK);
        Some(rays)
    }

    pub fn acquire(&self, camera: u32) -> Option<HcFrame> {
        let mut f = HcFrame { size: size::<HcFrame>(), ..HcFrame::default() };
        match unsafe { hc_frame_acquire(self.0, camera, &mut f) } {
            HC_OK => Some(f),
            HC_EMPTY => None,
            code => panic!("hc_frame_acquire: {code}: {}", self.error()),
        }
    }

    pub fn copy(&self, f: &HcFrame, step: u32) -> Vec<u32> {
        let mut words = vec![0; (f.points * f.words_per_point) as usize];
        let mut points = 0;
        assert_eq!(
            unsafe { hc_frame_copy(self.0, f.handle, step, words.as_mut_ptr(), words.len(), &mut points) },
            HC_OK
        );
        words.truncate((points * f.words_per_point) as usize);
        words
    }

    pub fn grid(&self, f: &HcFrame) -> Vec<u32> {
        let mut needed = 0;
        assert_eq!(unsafe { hc_frame_grid(self.0, f.handle, null_mut(), 0, &mut needed) }, HC_E_BUFFER);
        let mut words = vec![1; needed];
        assert_eq!(
            unsafe { hc_frame_grid(self.0, f.handle, words.as_mut_ptr(), needed - 1, &mut needed) },
            HC_E_BUFFER
        );
        assert_eq!(unsafe { hc_frame_grid(self.0, f.handle, words.as_mut_ptr(), needed, &mut needed) }, HC_OK);
        words
    }

    pub fn release(&self, f: &HcFrame, shown_us: i64) -> i32 {
        unsafe { hc_frame_release(self.0, f.handle, shown_us) }
    }

    /// Waits for the next frame of a camera and shows it.
    pub fn frame(&self, camera: u32) -> HcFrame {
        let f = until("a frame", || self.acquire(camera));
        assert_eq!(self.release(&f, HC_SHOWN_NOW), HC_OK);
        f
    }

    pub fn frames(&self, camera: u32, n: usize) -> Vec<HcFrame> {
        (0..n).map(|_| self.frame(camera)).collect()
    }

    /// Waits for a phase, showing frames meanwhile.
    pub fn wait(&self, phase: u32) -> HcState {
        until(&format!("phase {phase} (now {}: {})", self.state().phase, self.error()), || {
            if let Some(f) = self.acquire(0) {
                self.release(&f, HC_SHOWN_NOW);
            }
            Some(self.state()).filter(|s| s.phase == phase)
        })
    }

    pub fn stats(&self) -> HcStats {
        let mut s = HcStats { size: size::<HcStats>(), ..HcStats::default() };
        assert_eq!(unsafe { hc_stats(self.0, HC_ALL_CAMERAS, &mut s) }, HC_OK);
        s
    }

    pub fn clock(&self) -> HcClock {
        let mut c = HcClock { size: size::<HcClock>(), ..HcClock::default() };
        assert_eq!(unsafe { hc_clock(self.0, &mut c) }, HC_OK);
        c
    }

    pub fn playback(&self, action: u32, ms: f64) -> HcPlayback {
        let mut p = HcPlayback { size: size::<HcPlayback>(), ..HcPlayback::default() };
        assert_eq!(unsafe { hc_playback(self.0, action, ms, &mut p) }, HC_OK, "{}", self.error());
        p
    }
}

pub fn repository() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../..").canonicalize().unwrap()
}

/// Path of one of the repository's programs: built by `make build`, or compiled here for the test
/// publisher.
pub fn program(name: &str) -> PathBuf {
    static PUBLISHER: OnceLock<PathBuf> = OnceLock::new();
    if name != "publisher" {
        let path = repository().join("bin").join(name);
        assert!(path.exists(), "{} is missing: run make build", path.display());
        return path;
    }
    PUBLISHER
        .get_or_init(|| {
            let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("publisher");
            let mut go = Command::new("go");
            let built = go
                .args(["build", "-o"])
                .arg(&path)
                .arg("./client-web/test/publisher")
                .current_dir(repository())
                .status();
            assert!(built.unwrap().success(), "the publisher does not build");
            path
        })
        .clone()
}

/// A program under test, killed on drop.
pub struct Process {
    child: Child,
    /// Standard output.
    pub lines: Lines,
    /// Standard error.
    pub log: Lines,
}

type Lines = Arc<Mutex<Vec<String>>>;

fn collect(from: impl std::io::Read + Send + 'static) -> Lines {
    let lines = Lines::default();
    let to = lines.clone();
    std::thread::spawn(move || {
        for line in BufReader::new(from).lines().map_while(Result::ok) {
            to.lock().unwrap().push(line);
        }
    });
    lines
}

impl Process {
    pub fn start(name: &str, args: &[&str]) -> Process {
        let mut child = Command::new(program(name))
            .args(args)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = collect(child.stdout.take().unwrap());
        let log = collect(child.stderr.take().unwrap());
        Process { child, lines, log }
    }

    /// Sends SIGTERM.
    pub fn ask_to_end(&self) {
        Command::new("kill").arg(self.child.id().to_string()).status().unwrap();
    }

    pub fn wait(&mut self) {
        until("a program's exit", || self.child.try_wait().unwrap());
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A port that is free for both UDP and TCP. As it is below the ephemeral range, no outgoing connection can take it
/// before the program under test does, and a client cannot connect to itself on it.
pub fn free_port() -> u16 {
    use std::hash::{BuildHasher, RandomState};
    static NEXT: OnceLock<AtomicUsize> = OnceLock::new();
    let next = NEXT.get_or_init(|| AtomicUsize::new(RandomState::new().hash_one(0) as usize % (1 << 30)));
    loop {
        let port = (10_000 + next.fetch_add(1, Relaxed) % 20_000) as u16;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() && UdpSocket::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

/// The response of a relay's HTTP server; None if it does not answer.
pub fn http_get(port: u16, path: &str) -> Option<String> {
    use std::io::{Read, Write};
    let mut c = std::net::TcpStream::connect(("127.0.0.1", port)).ok()?;
    write!(c, "GET {path} HTTP/1.0\r\nHost: 127.0.0.1:{port}\r\n\r\n").ok()?;
    let mut text = String::new();
    c.read_to_string(&mut text).ok()?;
    Some(text).filter(|t| t.lines().next().is_some_and(|status| status.contains(" 200 ")))
}

/// Starts a relay and waits until it is healthy.
pub fn relay(port: u16, args: &[&str]) -> Process {
    let addr = format!("127.0.0.1:{port}");
    let mut p = Process::start("relay", &[&["--listen", &addr, "--http", &addr], args].concat());
    until("the relay's start", || {
        assert!(p.child.try_wait().unwrap().is_none(), "the relay exited");
        http_get(port, "/healthz")
    });
    p
}

pub fn url(port: u16) -> String {
    format!("moqt://127.0.0.1:{port}/test")
}

/// Starts a publisher of small frames with known content.
pub fn publisher(port: u16, args: &[&str]) -> Process {
    let url = url(port);
    Process::start("publisher", &[&["--width", "160", "--height", "120"], args, &[&url]].concat())
}

/// Resident memory of this process, KiB.
pub fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|l| l.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// SHA-256 of a relay's certificate, fetched over HTTP.
pub fn certificate_hash(port: u16) -> String {
    let text = until("the certificate's hash", || http_get(port, "/certificate.sha256"));
    text.trim().lines().last().unwrap().trim().to_owned()
}

/// A path to a relay that, once enabled, drops every nth large packet on its way to the client, or all packets.
pub struct Path {
    pub port: u16,
    pub cut: Arc<AtomicBool>,
    pub lose: Arc<AtomicUsize>,
    pub lost: Arc<AtomicUsize>,
    over: Arc<AtomicBool>,
    threads: Vec<std::thread::JoinHandle<()>>,
}

impl Path {
    pub fn to(relay: u16) -> Path {
        let (near, far) = (UdpSocket::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("127.0.0.1:0").unwrap());
        far.connect(("127.0.0.1", relay)).unwrap();
        let port = near.local_addr().unwrap().port();
        for s in [&near, &far] {
            s.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        }
        let (lose, lost, over) =
            (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default(), Arc::<AtomicBool>::default());
        let client = Arc::new(Mutex::new(None));
        let cut = Arc::<AtomicBool>::default();
        let up = {
            let (near, far, over, client, cut) =
                (near.try_clone().unwrap(), far.try_clone().unwrap(), over.clone(), client.clone(), cut.clone());
            std::thread::spawn(move || {
                let mut b = [0; 1 << 16];
                while !over.load(Relaxed) {
                    if let Ok((n, from)) = near.recv_from(&mut b) {
                        *client.lock().unwrap() = Some(from);
                        if !cut.load(Relaxed) {
                            let _ = far.send(&b[..n]);
                        }
                    }
                }
            })
        };
        let down = {
            let (lose, lost, over, cut) = (lose.clone(), lost.clone(), over.clone(), cut.clone());
            std::thread::spawn(move || {
                let mut b = [0; 1 << 16];
                let mut large = 0;
                while !over.load(Relaxed) {
                    let (Ok(n), Some(to)) = (far.recv(&mut b), *client.lock().unwrap()) else { continue };
                    let every = lose.load(Relaxed);
                    large += usize::from(n > 1000);
                    if cut.load(Relaxed) {
                        continue;
                    }
                    if n > 1000 && every > 0 && large % every == 0 {
                        lost.fetch_add(1, Relaxed);
                    } else {
                        let _ = near.send_to(&b[..n], to);
                    }
                }
            })
        };
        Path { port, cut, lose, lost, over, threads: vec![up, down] }
    }
}

impl Drop for Path {
    fn drop(&mut self) {
        self.over.store(true, Relaxed);
        for t in self.threads.drain(..) {
            let _ = t.join();
        }
    }
}
