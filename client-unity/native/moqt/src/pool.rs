use std::sync::{Mutex, PoisonError};

/// Buffers that go round between a session and those that use up its objects, so that frames do not cost an
/// allocation each. Keeps at most [`BufferPool::KEPT`] of them, and [`BufferPool::KEPT_BYTES`].
#[derive(Debug, Default)]
pub struct BufferPool(Mutex<Vec<Vec<u8>>>);

impl BufferPool {
    /// Buffers kept at most.
    pub const KEPT: usize = 16;
    /// Bytes of buffers kept at most: a burst leaves no more behind.
    pub const KEPT_BYTES: usize = 4 << 20;

    /// An empty buffer.
    pub fn take(&self) -> Vec<u8> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).pop().unwrap_or_default()
    }

    /// Gives a buffer back.
    pub fn give(&self, mut b: Vec<u8>) {
        if b.capacity() == 0 || b.capacity() > Self::KEPT_BYTES / 2 {
            return;
        }
        b.clear();
        let mut list = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let held: usize = list.iter().map(Vec::capacity).sum();
        if list.len() < Self::KEPT && held + b.capacity() <= Self::KEPT_BYTES {
            list.push(b);
        }
    }

    /// Bytes that the buffers here have room for.
    pub fn bytes(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().map(Vec::capacity).sum()
    }
}
