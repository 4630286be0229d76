//! Decoder configurations: the record in avcC form or the parameter sets of a key frame, and the parts
//! of the sequence parameter set that a viewer needs (ISO/IEC 14496-10 §7.3.2.1).

use crate::bytestream::units;
use crate::{wrong, VideoError};

/// Maximum size of a configuration, bytes.
const MAX_CONFIG: usize = 4096;
/// NAL unit types (§7.4.1).
const SLICE: u8 = 1;
const IDR: u8 = 5;
const SPS: u8 = 7;
const PPS: u8 = 8;

/// Color matrix (§E.2.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Matrix {
    /// ITU-R BT.709.
    #[default]
    Bt709,
    /// ITU-R BT.601, of either line count.
    Bt601,
}

/// Configuration of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Picture width, pixels.
    pub width: usize,
    /// Picture height, pixels.
    pub height: usize,
    /// None: unspecified in the stream.
    pub matrix: Option<Matrix>,
    /// Samples range from 0 to 255.
    pub full_range: bool,
    /// Size of the NAL unit length field of frames, bytes; 0: frames are in the byte stream format.
    pub(crate) length: usize,
    /// Parameter sets, each preceded by a start code.
    pub(crate) sets: Vec<u8>,
    /// Length of the sequence parameter set, which is the first in `sets`, bytes.
    pub(crate) sps: usize,
}

/// Start code before a NAL unit (Annex B).
pub(crate) const START: [u8; 4] = [0, 0, 0, 1];

fn cut() -> VideoError {
    VideoError("the decoder configuration is truncated".into())
}

/// Takes `n` bytes from the front.
fn take<'a>(b: &mut &'a [u8], n: usize) -> Result<&'a [u8], VideoError> {
    if b.len() < n {
        return Err(cut());
    }
    let (front, rest) = b.split_at(n);
    *b = rest;
    Ok(front)
}

impl Config {
    /// Parses an avcC record. Rejects streams that [`crate::OpenH264`] cannot decode.
    pub fn parse(avcc: &[u8]) -> Result<Self, VideoError> {
        if avcc.len() > MAX_CONFIG {
            return wrong(format!("a decoder configuration of {} bytes", avcc.len()));
        }
        let mut b = avcc;
        let head = take(&mut b, 6)?;
        if head[0] != 1 {
            return wrong(format!("unsupported version {} of the decoder configuration", head[0]));
        }
        let length = usize::from(head[4] & 3) + 1;
        let mut sets = Vec::with_capacity(avcc.len() + 16);
        let mut sps = None;
        for i in 0..head[5] & 31 {
            let nal = parameter_set(&mut b, SPS)?;
            sets.extend_from_slice(&START);
            sets.extend_from_slice(nal);
            if i == 0 {
                sps = Some(Sps::parse(nal)?);
            } else {
                return wrong("more than one sequence parameter set");
            }
        }
        let Some(sps) = sps else { return wrong("no sequence parameter set") };
        let first = sets.len();
        for _ in 0..take(&mut b, 1)?[0] {
            let nal = parameter_set(&mut b, PPS)?;
            sets.extend_from_slice(&START);
            sets.extend_from_slice(nal);
        }
        Ok(Self::new(&sps, length, sets, first))
    }

    /// Reads the parameter sets of a key frame in the byte stream format (Annex B), for a stream of such
    /// frames. Rejects a frame that is not an IDR picture, and streams that [`crate::OpenH264`] cannot
    /// decode.
    pub fn of_key_frame(frame: &[u8]) -> Result<Self, VideoError> {
        let (mut sets, mut first, mut sps, mut idr) = (Vec::new(), 0, None, false);
        for nal in units(frame) {
            match nal[0] & 31 {
                SPS if sps.is_some() => return wrong("more than one sequence parameter set"),
                PPS if sps.is_none() => return wrong("no sequence parameter set before the picture's"),
                SPS => sps = Some(Sps::parse(nal)?),
                PPS => {}
                SLICE => return wrong("the key frame is no IDR picture"),
                kind => {
                    idr |= kind == IDR;
                    continue;
                }
            }
            sets.extend_from_slice(&START);
            sets.extend_from_slice(nal);
            if nal[0] & 31 == SPS {
                first = sets.len();
            }
            if sets.len() > MAX_CONFIG {
                return wrong(format!("parameter sets of more than {MAX_CONFIG} bytes"));
            }
        }
        match sps {
            Some(sps) if idr => Ok(Self::new(&sps, 0, sets, first)),
            Some(_) => wrong("the key frame is no IDR picture"),
            None => wrong("no sequence parameter set"),
        }
    }

    /// first: length of the sequence parameter set in `sets`, bytes.
    fn new(sps: &Sps, length: usize, sets: Vec<u8>, first: usize) -> Self {
        Config {
            width: sps.width,
            height: sps.height,
            matrix: sps.matrix,
            full_range: sps.full_range,
            length,
            sets,
            sps: first,
        }
    }

    /// Appends a frame in the byte stream format, as [`crate::OpenH264`] expects. Omits parameter sets:
    /// only the configuration's have been checked.
    pub(crate) fn annex_b(&self, frame: &[u8], out: &mut Vec<u8>) -> Result<(), VideoError> {
        if self.length == 0 {
            for nal in units(frame).filter(|n| n[0] & 31 != SPS && n[0] & 31 != PPS) {
                out.extend_from_slice(&START);
                out.extend_from_slice(nal);
            }
            return Ok(());
        }
        let mut b = frame;
        while !b.is_empty() {
            let n = take(&mut b, self.length).map_err(|_| damaged())?.iter().fold(0, |n, v| n << 8 | usize::from(*v));
            let nal = take(&mut b, n).map_err(|_| damaged())?;
            if nal.first().is_some_and(|h| h & 31 != SPS && h & 31 != PPS) {
                out.extend_from_slice(&START);
                out.extend_from_slice(nal);
            }
        }
        Ok(())
    }
}

fn damaged() -> VideoError {
    VideoError("a NAL unit extends beyond its frame".into())
}

fn parameter_set<'a>(b: &mut &'a [u8], kind: u8) -> Result<&'a [u8], VideoError> {
    let n = take(b, 2)?;
    let nal = take(b, usize::from(n[0]) << 8 | usize::from(n[1]))?;
    match nal.first() {
        Some(h) if h & 31 == kind => Ok(nal),
        _ => wrong("a parameter set that is none"),
    }
}

/// Bit reader for a NAL unit; skips emulation prevention bytes.
pub(crate) struct Bits {
    b: Vec<u8>,
    at: usize,
}

impl Bits {
    pub fn new(nal: &[u8]) -> Self {
        let mut b = Vec::with_capacity(nal.len());
        let mut zeros = 0;
        for v in nal {
            if zeros >= 2 && *v == 3 {
                zeros = 0;
                continue;
            }
            zeros = if *v == 0 { zeros + 1 } else { 0 };
            b.push(*v);
        }
        Bits { b, at: 0 }
    }

    /// Bits read.
    pub fn position(&self) -> usize {
        self.at
    }

    /// All bits, each as a byte.
    pub fn all(&self) -> Vec<u8> {
        self.b.iter().flat_map(|b| (0..8).map(move |i| b >> (7 - i) & 1)).collect()
    }

    pub fn bits(&mut self, n: usize) -> Result<u32, VideoError> {
        let mut v = 0;
        for _ in 0..n {
            let byte = *self.b.get(self.at / 8).ok_or_else(cut)?;
            v = v << 1 | u32::from(byte >> (7 - self.at % 8) & 1);
            self.at += 1;
        }
        Ok(v)
    }

    fn flag(&mut self) -> Result<bool, VideoError> {
        Ok(self.bits(1)? == 1)
    }

    /// An Exp-Golomb code (§9.1).
    pub fn ue(&mut self) -> Result<u32, VideoError> {
        let mut zeros = 0;
        while !self.flag()? {
            zeros += 1;
            if zeros > 31 {
                return wrong("a value in the sequence parameter set exceeds 32 bits");
            }
        }
        Ok((1u32 << zeros) - 1 + self.bits(zeros)?)
    }

    fn se(&mut self) -> Result<i64, VideoError> {
        let v = i64::from(self.ue()?);
        Ok(if v % 2 == 1 { (v + 1) / 2 } else { -v / 2 })
    }
}

struct Sps {
    width: usize,
    height: usize,
    matrix: Option<Matrix>,
    full_range: bool,
}

/// Profiles whose parameter sets specify chroma format and bit depth.
const HIGH: [u32; 13] = [100, 110, 122, 244, 44, 83, 86, 118, 128, 138, 139, 134, 135];
/// Maximum width or height, in macroblocks: 65,536 pixels.
const MAX_BLOCKS: u32 = 4096;

impl Sps {
    fn parse(nal: &[u8]) -> Result<Self, VideoError> {
        let mut r = Bits::new(&nal[1..]);
        let profile = r.bits(8)?;
        r.bits(16)?; // constraint flags and level
        r.ue()?; // its ID
        if HIGH.contains(&profile) {
            if r.ue()? != 1 {
                return wrong("its colour is not 4:2:0");
            }
            if r.ue()? != 0 || r.ue()? != 0 {
                return wrong("its samples are of more than 8 bits");
            }
            r.flag()?;
            if r.flag()? {
                for i in 0..8 {
                    if r.flag()? {
                        scaling_list(&mut r, if i < 6 { 16 } else { 64 })?;
                    }
                }
            }
        }
        r.ue()?; // log2_max_frame_num
        match r.ue()? {
            0 => {
                r.ue()?;
            }
            1 => {
                r.flag()?;
                r.se()?;
                r.se()?;
                let n = r.ue()?;
                if n > 255 {
                    return wrong(format!("{n} frames in a cycle of picture orders"));
                }
                for _ in 0..n {
                    r.se()?;
                }
            }
            _ => {}
        }
        r.ue()?; // max_num_ref_frames
        r.flag()?;
        let (columns, rows) = (r.ue()?, r.ue()?);
        if columns >= MAX_BLOCKS || rows >= MAX_BLOCKS {
            return wrong("pictures of more than 65536 pixels a side");
        }
        if !r.flag()? {
            return wrong("it is interlaced");
        }
        r.flag()?;
        let mut crop = [0u32; 4];
        if r.flag()? {
            for c in &mut crop {
                *c = r.ue()?;
            }
        }
        let side = |blocks: u32, a: u32, b: u32| {
            (16 * (i64::from(blocks) + 1) - 2 * (i64::from(a) + i64::from(b))).max(0) as usize
        };
        let (width, height) = (side(columns, crop[0], crop[1]), side(rows, crop[2], crop[3]));
        if width == 0 || height == 0 {
            return wrong("its cropping leaves no picture");
        }
        let mut sps = Sps { width, height, matrix: None, full_range: false };
        if r.flag()? {
            sps.usability(&mut r)?;
        }
        Ok(sps)
    }

    /// Video usability information (§E.1.1), up to the color description.
    fn usability(&mut self, r: &mut Bits) -> Result<(), VideoError> {
        if r.flag()? && r.bits(8)? == 255 {
            r.bits(32)?; // sample aspect ratio
        }
        if r.flag()? {
            r.flag()?;
        }
        if r.flag()? {
            r.bits(3)?;
            self.full_range = r.flag()?;
            if r.flag()? {
                r.bits(16)?; // primaries, transfer
                self.matrix = match r.bits(8)? {
                    1 => Some(Matrix::Bt709),
                    5 | 6 => Some(Matrix::Bt601),
                    _ => None,
                };
            }
        }
        Ok(())
    }
}

fn scaling_list(r: &mut Bits, n: usize) -> Result<(), VideoError> {
    let (mut last, mut next) = (8, 8);
    for _ in 0..n {
        if next != 0 {
            next = (last + r.se()?).rem_euclid(256);
        }
        if next != 0 {
            last = next;
        }
    }
    Ok(())
}
