//! Decoding of packets to interleaved samples.

use std::panic::{catch_unwind, AssertUnwindSafe};

use opus_rs::OpusDecoder;
use symphonia_codec_aac::AacDecoder;
use symphonia_core::codecs::audio::well_known::CODEC_ID_AAC;
use symphonia_core::codecs::audio::{AudioCodecParameters, AudioDecoder, AudioDecoderOptions};
use symphonia_core::packet::PacketRef;
use symphonia_core::units::{Duration, Timestamp};

use crate::packet::{opus_samples, Codec, Format};

/// Maximum samples per channel of a packet.
const MAX_SAMPLES: usize = 5760;
/// Duration after which concealed AAC is silent, seconds.
const FADE: f32 = 0.04;
/// Length of the cross-fade from concealment back to AAC, samples.
const CROSSFADE: usize = 128;

/// The reason that a packet or a whole track cannot be decoded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct DecodeError(String);

enum Kind {
    Opus(Box<OpusDecoder>),
    Aac(Box<AacDecoder>),
}

/// Decoder of a track.
pub struct Decoder {
    kind: Kind,
    format: Format,
    /// Last decoded AAC packet, which is faded out in place of a missing one.
    last: Vec<f32>,
    gain: f32,
    /// Samples concealed since.
    concealed: usize,
}

impl std::fmt::Debug for Decoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Decoder").field("format", &self.format).finish_non_exhaustive()
    }
}

fn open(format: &Format) -> Result<Kind, DecodeError> {
    match format.codec {
        Codec::Opus => OpusDecoder::new(format.rate as i32, format.channels)
            .map(|d| Kind::Opus(Box::new(d)))
            .map_err(|e| DecodeError(format!("Opus at {} Hz in {} channels: {e}", format.rate, format.channels))),
        Codec::Aac => {
            let mut p = AudioCodecParameters::new();
            p.for_codec(CODEC_ID_AAC).with_sample_rate(format.rate);
            let Some(config) = &format.config else {
                return Err(DecodeError("AAC without AudioSpecificConfig in the catalog".into()));
            };
            p.with_extra_data(config.clone().into_boxed_slice());
            AacDecoder::try_new(&p, &AudioDecoderOptions::default())
                .map(|d| Kind::Aac(Box::new(d)))
                .map_err(|e| DecodeError(format!("only AAC-LC in one or two channels is supported: {e}")))
        }
    }
}

impl Decoder {
    /// Opens a decoder.
    pub fn new(format: &Format) -> Result<Self, DecodeError> {
        Ok(Decoder { kind: open(format)?, format: format.clone(), last: Vec::new(), gain: 0.0, concealed: 0 })
    }

    /// Replaces `out` with a packet's samples, interleaved. If the decoder panics, its state is lost.
    pub fn decode(&mut self, packet: &[u8], out: &mut Vec<f32>) -> Result<(), DecodeError> {
        let decoded = catch_unwind(AssertUnwindSafe(|| self.try_decode(packet, out)));
        let result = decoded.unwrap_or_else(|_| Err(DecodeError("the decoder panicked".into())));
        if result.is_err() {
            out.clear();
            if let Ok(kind) = open(&self.format) {
                self.kind = kind;
            }
        }
        result
    }

    fn try_decode(&mut self, packet: &[u8], out: &mut Vec<f32>) -> Result<(), DecodeError> {
        let channels = self.format.channels;
        match &mut self.kind {
            Kind::Opus(d) => {
                // One byte is a frame that was not sent (RFC 6716 §3.2.1).
                if let ([_], Some(samples)) = (packet, opus_samples(packet)) {
                    self.conceal(samples, None, out);
                    return Ok(());
                }
                out.resize(MAX_SAMPLES * channels, 0.0);
                let n = d.decode(packet, MAX_SAMPLES, out).map_err(|e| DecodeError(e.into()))?;
                out.truncate(n * channels);
            }
            Kind::Aac(d) => {
                let packet = PacketRef::new(0, Timestamp::ZERO, Duration::ZERO, packet);
                let decoded = d.decode_ref(&packet).map_err(|e| DecodeError(e.to_string()))?;
                if decoded.spec().channels().count() != channels {
                    return Err(DecodeError("the number of channels differs from the catalog".into()));
                }
                decoded.copy_to_vec_interleaved(out);
                let mut end = vec![0.0; if self.concealed > 0 { CROSSFADE * channels } else { 0 }];
                self.fade_last(&mut end);
                for (i, (s, e)) in out.iter_mut().zip(end).enumerate() {
                    let share = (i / channels) as f32 / CROSSFADE as f32;
                    *s = *s * share + e * (1.0 - share);
                }
                self.last.clear();
                self.last.extend_from_slice(out);
                (self.gain, self.concealed) = (1.0, 0);
            }
        }
        // Damaged packets may decode to anything.
        out.iter_mut().for_each(limit);
        Ok(())
    }

    /// Replaces `out` with `samples` per channel in place of a missing packet, decoded from the
    /// error correction in `following` if given.
    pub fn conceal(&mut self, samples: usize, following: Option<&[u8]>, out: &mut Vec<f32>) {
        out.clear();
        out.resize(samples.min(MAX_SAMPLES) * self.format.channels, 0.0);
        let concealed = catch_unwind(AssertUnwindSafe(|| self.try_conceal(samples, following, out)));
        if !matches!(concealed, Ok(true)) {
            out.fill(0.0);
        }
        out.iter_mut().for_each(limit);
    }

    fn try_conceal(&mut self, samples: usize, following: Option<&[u8]>, out: &mut [f32]) -> bool {
        match &mut self.kind {
            Kind::Opus(d) => match following {
                Some(packet) => d.decode_fec(packet, samples, out).is_ok(),
                None => d.decode(&[], samples, out).is_ok(),
            },
            Kind::Aac(_) => self.fade_last(out),
        }
    }

    /// Continues the last AAC packet with the same samples played backwards, which avoids a step,
    /// and fades them out.
    fn fade_last(&mut self, out: &mut [f32]) -> bool {
        let channels = self.format.channels;
        let n = self.last.len() / channels;
        if n == 0 {
            return false;
        }
        let step = 1.0 / (FADE * self.format.rate as f32);
        for frame in out.chunks_exact_mut(channels) {
            let at = n - 1 - self.concealed % n;
            for (c, s) in frame.iter_mut().enumerate() {
                *s = self.last[at * channels + c] * self.gain;
            }
            self.gain = (self.gain - step).max(0.0);
            self.concealed += 1;
        }
        true
    }
}

/// Damaged packets may decode to anything.
fn limit(s: &mut f32) {
    *s = if s.is_finite() { s.clamp(-4.0, 4.0) } else { 0.0 };
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn opus(channels: usize) -> Format {
        Format { codec: Codec::Opus, channels, rate: 48_000, config: None, packet: Some(10_000_000) }
    }

    fn tone(packets: usize) -> Vec<Vec<u8>> {
        let mut e = opus_rs::OpusEncoder::new(48_000, 1, opus_rs::Application::Audio).unwrap();
        let samples = |n: usize| (0..480).map(|i| (0.05 * (480 * n + i) as f32).sin() * 0.5).collect::<Vec<_>>();
        let mut b = [0u8; 1275];
        let encode = |n: usize| {
            let len = e.encode(&samples(n), 480, &mut b).unwrap();
            b[..len].to_vec()
        };
        (0..packets).map(encode).collect()
    }

    #[test]
    fn decodes_and_conceals_opus() {
        let mut d = Decoder::new(&opus(1)).unwrap();
        let mut out = Vec::new();
        for p in tone(20) {
            d.decode(&p, &mut out).unwrap();
            assert_eq!(out.len(), 480);
        }
        let loudest = out.iter().fold(0f32, |a, s| a.max(s.abs()));
        assert!((0.4..0.6).contains(&loudest), "{loudest}");
        d.conceal(480, None, &mut out);
        assert_eq!(out.len(), 480);
        assert!(out.iter().any(|s| s.abs() > 0.1));
        d.decode(&[0xf0], &mut out).unwrap();
        assert_eq!(out.len(), 480);
        assert!(out.iter().any(|s| s.abs() > 0.01));
    }

    #[test]
    fn aac_without_configuration() {
        let f = Format { codec: Codec::Aac, channels: 2, rate: 48_000, config: None, packet: None };
        assert!(Decoder::new(&f).unwrap_err().to_string().contains("AudioSpecificConfig"));
        let f = Format { config: Some(vec![0x2b, 0x92, 8, 0]), ..f }; // HE-AAC
        assert!(Decoder::new(&f).unwrap_err().to_string().contains("AAC-LC"));
    }

    proptest::proptest! {
        #![proptest_config(proptest::test_runner::Config::with_cases(400))]
        #[test]
        fn any_bytes(packets: Vec<Vec<u8>>, stereo: bool) {
            let aac = Format { codec: Codec::Aac, config: Some(vec![0x11, 0x90]), packet: None, ..opus(2) };
            for f in [opus(1 + usize::from(stereo)), aac] {
                let mut d = Decoder::new(&f).unwrap();
                let mut out = Vec::new();
                for p in &packets {
                    let _ = d.decode(p, &mut out);
                    d.conceal(480, Some(p), &mut out);
                    d.conceal(480, None, &mut out);
                }
            }
        }
    }
}
