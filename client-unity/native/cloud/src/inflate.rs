use crate::FrameError;

/// ZSTD_error_dstSize_tooSmall (zstd_errors.h).
const TOO_SMALL: usize = 70;

/// Decompresses planes, reusing its buffers.
pub struct Inflate {
    zstd: zstd_safe::DCtx<'static>,
    raw: Vec<u8>,
}

impl std::fmt::Debug for Inflate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inflate").field("raw", &self.raw.capacity()).finish_non_exhaustive()
    }
}

impl Default for Inflate {
    fn default() -> Self {
        Self::new()
    }
}

impl Inflate {
    /// Without a buffer yet.
    pub fn new() -> Self {
        Inflate { zstd: zstd_safe::DCtx::create(), raw: Vec::new() }
    }

    /// Size of its buffer, bytes.
    pub fn bytes(&self) -> usize {
        self.raw.capacity()
    }

    /// Decompresses a body, which must be exactly one zstd frame of `want` bytes of content.
    /// Otherwise the error names `zstd` or `raw length`.
    pub fn run(&mut self, body: &[u8], want: usize) -> Result<&[u8], FrameError> {
        let bad = |code: usize| FrameError::new("zstd", zstd_safe::get_error_name(code));
        let length = zstd_safe::find_frame_compressed_size(body).map_err(bad)?;
        if length != body.len() {
            return Err(FrameError::new("zstd", "trailing bytes after the frame"));
        }
        if self.raw.len() < want {
            self.raw.resize(want, 0);
        }
        let wrong = || FrameError::new("raw length", format!("{want} differs from the zstd frame's length"));
        match self.zstd.decompress(&mut self.raw[..want], body) {
            Ok(n) if n == want => Ok(&self.raw[..want]),
            Ok(_) => Err(wrong()),
            Err(code) if code.wrapping_neg() == TOO_SMALL => Err(wrong()),
            Err(code) => Err(bad(code)),
        }
    }
}
