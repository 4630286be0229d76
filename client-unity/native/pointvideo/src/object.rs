use cloud::{FrameError, Header, HEADER_LENGTH};

/// Length of header and parameters, bytes.
const LENGTH: usize = HEADER_LENGTH + 16;
/// Offset of the index.
const INDEX: usize = HEADER_LENGTH + 6;
const MAX_STEP: u8 = 128;

/// Depth quantizer: the standard deviation of the sensor's depth, in µm at 0 m, and its growth per
/// m²; and the step, in 1/16 of the standard deviation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Quantizer {
    pub sigma0: u16,
    pub sigma2: u16,
    pub step: u8,
}

/// An object's parts. Its depth and color pictures have not been checked.
#[derive(Debug)]
pub(crate) struct Object<'a> {
    pub header: Header,
    pub quantizer: Quantizer,
    pub index: u16,
    pub map: &'a [u8],
    pub depth: &'a [u8],
    pub color: &'a [u8],
}

/// True if the object's index says that it is a key frame.
pub fn is_key(object: &[u8]) -> bool {
    object.get(INDEX..INDEX + 2) == Some(&[0, 0])
}

impl<'a> Object<'a> {
    pub fn parse(b: &'a [u8]) -> Result<Self, FrameError> {
        let short = || FrameError::new("length", format!("{} bytes are too few", b.len()));
        let (head, rest) = b.split_at_checked(LENGTH).ok_or_else(short)?;
        let number = |at: usize, n: usize| head[at..at + n].iter().rev().fold(0u32, |v, x| v << 8 | u32::from(*x));
        let (map, depth) = (number(HEADER_LENGTH + 8, 4), number(HEADER_LENGTH + 12, 4));
        let header = Header::parse_video(b)?;
        let (map, rest) = rest.split_at_checked(map as usize).ok_or_else(short)?;
        let (depth, color) = rest.split_at_checked(depth as usize).ok_or_else(short)?;
        let quantizer = Quantizer {
            sigma0: number(HEADER_LENGTH, 2) as u16,
            sigma2: number(HEADER_LENGTH + 2, 2) as u16,
            step: head[HEADER_LENGTH + 4],
        };
        let reserved = head[HEADER_LENGTH + 5];
        if quantizer.sigma0 == 0 || !(1..=MAX_STEP).contains(&quantizer.step) || reserved != 0 {
            let Quantizer { sigma0, step, .. } = quantizer;
            let detail = format!("sigma0 {sigma0}, step {step}, reserved {reserved}");
            return Err(FrameError::new("parameters", detail));
        }
        Ok(Object { header, quantizer, index: number(INDEX, 2) as u16, map, depth, color })
    }
}
