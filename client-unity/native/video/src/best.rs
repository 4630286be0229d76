//! Chooses a decoder at run time.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::{wrong, Config, OpenH264, Picture, VideoDecoder, VideoError};

/// Maximum platform decoders at a time: devices have few, which other applications need too.
const MAX_PLATFORM: usize = 8;
static PLATFORM: AtomicUsize = AtomicUsize::new(0);

type Boxed = Box<dyn VideoDecoder + Send>;
type Open = fn() -> Result<Boxed, VideoError>;

/// Uses the platform's decoder on request; otherwise, and after that decoder's first error, OpenH264.
#[derive(Debug, Default)]
pub struct BestDecoder {
    /// Creates the platform's decoder; None: not requested, or failed.
    open: Option<Open>,
    platform: Option<Counted>,
    openh264: OpenH264,
    config: Option<Config>,
    note: Option<String>,
}

/// A platform decoder, counted.
#[derive(Debug)]
struct Counted(Boxed);

impl Counted {
    /// None: too many already.
    fn open(open: Open) -> Result<Option<Self>, VideoError> {
        let below = |n: usize| (n < MAX_PLATFORM).then_some(n + 1);
        if PLATFORM.fetch_update(Ordering::Relaxed, Ordering::Relaxed, below).is_err() {
            return Ok(None);
        }
        match open() {
            Ok(d) => Ok(Some(Counted(d))),
            Err(e) => {
                PLATFORM.fetch_sub(1, Ordering::Relaxed);
                Err(e)
            }
        }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        PLATFORM.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(windows)]
fn open_platform() -> Result<Boxed, VideoError> {
    Ok(Box::new(crate::media_foundation::MediaFoundation::new()?))
}

#[cfg(target_os = "android")]
fn open_platform() -> Result<Boxed, VideoError> {
    Ok(Box::new(crate::media_codec::MediaCodec::default()))
}

#[cfg(not(any(windows, target_os = "android")))]
fn open_platform() -> Result<Boxed, VideoError> {
    wrong("this platform has none")
}

impl BestDecoder {
    /// platform: prefer the platform's decoder.
    pub fn new(platform: bool) -> Self {
        BestDecoder { open: platform.then_some(open_platform as Open), ..BestDecoder::default() }
    }

    /// Returns why OpenH264 has replaced the platform's decoder, as a sentence without a full stop;
    /// only once.
    pub fn take_note(&mut self) -> Option<String> {
        self.note.take()
    }

    /// Continues with OpenH264.
    fn fall_back(&mut self, config: &Config, why: &VideoError) -> Result<(), VideoError> {
        (self.open, self.platform) = (None, None);
        self.note = Some(format!("OpenH264 decodes the video, since the platform's decoder failed: {why}"));
        self.openh264.configure(config)
    }
}

impl VideoDecoder for BestDecoder {
    fn configure(&mut self, config: &Config) -> Result<(), VideoError> {
        self.config = Some(config.clone());
        self.platform = None;
        let Some(open) = self.open else { return self.openh264.configure(config) };
        let opened = Counted::open(open).and_then(|d| match d {
            Some(mut d) => d.0.configure(config).map(|()| Some(d)),
            None => Ok(None),
        });
        match opened {
            Ok(Some(d)) => {
                self.platform = Some(d);
                Ok(())
            }
            Ok(None) => self.openh264.configure(config),
            Err(why) => self.fall_back(config, &why),
        }
    }

    fn decode(&mut self, frame: &[u8], into: &mut Picture) -> Result<(), VideoError> {
        let Some(platform) = &mut self.platform else { return self.openh264.decode(frame, into) };
        let Err(why) = platform.0.decode(frame, into) else { return Ok(()) };
        let Some(config) = self.config.clone() else { return wrong("the decoder has no configuration") };
        self.fall_back(&config, &why)?;
        // Succeeds if this is a key frame; otherwise the next key frame succeeds.
        self.openh264.decode(frame, into)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A platform decoder that decodes one frame.
    #[derive(Debug, Default)]
    struct Once(OpenH264, bool);

    impl VideoDecoder for Once {
        fn configure(&mut self, config: &Config) -> Result<(), VideoError> {
            self.0.configure(config)
        }

        fn decode(&mut self, frame: &[u8], into: &mut Picture) -> Result<(), VideoError> {
            if std::mem::replace(&mut self.1, true) {
                return wrong("it is gone");
            }
            self.0.decode(frame, into)
        }
    }

    /// avcC and frames of tests/data/ramp.bin; frames 0 and 3 are key frames.
    fn ramp() -> (Config, Vec<Vec<u8>>) {
        let (mut b, mut list): (&[u8], _) = (include_bytes!("../tests/data/ramp.bin"), Vec::new());
        while let Some((length, rest)) = b.split_first_chunk() {
            let (item, rest) = rest.split_at(u32::from_le_bytes(*length) as usize);
            list.push(item.to_vec());
            b = rest;
        }
        (Config::parse(&list.remove(0)).unwrap_or_else(|e| panic!("{e}")), list)
    }

    const FAILED: &str = "OpenH264 decodes the video, since the platform's decoder failed: ";

    #[test]
    fn falls_back() {
        let (config, frames) = ramp();
        let mut p = Picture::default();
        let mut decodes = |d: &mut BestDecoder, n: usize| d.decode(&frames[n], &mut p).is_ok();

        let mut d = BestDecoder { open: Some(|| Ok(Box::new(Once::default()))), ..BestDecoder::default() };
        assert!(d.configure(&config).is_ok());
        assert!(decodes(&mut d, 0) && d.take_note().is_none());
        assert!(!decodes(&mut d, 1), "OpenH264 needs a key frame");
        assert_eq!(d.take_note(), Some(format!("{FAILED}it is gone")));
        assert!(!decodes(&mut d, 2) && decodes(&mut d, 3) && d.take_note().is_none());

        // A key frame is decoded at once.
        let mut d =
            BestDecoder { open: Some(|| Ok(Box::new(Once(OpenH264::default(), true)))), ..BestDecoder::default() };
        assert!(d.configure(&config).is_ok() && decodes(&mut d, 0) && decodes(&mut d, 1));
        assert_eq!(d.take_note(), Some(format!("{FAILED}it is gone")));

        let mut d = BestDecoder { open: Some(|| wrong("there is none")), ..BestDecoder::default() };
        assert!(d.configure(&config).is_ok() && decodes(&mut d, 0));
        assert_eq!(d.take_note(), Some(format!("{FAILED}there is none")));
        assert!(d.configure(&config).is_ok() && d.take_note().is_none(), "it is not tried again");

        // Beyond the maximum, OpenH264 decodes, without a note.
        let open: Open = || Ok(Box::new(Once::default()));
        let mut all: Vec<_> =
            (0..=MAX_PLATFORM).map(|_| BestDecoder { open: Some(open), ..BestDecoder::default() }).collect();
        assert!(all.iter_mut().all(|d| d.configure(&config).is_ok()));
        assert_eq!(all.iter().filter(|d| d.platform.is_some()).count(), MAX_PLATFORM);
        assert!(decodes(&mut all[MAX_PLATFORM], 0));
        drop(all);
        assert_eq!(PLATFORM.load(Ordering::Relaxed), 0);
        assert!(BestDecoder::new(false).open.is_none());
    }
}
