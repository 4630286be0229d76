use std::cell::RefCell;

use cloud::{Decoder, Frame, Limits};

use crate::{Call, Fault, HcFrame, HC_E_BUFFER, HC_E_DECODE, HC_FRAME_PARTIAL, HC_OK};

/// Maximum objects per frame.
const MAX_OBJECTS: u32 = 4;

struct Scratch {
    decoder: Decoder,
    words: Vec<u32>,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::new(Scratch { decoder: Decoder::new(), words: Vec::new() });
}

fn fill(frame: &mut HcFrame, f: &Frame, objects: &[&[u8]]) {
    let h = &f.header;
    *frame = HcFrame {
        size: frame.size,
        camera: h.camera.into(),
        sequence: h.sequence,
        layout: h.layout as u32,
        words_per_point: f.words_per_point() as u32,
        points: f.points as u32,
        descriptions: f.descriptions as u32,
        descriptions_total: h.descriptions.into(),
        width: h.width.into(),
        height: h.height.into(),
        bytes: objects.iter().map(|o| o.len()).sum::<usize>() as u32,
        captured_us: h.capture_time,
        device_us: h.device_time,
        flags: if f.descriptions < usize::from(h.descriptions) { HC_FRAME_PARTIAL } else { 0 },
        ..HcFrame::default()
    };
}

/// # Safety
/// See hc_decode.
pub(crate) unsafe fn decode(
    objects: *const *const u8, lengths: *const usize, count: u32, max_points: u32, words: *mut u32, capacity: usize,
    frame: &mut HcFrame,
) -> Call {
    if objects.is_null() || lengths.is_null() || count == 0 || count > MAX_OBJECTS {
        return Err(Fault::argument("a frame has one to four objects"));
    }
    let mut list: Vec<&[u8]> = Vec::with_capacity(count as usize);
    for i in 0..count as usize {
        // SAFETY: guaranteed by the caller.
        let (p, n) = unsafe { (*objects.add(i), *lengths.add(i)) };
        if p.is_null() || n > isize::MAX as usize {
            return Err(Fault::argument("an object is null"));
        }
        // SAFETY: guaranteed by the caller.
        list.push(unsafe { std::slice::from_raw_parts(p, n) });
    }
    let limits = match max_points {
        0 => Limits::default(),
        n => Limits { max_points: n as usize, grid: None },
    };
    let bad = |e: cloud::FrameError| Fault::new(HC_E_DECODE, e.to_string());
    let measured = cloud::measure(&list, &limits).map_err(bad)?;
    fill(frame, &measured, &list);
    let need = measured.points * measured.words_per_point();
    if words.is_null() || need > capacity {
        return Ok(HC_E_BUFFER);
    }
    SCRATCH.with(|s| {
        let s = &mut *s.borrow_mut();
        let began = std::time::Instant::now();
        s.decoder.decode(&list, &limits, &mut s.words).map_err(bad)?;
        frame.decode_us = began.elapsed().as_micros() as u32;
        // SAFETY: `words` has room for `need` words, and the decoder wrote that many.
        unsafe { std::ptr::copy_nonoverlapping(s.words.as_ptr(), words, need) };
        Ok(HC_OK)
    })
}
