use std::sync::{Mutex, PoisonError};

/// Buffers that go round between a session and those that use up its objects, so that frames do not cost an
/// allocation each. Keeps at most [`BufferPool::KEPT`] of them.
#[derive(Debug, Default)]
pub struct BufferPool(Mutex<Vec<Vec<u8>>>);

impl BufferPool {
    /// Buffers kept at most.
    pub const KEPT: usize = 16;
    /// Bytes of a buffer that is kept at most.
    const LARGEST: usize = 2 << 20;

    /// An empty buffer.
    pub fn take(&self) -> Vec<u8> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).pop().unwrap_or_default()
    }

    /// Gives a buffer back.
    pub fn give(&self, mut b: Vec<u8>) {
        if b.capacity() == 0 || b.capacity() > Self::LARGEST {
            return;
        }
        b.clear();
        let mut list = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if list.len() < Self::KEPT {
            list.push(b);
        }
    }

    /// Bytes that the buffers here have room for.
    pub fn bytes(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().map(Vec::capacity).sum()
    }
}
