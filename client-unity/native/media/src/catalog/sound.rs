//! Sound tracks in a catalog: microphones (docs/spec/sound.md) and the sound of 360° video
//! (docs/spec/tiles.md).

use std::collections::HashMap;

use serde_json::Value;
use sound::{Codec, Format};

use super::sphere::config;
use super::{object, timeline, wrong, Fields, Parsed, Timeline};

/// First number of the tracks that are not microphones.
pub const FILM: u32 = 0x1_0000;
const MAX_POSITION: f64 = 1e6;
/// Duration of a microphone's packet, ms.
const PACKET: u64 = 10;

/// One sound track.
#[derive(Debug, Clone, PartialEq)]
pub struct SoundTrack {
    /// Name of the track.
    pub name: String,
    /// Number of the microphone in the session; FILM and up for others.
    pub number: u32,
    /// The microphone's name; otherwise the track's.
    pub label: String,
    /// Position of the sound source in studio space, millimetres.
    pub position: Option<[f64; 3]>,
    /// Format of its packets, or the reason why the client cannot play it.
    pub format: Result<Format, String>,
    /// Duration of a group, ms.
    pub group: f64,
    /// Media time of its groups, if linear.
    pub timeline: Option<Timeline>,
}

impl SoundTrack {
    /// True for the sound of 360° video, which plays with its pictures.
    pub fn film(&self) -> bool {
        self.number >= FILM
    }
}

/// Parses a track with role “audio”. None if the track is unusable and the reason would not help
/// the user.
pub(super) fn sound(f: &Fields<'_, '_>, inits: &HashMap<&str, &str>, before: &[SoundTrack]) -> Option<SoundTrack> {
    let name = f.text("name").ok()?.filter(|n| !n.is_empty() && n.len() <= 4096)?.to_owned();
    let film = f.get("hcau").is_none();
    let mut t = SoundTrack {
        number: FILM + before.iter().filter(|t| t.film()).count() as u32,
        label: name.clone(),
        name,
        position: None,
        format: Err(String::new()),
        group: match f.get("maxGopDuration").and_then(Value::as_f64) {
            Some(v) if v > 0.0 => v.min(60_000.0),
            _ if film => 1000.0,
            _ => PACKET as f64,
        },
        timeline: timeline(f.get("template"), &f.at("template")).ok().flatten(),
    };
    if !film {
        if let Err(e) = microphone(f, &mut t) {
            t.format = Err(e.detail);
            return Some(t);
        }
        if before.iter().any(|b| b.number == t.number) {
            return None;
        }
    }
    t.format = format(f, inits, film).map_err(|e| e.detail);
    Some(t)
}

/// Reads the object `hcau`.
fn microphone(f: &Fields<'_, '_>, t: &mut SoundTrack) -> Parsed<()> {
    let path = f.at("hcau");
    let m = Fields { o: object(f.get("hcau").unwrap_or(&Value::Null), &path)?, path: &path };
    t.number = m.integer("microphone", None, 0, 65535)? as u32;
    if let Some(label) = m.text("microphoneName")?.filter(|l| !l.is_empty()) {
        t.label = label.to_owned();
    }
    if m.integer("packet", Some(PACKET), 1, 120)? != PACKET {
        return wrong(&m.at("packet"), "its packets do not last 10 ms");
    }
    if !matches!(m.text("delivery")?, None | Some("" | "stream" | "datagram")) {
        return wrong(&m.at("delivery"), "its delivery is neither stream nor datagram");
    }
    if m.get("position").is_some() {
        let position = m.numbers::<3>("position")?;
        if position.iter().any(|v| v.abs() > MAX_POSITION) {
            return wrong(&m.at("position"), "its position is over a kilometre away");
        }
        t.position = Some(position);
    }
    Ok(())
}

fn format(f: &Fields<'_, '_>, inits: &HashMap<&str, &str>, film: bool) -> Parsed<Format> {
    let codec = f.text("codec")?.unwrap_or_default();
    let path = f.at("codec");
    let kind = match codec {
        "opus" => Codec::Opus,
        "mp4a.40.2" if film => Codec::Aac,
        _ => return wrong(&path, format!("its codec is {codec:.40}, but this client plays only Opus and AAC-LC")),
    };
    let channels = match f.text("channelConfig")? {
        Some("1") => 1,
        Some("2") => 2,
        _ => return wrong(&path, "it is neither mono nor stereo"),
    };
    let rate = f.integer("samplerate", Some(48_000), 1, 192_000)? as u32;
    if !(8_000..=96_000).contains(&rate) || kind == Codec::Opus && rate != 48_000 {
        return wrong(&path, format!("its sample rate is {rate} Hz"));
    }
    Ok(Format {
        codec: kind,
        channels,
        rate,
        config: config(f, inits)?,
        packet: (!film).then_some(PACKET as i64 * 1_000_000),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::CatalogReader;
    use base64::Engine;

    fn read(track: &str) -> Vec<SoundTrack> {
        let text = format!(
            r#"{{"version":"draft-01","initDataList":[{{"id":"asc","type":"inline","data":"EZA="}}],
            "tracks":[{{"packaging":"loc","role":"audio",{track}}}]}}"#
        );
        CatalogReader::default().add(0, 0, text.into_bytes(), 0).unwrap_or_default().unwrap_or_default().sounds
    }

    const MICROPHONE: &str = r#""name":"audio/3","codec":"opus","samplerate":48000,"channelConfig":"2",
        "hcau":{"microphone":3,"microphoneName":"Yeti","position":[10,1500,-20],"delivery":"datagram","packet":10}"#;

    #[test]
    fn parses_tracks() {
        let t = &read(MICROPHONE)[0];
        assert_eq!((t.name.as_str(), t.number, t.label.as_str()), ("audio/3", 3, "Yeti"));
        assert_eq!(t.position, Some([10.0, 1500.0, -20.0]));
        let f = t.format.clone().unwrap();
        assert_eq!((f.codec, f.channels, f.rate, f.packet), (Codec::Opus, 2, 48_000, Some(10_000_000)));
        let t = &read(
            r#""name":"audio","codec":"mp4a.40.2","samplerate":44100,"channelConfig":"1","maxGopDuration":500,
            "initRef":"asc""#,
        )[0];
        let f = t.format.clone().unwrap();
        assert!(t.film() && t.group == 500.0);
        assert_eq!((f.codec, f.channels, f.rate, f.config), (Codec::Aac, 1, 44_100, Some(vec![0x11, 0x90])));
    }

    /// Payload and compression of an object in the shared vectors.
    fn payload(o: &Value) -> (Vec<u8>, u64) {
        if let Some(z) = o["gzip"].as_str() {
            (base64::engine::general_purpose::STANDARD.decode(z).unwrap(), 1)
        } else if let Some(text) = o["text"].as_str() {
            (text.into(), 0)
        } else {
            (o.to_string().into(), 0)
        }
    }

    fn text<'a>(v: &'a Value, field: &str) -> &'a str {
        v[field].as_str().unwrap()
    }

    fn read_vector(v: &Value) -> Parsed<Vec<SoundTrack>> {
        let (mut reader, mut group, mut id, mut sounds) = (CatalogReader::default(), 0, 0, Vec::new());
        for o in v["objects"].as_array().unwrap() {
            if o.get("deltaUpdate").is_none() {
                (group, id) = (group + 1, 0);
            }
            let (payload, compression) = payload(o);
            if let Some(c) = reader.add(group, id, payload, compression)? {
                sounds = c.sounds;
            }
            id += 1;
        }
        Ok(sounds.into_iter().filter(|t| !t.film()).collect())
    }

    /// Vectors of internal/catalog about microphones.
    #[test]
    fn vectors() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../internal/catalog/testdata/vectors.json");
        let vectors: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
        let hcau = |v: &&Value| v["objects"].to_string().contains("hcau");
        for v in vectors["valid"].as_array().unwrap().iter().filter(hcau) {
            let sounds = read_vector(v).unwrap();
            let want = v["want"]["sounds"].as_array().unwrap();
            assert_eq!(sounds.len(), want.len(), "{}", v["name"]);
            for (t, want) in sounds.iter().zip(want) {
                let f = t.format.clone().unwrap();
                let position = want["position"].as_array().map(|p| p.iter().filter_map(Value::as_f64).collect());
                assert_eq!((t.name.as_str(), t.label.as_str()), (text(want, "track"), text(want, "name")));
                assert_eq!((f.codec, text(want, "codec")), (Codec::Opus, "opus"));
                assert_eq!(Some(f.channels as u64), want["channels"].as_u64());
                assert_eq!(t.position.map(Vec::from), position);
            }
        }
        for v in vectors["invalid"].as_array().unwrap().iter().filter(hcau) {
            let playable = read_vector(v).is_ok_and(|sounds| sounds.iter().any(|t| t.format.is_ok()));
            assert!(!playable, "{}", v["name"]);
        }
    }

    #[test]
    fn says_why_it_cannot_play() {
        for (from, to, why) in [
            ("\"opus\"", "\"vorbis\"", "its codec is vorbis, but this client plays only Opus and AAC-LC"),
            ("\"opus\"", "\"mp4a.40.2\"", "its codec is mp4a.40.2, but this client plays only Opus and AAC-LC"),
            ("\"2\"", "\"6\"", "it is neither mono nor stereo"),
            ("48000", "44100", "its sample rate is 44100 Hz"),
            ("\"packet\":10", "\"packet\":20", "its packets do not last 10 ms"),
            ("[10,", "[1e7,", "its position is over a kilometre away"),
            ("[10,", "[", "2 numbers, want 3"),
            ("\"microphone\":3", "\"microphone\":-1", "not a whole number in 0…65535"),
        ] {
            let t = read(&MICROPHONE.replace(from, to));
            assert_eq!(t[0].format.clone().err().unwrap_or_default(), why);
        }
        assert_eq!(read(r#""name":"","codec":"opus""#), []);
    }
}
