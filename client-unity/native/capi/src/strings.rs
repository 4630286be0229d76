//! Conversion of strings at the C interface, and storage of error messages.

use std::cell::RefCell;
use std::ffi::{c_char, CStr};

use crate::client::HcClient;
use crate::{out, Call, Fault, HC_E_BUFFER, HC_OK};

thread_local! {
    /// Message of this thread's last failed call without a client.
    static LATEST: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Stores a message for hc_error.
pub(crate) fn note(client: Option<&HcClient>, text: String) {
    match client {
        Some(c) => c.note(&text),
        None => LATEST.with(|l| *l.borrow_mut() = text),
    }
}

pub(crate) fn latest(client: Option<&HcClient>) -> String {
    client.map_or_else(|| LATEST.with(|l| l.borrow().clone()), HcClient::error)
}

/// Converts a caller's string; None if it is null or empty.
///
/// # Safety
/// `p` is null or NUL-terminated.
pub(crate) unsafe fn optional<'a>(p: *const c_char, what: &str) -> Result<Option<&'a str>, Fault> {
    if p.is_null() {
        return Ok(None);
    }
    // SAFETY: guaranteed by the caller.
    match unsafe { CStr::from_ptr(p) }.to_str() {
        Ok("") => Ok(None),
        Ok(s) => Ok(Some(s)),
        Err(_) => Err(Fault::argument(&format!("{what} is not UTF-8"))),
    }
}

/// Copies a string and its NUL to a caller's buffer, truncating between characters.
///
/// # Safety
/// `buffer` is null or has room for `capacity` bytes; `needed` is null or writable.
pub(crate) unsafe fn copy(text: &[u8], buffer: *mut c_char, capacity: usize, needed: *mut usize) -> Call {
    // SAFETY: guaranteed by the caller.
    *unsafe { out(needed) }? = text.len() + 1;
    if buffer.is_null() || capacity == 0 {
        return Ok(HC_E_BUFFER);
    }
    let mut n = text.len().min(capacity - 1);
    while n < text.len() && n > 0 && text[n] & 0xc0 == 0x80 {
        n -= 1;
    }
    // SAFETY: n is less than the capacity.
    unsafe {
        std::ptr::copy_nonoverlapping(text.as_ptr().cast(), buffer, n);
        buffer.add(n).write(0);
    }
    Ok(if n < text.len() { HC_E_BUFFER } else { HC_OK })
}

/// A string in a fixed-size field, truncated between characters.
pub(crate) fn field<const N: usize>(s: &str) -> [c_char; N] {
    let n = (0..=s.len().min(N - 1)).rev().find(|n| s.is_char_boundary(*n)).unwrap_or(0);
    let mut out = [0; N];
    for (o, b) in out.iter_mut().zip(s[..n].bytes()) {
        *o = b as c_char;
    }
    out
}
