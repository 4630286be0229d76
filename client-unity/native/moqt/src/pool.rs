use std::sync::{Mutex, PoisonError};

/// Buffers recycled between a session and the consumers of its objects, to avoid an allocation per
/// frame. Keeps at most [`BufferPool::KEPT`] buffers and [`BufferPool::KEPT_BYTES`] in total.
#[derive(Debug, Default)]
pub struct BufferPool(Mutex<Vec<Vec<u8>>>);

impl BufferPool {
    /// Maximum number of buffers kept.
    pub const KEPT: usize = 16;
    /// Maximum total capacity of buffers kept, which bounds the memory left behind by a burst.
    pub const KEPT_BYTES: usize = 4 << 20;

    /// Takes an empty buffer.
    pub fn take(&self) -> Vec<u8> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).pop().unwrap_or_default()
    }

    /// Returns a buffer to the pool.
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

    /// Total capacity of the buffers kept.
    pub fn bytes(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().map(Vec::capacity).sum()
    }
}
