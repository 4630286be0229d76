//! Decodes point-cloud frames (docs/spec/point-cloud-frame.md) to words for the GPU. Independent of
//! the network.

mod grid;
mod header;
mod inflate;
mod lanes;
mod pixels;
mod points;
mod rays;
mod runs;
mod subject;

pub use header::{FrameError, Header, Layout, HEADER_LENGTH, MAX_POINTS};
pub use inflate::Inflate;
pub use pixels::{grid_words, scatter, BORDER};
pub use rays::{ray_table, Lens};
pub use runs::Runs;
pub use subject::{subject, Subject, Transform};

/// Decoder limits, tighter than the format's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Maximum points per frame, over all descriptions.
    pub max_points: usize,
    /// Required grid size of a layout A frame, in pixels.
    pub grid: Option<(u16, u16)>,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { max_points: MAX_POINTS, grid: None }
    }
}

/// A decoded frame. Its words are in the caller's buffer, [`Frame::words_per_point`] per point:
///
/// * layouts A and W: `X | Y << 12 | R << 24` of the pixel; `depth | G << 16 | B << 24`, depth in millimetres
/// * layouts B and C: `X | Y << 16`; `Z | R << 16 | G << 24`; `B`, coordinates i16 in millimetres
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame {
    /// Header of the first object.
    pub header: Header,
    /// Points of all objects.
    pub points: usize,
    /// Number of objects decoded.
    pub descriptions: usize,
}

impl Frame {
    /// 32-bit words per point.
    pub fn words_per_point(&self) -> usize {
        self.header.layout.words_per_point()
    }
}

/// Decodes frames, reusing its buffers.
pub struct Decoder {
    inflate: Inflate,
    grid: grid::Grid,
}

impl std::fmt::Debug for Decoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Decoder").field("inflate", &self.inflate).finish_non_exhaustive()
    }
}

impl Default for Decoder {
    fn default() -> Self {
        Self::new()
    }
}

/// Parses the headers of a frame's descriptions and checks them against each other and the limits.
fn headers<T: AsRef<[u8]>>(objects: &[T], limits: &Limits) -> Result<([Option<Header>; 4], Frame), FrameError> {
    let Some(first) = objects.first() else { return Err(FrameError::new("length", "no object")) };
    if objects.len() > 4 {
        return Err(FrameError::new("description", format!("{} objects, want at most 4", objects.len())));
    }
    let first = Header::parse(first.as_ref())?;
    let mut list = [None; 4];
    let mut points = 0;
    let mut seen = 0u8;
    for (object, place) in objects.iter().zip(&mut list) {
        let h = Header::parse(object.as_ref())?;
        if !h.same_frame(&first) {
            return Err(FrameError::new("mismatch", "objects of different frames"));
        }
        if seen & 1 << h.description != 0 {
            return Err(FrameError::new("description", format!("{} occurs twice", h.description)));
        }
        seen |= 1 << h.description;
        points += h.points as usize;
        *place = Some(h);
    }
    if points > limits.max_points {
        return Err(FrameError::new("points", format!("{points} exceed the limit of {}", limits.max_points)));
    }
    if let (Layout::A, Some((width, height))) = (first.layout, limits.grid) {
        if (first.width, first.height) != (width, height) {
            let got = format!("{}×{}, but the track has {width}×{height}", first.width, first.height);
            return Err(FrameError::new("width", got));
        }
    }
    Ok((list, Frame { header: first, points, descriptions: objects.len() }))
}

/// Reads a frame's headers without decoding its planes.
pub fn measure<T: AsRef<[u8]>>(objects: &[T], limits: &Limits) -> Result<Frame, FrameError> {
    headers(objects, limits).map(|(_, f)| f)
}

impl Decoder {
    /// A decoder without buffers yet.
    pub fn new() -> Self {
        Decoder { inflate: Inflate::new(), grid: grid::Grid::new() }
    }

    /// Size of its buffers, bytes.
    pub fn bytes(&self) -> usize {
        self.inflate.bytes() + self.grid.bytes()
    }

    /// Decodes any subset of one frame's descriptions, in any order, into `words`, which is resized
    /// to fit. After an error the content of `words` is undefined.
    pub fn decode<T: AsRef<[u8]>>(
        &mut self, objects: &[T], limits: &Limits, words: &mut Vec<u32>,
    ) -> Result<Frame, FrameError> {
        let (headers, frame) = headers(objects, limits)?;
        words.resize(frame.points * frame.words_per_point(), 0);
        let mut out = words.as_mut_slice();
        for (object, h) in objects.iter().zip(headers.iter().flatten()) {
            let body = object.as_ref().get(HEADER_LENGTH..).unwrap_or_default();
            let raw = self.inflate.run(body, h.raw_length as usize)?;
            let (mine, rest) = out.split_at_mut(h.points as usize * h.layout.words_per_point());
            let whole = match h.layout {
                Layout::A => self.grid.decode(raw, h, mine),
                Layout::B => points::deltas(raw, h.points as usize, mine),
                Layout::C => points::records(raw, mine),
                Layout::W => false, // refused by Header::parse
            };
            if !whole {
                let detail = format!("the planes do not hold {} points in layout {:?}", h.points, h.layout);
                return Err(FrameError::new("planes", detail));
            }
            out = rest;
        }
        Ok(frame)
    }
}

/// Reader of escapes (docs/spec/point-cloud-frame.md, Residuals). A missing or out-of-range escape
/// sets `bad`; values read after that are meaningless.
struct Escapes<'a> {
    left: &'a [u8],
    bad: bool,
}

impl Escapes<'_> {
    /// Maximum zigzag value of a coordinate, of G, and of R−G and B−G.
    const COORDINATE: u32 = 65535;
    const GREEN: u32 = 255;
    const CHROMA: u32 = 1020;

    /// The residual encoded by a nibble.
    #[inline]
    fn residual(&mut self, nibble: u32, most: u32) -> i32 {
        let z = if nibble < 15 { nibble } else { self.escaped(most) };
        (z >> 1) as i32 ^ -((z & 1) as i32)
    }

    /// An escape: nibble 15 followed by a varint of at most three bytes.
    #[inline]
    fn escaped(&mut self, most: u32) -> u32 {
        let mut rest = 0;
        for (i, &b) in self.left.iter().take(3).enumerate() {
            rest |= u32::from(b & 0x7f) << (7 * i);
            if b < 0x80 {
                self.left = &self.left[i + 1..];
                if rest > most - 15 {
                    break;
                }
                return rest + 15;
            }
        }
        self.bad = true;
        0
    }

    /// True if all escapes were valid and none is left.
    fn spent(&self) -> bool {
        !self.bad && self.left.is_empty()
    }
}
