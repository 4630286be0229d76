//! Message fields: variable-length integers (§1.4.1), lengths, strings.

use crate::code::{violation, WireError};

/// Why a field cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// The buffer ends inside a field. On a stream, wait for more bytes.
    #[error("ends inside a field")]
    Short,
    /// The peer violated the wire format: the session must close.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// A track violates the rules of §2.4.2: its subscription ends, but not the session.
    #[error("malformed track: {0}")]
    Malformed(String),
}

/// Result of reading a field.
pub type Read<T> = Result<T, ReadError>;

/// Reads fields from a buffer.
#[derive(Debug, Clone)]
pub struct Reader<'a> {
    buf: &'a [u8],
    pos: usize,
}

impl<'a> Reader<'a> {
    /// Reads from the beginning of `buf`.
    pub fn new(buf: &'a [u8]) -> Self {
        Reader { buf, pos: 0 }
    }

    /// Number of bytes read.
    pub fn pos(&self) -> usize {
        self.pos
    }

    /// Number of bytes left.
    pub fn left(&self) -> usize {
        self.buf.len() - self.pos
    }

    /// Reads one byte.
    pub fn u8(&mut self) -> Read<u8> {
        let b = *self.buf.get(self.pos).ok_or(ReadError::Short)?;
        self.pos += 1;
        Ok(b)
    }

    /// Reads an integer of up to 64 bits. The number of leading one bits in the first byte is the
    /// number of bytes that follow.
    pub fn varint(&mut self) -> Read<u64> {
        let rest = &self.buf[self.pos..];
        let first = *rest.first().ok_or(ReadError::Short)?;
        let size = first.leading_ones() as usize + 1;
        let bytes = rest.get(1..size).ok_or(ReadError::Short)?;
        let head = if size < 8 { first & (0x7f >> (size - 1)) } else { 0 };
        self.pos += size;
        Ok(bytes.iter().fold(u64::from(head), |v, b| v << 8 | u64::from(*b)))
    }

    /// Reads an integer of at most `limit`.
    pub fn int(&mut self, limit: u64, what: &str) -> Read<u64> {
        let v = self.varint()?;
        if v > limit {
            return Err(violation(format!("{what} {v} exceeds {limit}")).into());
        }
        Ok(v)
    }

    /// Reads `n` bytes.
    pub fn take(&mut self, n: usize) -> Read<&'a [u8]> {
        if n > self.left() {
            return Err(ReadError::Short);
        }
        self.pos += n;
        Ok(&self.buf[self.pos - n..self.pos])
    }

    /// Reads a length of at most `limit`, and that many bytes.
    pub fn bytes(&mut self, limit: usize, what: &str) -> Read<&'a [u8]> {
        let n = self.int(limit as u64, what)?;
        self.take(n as usize)
    }

    /// Reads a length and that many bytes of UTF-8. Invalid sequences become U+FFFD.
    pub fn string(&mut self, limit: usize, what: &str) -> Read<String> {
        Ok(String::from_utf8_lossy(self.bytes(limit, what)?).into_owned())
    }

    /// Reads all remaining bytes.
    pub fn rest(&mut self) -> &'a [u8] {
        let rest = &self.buf[self.pos..];
        self.pos = self.buf.len();
        rest
    }
}

/// Writes fields.
#[derive(Debug, Default, Clone)]
pub struct Writer(pub Vec<u8>);

impl Writer {
    /// An empty buffer.
    pub fn new() -> Self {
        Self::default()
    }

    /// Writes one byte.
    pub fn u8(&mut self, v: u8) -> &mut Self {
        self.0.push(v);
        self
    }

    /// Writes an integer in its shortest encoding.
    pub fn varint(&mut self, v: u64) -> &mut Self {
        let size = (1..9).find(|n| v < 1 << (7 * n)).unwrap_or(9);
        let be = v.to_be_bytes();
        if size == 9 {
            self.0.push(0xff);
            self.0.extend_from_slice(&be);
        } else {
            let at = self.0.len();
            self.0.extend_from_slice(&be[8 - size..]);
            self.0[at] |= !(0xffu16 >> (size - 1)) as u8;
        }
        self
    }

    /// Writes bytes without a length.
    pub fn raw(&mut self, b: &[u8]) -> &mut Self {
        self.0.extend_from_slice(b);
        self
    }

    /// Writes a length and the bytes.
    pub fn bytes(&mut self, b: &[u8]) -> &mut Self {
        self.varint(b.len() as u64).raw(b)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn varints_of_the_draft() {
        // §1.4.1, Table 1 and its limits.
        for (v, want) in [
            (0, &[0x00][..]),
            (37, &[0x25]),
            (127, &[0x7f]),
            (128, &[0x80, 0x80]),
            (15293, &[0xbb, 0xbd]),
            (0x3fff, &[0xbf, 0xff]),
            (0x4000, &[0xc0, 0x40, 0x00]),
            ((1 << 56) - 1, &[0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]),
            (1 << 56, &[0xff, 0x01, 0, 0, 0, 0, 0, 0, 0]),
            (u64::MAX, &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]),
        ] {
            let mut w = Writer::new();
            w.varint(v);
            assert_eq!(w.0, want, "{v:#x}");
            let mut r = Reader::new(want);
            assert_eq!(r.varint(), Ok(v));
            assert_eq!(r.left(), 0);
            for n in 0..want.len() {
                assert_eq!(Reader::new(&want[..n]).varint(), Err(ReadError::Short));
            }
        }
    }

    #[test]
    fn accepts_longer_encodings() {
        assert_eq!(Reader::new(&[0x80, 0x05]).varint(), Ok(5));
        assert_eq!(Reader::new(&[0xff, 0, 0, 0, 0, 0, 0, 0, 5]).varint(), Ok(5));
    }

    proptest! {
        #[test]
        fn varints_come_back(v: u64, shift in 0..64u32) {
            let v = v >> shift;
            let mut w = Writer::new();
            w.varint(v);
            prop_assert_eq!(Reader::new(&w.0).varint(), Ok(v));
        }
    }
}
