//! Sound at the C interface.

use ::sound::Reader;
use media::SoundInfo;

use crate::client::HcClient;
use crate::strings::field;
use crate::*;

/// Reads a sound track on the audio thread. Free it with hc_sound_close. It may outlive its client.
pub struct HcSoundReader(Reader);

/// A sound track.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct HcSound {
    pub size: u32,
    /// The microphone's number; HC_SOUND_FILM and up for the sound of 360° video.
    pub sound: u32,
    /// HC_SOUND_…
    pub flags: u32,
    /// 1 or 2; 0 if the client cannot play the track.
    pub channels: u32,
    /// Position of the sound source, studio coordinates, mm.
    pub position: [f64; 3],
    /// The microphone's name.
    pub name: [c_char; 64],
}

/// State of a sound track. Counts cover the whole run.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct HcSoundStats {
    pub size: u32,
    /// HC_SOUND_…
    pub flags: u32,
    /// Delay from capture to playback, ms; in a recording, from arrival.
    pub delay_ms: f64,
    /// Delay of sound minus that of points or pictures, ms; positive where sound is late.
    pub lip_offset_ms: f64,
    /// Sound received but not yet played, ms.
    pub buffer_ms: f64,
    /// Sound played in place of missing packets, ms.
    pub concealed_ms: f64,
    /// Packets received.
    pub packets: u64,
    /// Missing packets played from the copy in the next one.
    pub packets_repeated: u64,
    /// Packets that arrived too late.
    pub packets_late: u64,
    /// Packets that contradict the catalog or the clock, do not fit into the buffer, or are
    /// undecodable.
    pub packets_refused: u64,
    /// Jumps made to correct the delay.
    pub jumps: u64,
    /// Reads by the audio thread that found too little sound.
    pub starved: u64,
    /// Why the track cannot be played, as a sentence; "" if it can.
    pub error: [c_char; 192],
}

impl HcClient {
    fn sound_tracks(&self) -> Vec<HcSound> {
        let flag = |on: bool, f: u32| if on { f } else { 0 };
        let sound = |i: &SoundInfo| HcSound {
            size: size_of::<HcSound>() as u32,
            sound: i.track.number,
            flags: flag(i.open, HC_SOUND_OPEN) | flag(i.track.position.is_some(), HC_SOUND_PLACED),
            channels: i.track.format.as_ref().map_or(0, |f| f.channels as u32),
            position: i.track.position.unwrap_or_default(),
            name: field(&i.track.label),
        };
        self.shared().sound_list().iter().map(sound).collect()
    }

    fn sound_stats(&self, sound: u32, stats: &mut HcSoundStats) -> Call {
        let Some((s, error)) = self.shared().sound_stats(sound) else { return Ok(HC_EMPTY) };
        let flag = |on: bool, f: u32| if on { f } else { 0 };
        *stats = HcSoundStats {
            size: stats.size,
            flags: flag(s.playing, HC_SOUND_PLAYING)
                | flag(s.delay_ms.is_some(), HC_SOUND_DELAY)
                | flag(s.lip_offset_ms.is_some(), HC_SOUND_LIP_OFFSET),
            delay_ms: s.delay_ms.unwrap_or_default(),
            lip_offset_ms: s.lip_offset_ms.unwrap_or_default(),
            buffer_ms: s.buffer_ms,
            concealed_ms: s.concealed_ms,
            packets: s.counts.received,
            packets_repeated: s.counts.repeated,
            packets_late: s.counts.late,
            packets_refused: s.refused + s.damaged + s.counts.far + s.counts.overflowed,
            jumps: s.counts.jumps,
            starved: s.starved,
            error: field(&error),
        };
        Ok(HC_OK)
    }
}

/// Returns the catalog's sound tracks. Set sounds[0].size. To query the count, pass null sounds
/// with capacity 0.
///
/// # Safety
/// Pointers are null or valid; `sounds` has room for `capacity` of them.
#[no_mangle]
pub unsafe extern "C" fn hc_sounds(client: *mut HcClient, sounds: *mut HcSound, capacity: u32, count: *mut u32) -> i32 {
    // SAFETY: guaranteed by the caller.
    unsafe {
        with(client, |c| {
            let list = c.sound_tracks();
            *out(count)? = list.len() as u32;
            if list.len() > capacity as usize {
                return Ok(HC_E_BUFFER);
            }
            if capacity > 0 {
                sized(sounds)?;
            }
            for (i, s) in list.into_iter().enumerate() {
                sounds.add(i).write(s);
            }
            Ok(HC_OK)
        })
    }
}

/// Starts receiving and decoding a sound track, whether or not it is in the catalog yet, until
/// hc_sound_close. Sets *reader to null unless the result is HC_OK. A track has at most one reader at
/// a time, a client at most sixteen.
///
/// # Safety
/// Pointers are null or valid.
#[no_mangle]
pub unsafe extern "C" fn hc_sound_open(client: *mut HcClient, sound: u32, reader: *mut *mut HcSoundReader) -> i32 {
    // SAFETY: guaranteed by the caller.
    unsafe {
        with(client, |c| {
            let place = out(reader)?;
            *place = std::ptr::null_mut();
            let opened = c.shared().open_sound(sound).map_err(|e| Fault::new(HC_E_BUSY, e.to_string()))?;
            *place = Box::into_raw(Box::new(HcSoundReader(opened)));
            Ok(HC_OK)
        })
    }
}

/// Writes `frames` interleaved frames of `channels` floats at `sample_rate` Hz, heard `latency_us`
/// after this call: the sound that is due then, or silence. Stereo goes to the first two channels.
/// For the audio thread: neither waits nor allocates. Returns the number of frames with sound, or an
/// error without a message.
///
/// # Safety
/// `reader` is null or came from hc_sound_open and is not closed; `samples` has room for frames ×
/// channels floats.
#[no_mangle]
pub unsafe extern "C" fn hc_sound_read(
    reader: *mut HcSoundReader, samples: *mut f32, frames: u32, channels: u32, sample_rate: u32, latency_us: i64,
) -> i32 {
    let n = (frames as usize).saturating_mul(channels as usize);
    if reader.is_null() || samples.is_null() || !samples.is_aligned() || n > MAX_READ {
        return HC_E_ARGUMENT;
    }
    // SAFETY: guaranteed by the caller. Reads may overlap: the reader gives the sound to only one
    // of them.
    let (reader, samples) = unsafe { (&*reader, std::slice::from_raw_parts_mut(samples, n)) };
    let read = AssertUnwindSafe(|| {
        reader.0.read(samples, channels as usize, sample_rate, latency_us.clamp(0, 10_000_000) * 1000)
    });
    catch_unwind(read).map_or(HC_E_PANIC, |n| n as i32)
}

/// Ends a track's playback and frees the reader. Accepts null.
///
/// # Safety
/// `reader` is null or came from hc_sound_open and is not closed; no other call with it is running.
#[no_mangle]
pub unsafe extern "C" fn hc_sound_close(reader: *mut HcSoundReader) {
    if !reader.is_null() {
        // SAFETY: guaranteed by the caller.
        drop(unsafe { Box::from_raw(reader) });
    }
}

/// Returns the state of a sound track, or HC_EMPTY if it is neither open nor in the catalog.
///
/// # Safety
/// Pointers are null or valid.
#[no_mangle]
pub unsafe extern "C" fn hc_sound_stats(client: *mut HcClient, sound: u32, stats: *mut HcSoundStats) -> i32 {
    // SAFETY: guaranteed by the caller.
    unsafe { with(client, |c| c.sound_stats(sound, sized(stats)?)) }
}
