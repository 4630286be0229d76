//! Decodes point clouds in video (docs/spec/video-frame.md, layout W) to the words of layout A. Independent
//! of the network.

mod color;
mod levels;
mod map;
mod object;

use cloud::{Frame, FrameError, Header, Inflate, Limits};
use color::Chroma;
use levels::Depths;
use map::Map;
use object::{Object, Quantizer};
use video::{BestDecoder, Config, Picture, VideoDecoder, VideoError};

pub use object::is_key;

/// State within a group.
struct Group {
    /// Index of the next object.
    next: u16,
    quantizer: Quantizer,
    camera: u16,
    size: (u16, u16),
}

impl Group {
    fn same(&self, o: &Object<'_>) -> bool {
        let h = &o.header;
        (self.quantizer, self.camera, self.size) == (o.quantizer, h.camera, (h.width, h.height))
    }
}

/// A stream of pictures.
#[derive(Debug)]
struct Stream {
    decoder: BestDecoder,
    config: Option<Config>,
    picture: Picture,
}

impl Stream {
    fn new(platform: bool) -> Self {
        Stream { decoder: BestDecoder::new(platform), config: None, picture: Picture::default() }
    }

    /// Decodes a picture for a grid.
    fn decode(&mut self, bytes: &[u8], header: &Header, key: bool) -> Result<(), VideoError> {
        if key {
            let config = Config::of_key_frame(bytes)?;
            let even = |side: u16| usize::from(side).next_multiple_of(2);
            if (config.width, config.height) != (even(header.width), even(header.height)) {
                let (w, h) = (config.width, config.height);
                return Err(VideoError(format!("{w}×{h} for a grid of {}×{}", header.width, header.height)));
            }
            if self.config.as_ref() != Some(&config) {
                self.config = None;
                self.decoder.configure(&config)?;
                self.config = Some(config);
            }
        }
        self.decoder.decode(bytes, &mut self.picture)
    }
}

/// Decodes one camera's objects in order, reusing its buffers.
pub struct Decoder {
    inflate: Inflate,
    map: Map,
    depths: Option<(Quantizer, Depths)>,
    depth: Stream,
    color: Stream,
    group: Option<Group>,
}

impl std::fmt::Debug for Decoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Decoder").field("next", &self.group.as_ref().map(|g| g.next)).finish_non_exhaustive()
    }
}

impl Decoder {
    /// A decoder without buffers yet. platform: prefer the platform's video decoder.
    pub fn new(platform: bool) -> Self {
        Decoder {
            inflate: Inflate::new(),
            map: Map::default(),
            depths: None,
            depth: Stream::new(platform),
            color: Stream::new(platform),
            group: None,
        }
    }

    /// Returns why OpenH264 has replaced the platform's decoder, as a sentence without a full stop;
    /// only once.
    pub fn take_note(&mut self) -> Option<String> {
        self.depth.decoder.take_note().or(self.color.decoder.take_note())
    }

    /// Decodes an object into `words`, which is resized to fit. After an error the content of `words` is
    /// undefined, and the next object must be a key frame. The error's field is a name from the
    /// specification.
    pub fn decode(&mut self, object: &[u8], limits: &Limits, words: &mut Vec<u32>) -> Result<Frame, FrameError> {
        let group = self.group.take();
        let o = Object::parse(object)?;
        let (h, key) = (&o.header, o.index == 0);
        let next = match &group {
            _ if key => 0,
            Some(g) if !g.same(&o) => return Err(FrameError::new("parameters", "changed within a group")),
            Some(g) => g.next,
            None => return Err(FrameError::new("index", format!("{} without a key frame", o.index))),
        };
        if o.index != next {
            return Err(FrameError::new("index", format!("{}, want {next} or 0", o.index)));
        }
        check(h, limits)?;
        let (width, height, points) = (usize::from(h.width), usize::from(h.height), h.points as usize);
        let planes = self.inflate.run(o.map, h.raw_length as usize);
        let planes = planes.map_err(|e| FrameError { field: "zstd", ..e })?;
        if self.map.decode(planes, width, height, key) != Some(points) {
            return Err(FrameError::new("planes", format!("the map does not hold {points} points")));
        }
        // The pictures take most of the time.
        let (depth, color) = std::thread::scope(|scope| {
            let color = scope.spawn(|| self.color.decode(o.color, h, key));
            let depth = self.depth.decode(o.depth, h, key);
            (depth, color.join().unwrap_or_else(|_| Err(VideoError("the decoder panicked".into()))))
        });
        for (name, decoded) in [("depth", depth), ("color", color)] {
            decoded.map_err(|e| FrameError::new("picture", format!("{name}: {e}")))?;
        }
        self.points(o.quantizer, width, height, points, words);
        let next = o.index.wrapping_add(1);
        let size = (h.width, h.height);
        // An index does not wrap.
        self.group = (next > 0).then_some(Group { next, quantizer: o.quantizer, camera: h.camera, size });
        Ok(Frame { header: *h, points, descriptions: 1 })
    }

    /// Writes the points of the decoded map and pictures.
    fn points(&mut self, q: Quantizer, width: usize, height: usize, points: usize, words: &mut Vec<u32>) {
        if self.depths.as_ref().is_none_or(|d| d.0 != q) {
            self.depths = Some((q, Depths::new(q)));
        }
        let Some((_, depths)) = &self.depths else { return };
        // One extra pair of words: invalid pixels are written too, then overwritten by the next
        // valid one.
        words.resize(2 * points + 2, 0);
        let mut at = 0;
        let stride = width.next_multiple_of(2);
        let [luma, cb, cr] = &self.color.picture.planes;
        let mut chroma = vec![Chroma::default(); stride / 2];
        for y in 0..height {
            if y % 2 == 0 {
                let row = y / 2 * (stride / 2)..;
                for (c, (cb, cr)) in chroma.iter_mut().zip(cb[row.clone()].iter().zip(&cr[row])) {
                    *c = Chroma::new(*cb, *cr);
                }
            }
            let row = y * stride..y * stride + width;
            let (depth, luma) = (&self.depth.picture.planes[0][row.clone()], &luma[row]);
            let line = (y as u32) << 12;
            for (x, ((m, d), l)) in self.map.row(y).iter().zip(depth).zip(luma).enumerate() {
                let [r, g, b] = chroma[x / 2].rgb(*l);
                words[at] = line | x as u32 | r << 24;
                words[at + 1] = u32::from(depths.get(*m, *d)) | g << 16 | b << 24;
                at += 2 * usize::from(*m != 0);
            }
        }
        words.truncate(2 * points);
    }
}

/// Checks a header against limits.
fn check(h: &Header, limits: &Limits) -> Result<(), FrameError> {
    if h.points as usize > limits.max_points {
        return Err(FrameError::new("points", format!("{} exceed the limit of {}", h.points, limits.max_points)));
    }
    match limits.grid {
        Some((w, height)) if (h.width, h.height) != (w, height) => {
            let detail = format!("{}×{}, but the track has {w}×{height}", h.width, h.height);
            Err(FrameError::new("width", detail))
        }
        _ => Ok(()),
    }
}
