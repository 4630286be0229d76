//! Checks of packets before they are decoded.

use crate::{Nanos, SECOND};

/// Maximum size of a microphone's packet, bytes: one Opus frame (RFC 6716 §3.4).
pub const MAX_PACKET: usize = 1275;
/// Maximum size of a sound packet of 360° video, bytes: one ADTS frame of AAC. 120 ms of Opus take
/// up to 7662.
pub const MAX_FILM_PACKET: usize = 8191;
/// Samples of a packet of AAC.
const AAC_SAMPLES: usize = 1024;
const OPUS_RATE: u32 = 48_000;

/// The codec of a track.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Codec {
    /// Opus (RFC 6716).
    Opus,
    /// AAC-LC (ISO/IEC 14496-3).
    Aac,
}

/// A track's packets, from the catalog.
#[derive(Debug, Clone, PartialEq)]
pub struct Format {
    /// Codec.
    pub codec: Codec,
    /// Channels: 1 or 2.
    pub channels: usize,
    /// Samples per second and channel.
    pub rate: u32,
    /// AudioSpecificConfig of AAC.
    pub config: Option<Vec<u8>>,
    /// Duration of every packet; None: any.
    pub packet: Option<Nanos>,
}

impl Format {
    /// Duration of a number of samples.
    pub fn duration(&self, samples: usize) -> Nanos {
        samples as Nanos * SECOND / Nanos::from(self.rate.max(1))
    }

    /// Number of samples in a duration.
    pub fn samples(&self, duration: Nanos) -> usize {
        (duration.max(0) * Nanos::from(self.rate) / SECOND) as usize
    }
}

/// The reason for refusing a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PacketError {
    /// No bytes, or more than the codec allows.
    #[error("a packet has {0} bytes")]
    Size(usize),
    /// The table of contents is not valid.
    #[error("a packet is not Opus")]
    NotOpus,
    /// The table of contents differs from the catalog.
    #[error("a packet has {0} samples in {1} channels, unlike the catalog")]
    Unlike(usize, usize),
}

/// Samples per channel of an Opus packet at 48 kHz, from its table of contents (RFC 6716 §3.1).
pub fn opus_samples(b: &[u8]) -> Option<usize> {
    let toc = *b.first()?;
    let config = usize::from(toc >> 3);
    let frame = match config {
        0..12 => [480, 960, 1920, 2880][config % 4],
        12..16 => [480, 960][config % 2],
        _ => [120, 240, 480, 960][config % 4],
    };
    let frames = match toc & 3 {
        0 => 1,
        3 => usize::from(*b.get(1)? & 0x3f),
        _ => 2,
    };
    Some(frame * frames).filter(|n| (120..=5760).contains(n))
}

/// Checks a packet against its track. Returns its number of samples per channel.
pub fn check(b: &[u8], format: &Format) -> Result<usize, PacketError> {
    let most = if format.packet.is_some() { MAX_PACKET } else { MAX_FILM_PACKET };
    if b.is_empty() || b.len() > most {
        return Err(PacketError::Size(b.len()));
    }
    if format.codec == Codec::Aac {
        return Ok(AAC_SAMPLES);
    }
    let samples = opus_samples(b).ok_or(PacketError::NotOpus)?;
    let channels = 1 + usize::from(b[0] >> 2 & 1);
    if let Some(packet) = format.packet {
        let wanted = (packet * Nanos::from(OPUS_RATE) / SECOND) as usize;
        if samples != wanted || channels != format.channels {
            return Err(PacketError::Unlike(samples, channels));
        }
    }
    Ok(samples)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MICROPHONE: Format =
        Format { codec: Codec::Opus, channels: 1, rate: 48_000, config: None, packet: Some(10_000_000) };

    #[test]
    fn durations_by_table_of_contents() {
        for (b, want) in [
            (vec![0xf0, 0], Some(480)),  // CELT, 10 ms
            (vec![0xf8, 0], Some(960)),  // CELT, 20 ms
            (vec![0x18, 0], Some(2880)), // SILK, 60 ms
            (vec![0x60, 0], Some(480)),  // hybrid, 10 ms
            (vec![0xf3, 2], Some(960)),  // two frames of 10 ms
            (vec![0x1b, 3], None),       // 180 ms
            (vec![0xf3], None),
            (vec![0xf3, 0], None),
            (vec![], None),
        ] {
            assert_eq!(opus_samples(&b), want, "{b:?}");
        }
    }

    #[test]
    fn refuses_other_packets() {
        let size = |n| check(&vec![0xf0; n], &MICROPHONE);
        assert_eq!(size(100), Ok(480));
        assert_eq!(size(MAX_PACKET), Ok(480));
        assert_eq!(size(MAX_PACKET + 1), Err(PacketError::Size(MAX_PACKET + 1)));
        assert_eq!(size(60_000), Err(PacketError::Size(60_000)));
        assert_eq!(size(0), Err(PacketError::Size(0)));
        assert_eq!(size(1), Ok(480));
        assert_eq!(check(&[0xf3], &MICROPHONE), Err(PacketError::NotOpus));
        assert_eq!(check(&[0xf8, 0, 0], &MICROPHONE), Err(PacketError::Unlike(960, 1)));
        assert_eq!(check(&[0xf4, 0, 0], &MICROPHONE), Err(PacketError::Unlike(480, 2)));
    }

    proptest::proptest! {
        #[test]
        fn any_bytes(b: Vec<u8>) {
            let _ = check(&b, &MICROPHONE);
            let _ = check(&b, &Format { packet: None, ..MICROPHONE });
        }
    }
}
