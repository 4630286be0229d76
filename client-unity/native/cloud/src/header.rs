/// Header bytes, before the compressed planes.
pub const HEADER_LENGTH: usize = 44;
/// Maximum points per object.
pub const MAX_POINTS: usize = 4096 * 4096;
const MAX_SIDE: u16 = 4096;

/// A format error in an object. `field` is a name from the specification.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("point-cloud frame: {field}: {detail}")]
pub struct FrameError {
    /// The invalid field.
    pub field: &'static str,
    /// Description of the error.
    pub detail: String,
}

impl FrameError {
    /// An error of a field.
    pub fn new(field: &'static str, detail: impl Into<String>) -> Self {
        FrameError { field, detail: detail.into() }
    }
}

/// Layout of the planes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// Sensor grid.
    A = 1,
    /// Unorganized points.
    B = 2,
    /// LiveScan3D records.
    C = 3,
    /// Sensor grid in video (docs/spec/video-frame.md).
    W = 4,
}

impl Layout {
    /// 32-bit words per decoded point.
    pub fn words_per_point(self) -> usize {
        match self {
            Layout::A | Layout::W => 2,
            Layout::B | Layout::C => 3,
        }
    }
}

/// The fixed-size header of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Layout of the planes.
    pub layout: Layout,
    /// Frame number.
    pub sequence: u32,
    /// Microseconds on the sensor's own clock.
    pub device_time: u64,
    /// Middle of the exposure: UNIX time in microseconds on the relay's clock.
    pub capture_time: u64,
    /// Camera number within the session.
    pub camera: u16,
    /// Index of this description.
    pub description: u8,
    /// Descriptions per frame: 1 or 4.
    pub descriptions: u8,
    /// Width of the full grid in pixels; 0 in layouts B and C.
    pub width: u16,
    /// Height of the full grid in pixels; 0 in layouts B and C.
    pub height: u16,
    /// Points in this object.
    pub points: u32,
    /// Length of the decompressed planes, bytes.
    pub raw_length: u32,
}

/// The part of a grid that one description covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Share {
    pub width: usize,
    pub height: usize,
    pub dx: usize,
    pub dy: usize,
    pub step: usize,
}

impl Header {
    /// Parses and checks the header of an object in layout A, B or C. Does not read the planes.
    pub fn parse(b: &[u8]) -> Result<Header, FrameError> {
        Self::read(b, false)
    }

    /// Parses and checks the header of an object in layout W.
    pub fn parse_video(b: &[u8]) -> Result<Header, FrameError> {
        Self::read(b, true)
    }

    fn read(b: &[u8], video: bool) -> Result<Header, FrameError> {
        let Some(b) = b.get(..HEADER_LENGTH) else {
            return Err(FrameError::new("length", format!("{} bytes, the header has {HEADER_LENGTH}", b.len())));
        };
        let number = |at: usize, n: usize| b[at..at + n].iter().rev().fold(0u64, |v, x| v << 8 | u64::from(*x));
        let bad = |field, detail: String| Err(FrameError::new(field, detail));
        if &b[..4] != b"HCPF" {
            return bad("magic", format!("{:02x?}, want HCPF", &b[..4]));
        }
        if b[4] != 1 {
            return bad("version", format!("{}, want 1", b[4]));
        }
        let layout = match b[5] {
            1 if !video => Layout::A,
            2 if !video => Layout::B,
            3 if !video => Layout::C,
            4 if video => Layout::W,
            v => return bad("layout", format!("{v} is unknown")),
        };
        if b[6] != 1 + u8::from(video) {
            return bad("codec", format!("{} is unknown", b[6]));
        }
        if b[7] != 0 {
            return bad("flags", format!("{:#x}, want 0", b[7]));
        }
        let h = Header {
            layout,
            sequence: number(8, 4) as u32,
            device_time: number(12, 8),
            capture_time: number(20, 8),
            camera: number(28, 2) as u16,
            description: b[30],
            descriptions: b[31],
            width: number(32, 2) as u16,
            height: number(34, 2) as u16,
            points: number(36, 4) as u32,
            raw_length: number(40, 4) as u32,
        };
        if h.descriptions != 1 && (h.descriptions != 4 || video) {
            let want = if video { "1" } else { "1 or 4" };
            return bad("descriptions", format!("{}, want {want}", h.descriptions));
        }
        if h.description >= h.descriptions {
            return bad("description", format!("{} of {}", h.description, h.descriptions));
        }
        let mut most = MAX_POINTS;
        if matches!(layout, Layout::A | Layout::W) {
            if !(1..=MAX_SIDE).contains(&h.width) {
                return bad("width", format!("{}, want 1 to {MAX_SIDE}", h.width));
            }
            if !(1..=MAX_SIDE).contains(&h.height) {
                return bad("height", format!("{}, want 1 to {MAX_SIDE}", h.height));
            }
            let s = h.share();
            most = s.width * s.height;
        } else if h.width != 0 || h.height != 0 {
            return bad("width", format!("{}×{} in layout {layout:?}, want 0×0", h.width, h.height));
        }
        if h.points as usize > most {
            return bad("points", format!("{}, at most {most}", h.points));
        }
        let (least, most) = h.raw_bounds();
        if !(least..=most).contains(&(h.raw_length as usize)) {
            return bad("raw length", format!("{}, want {least} to {most}", h.raw_length));
        }
        Ok(h)
    }

    pub(crate) fn share(&self) -> Share {
        let (w, h) = (usize::from(self.width), usize::from(self.height));
        if self.descriptions == 1 {
            return Share { width: w, height: h, dx: 0, dy: 0, step: 1 };
        }
        let (dx, dy) = (usize::from(self.description) & 1, usize::from(self.description) >> 1);
        Share { width: (w + 1 - dx) / 2, height: (h + 1 - dy) / 2, dx, dy, step: 2 }
    }

    /// Minimum and maximum plane length that the other fields allow.
    fn raw_bounds(&self) -> (usize, usize) {
        let n = self.points as usize;
        match self.layout {
            Layout::A => {
                let s = self.share();
                let pixels = s.width * s.height;
                let nibbles = n.div_ceil(2) * 2 + n;
                (pixels / 255 + nibbles, pixels + pixels / 255 + 1 + nibbles + 9 * n)
            }
            Layout::B => {
                let nibbles = n.div_ceil(2) * 4 + n;
                (nibbles, nibbles + 15 * n)
            }
            Layout::C => (9 * n, 9 * n),
            Layout::W => (1, 3 * usize::from(self.width) * usize::from(self.height) + 1),
        }
    }

    /// True if both belong to the same frame.
    pub fn same_frame(&self, o: &Header) -> bool {
        Header { description: o.description, points: o.points, raw_length: o.raw_length, ..*self } == *o
    }
}
