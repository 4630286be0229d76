//! Minimum round-trip time, which quinn exposes only to congestion controllers.

use std::any::Any;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use quinn::congestion::{Controller, ControllerFactory, NewRenoConfig};
use quinn_proto::RttEstimator;

/// Round-trip times of a path.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Rtt {
    /// Minimum.
    pub min: Duration,
    /// Smoothed.
    pub smoothed: Duration,
}

/// Creates New Reno controllers (a viewer sends little) that record the minimum round-trip time.
#[derive(Debug, Default)]
pub(crate) struct Observed {
    inner: Arc<NewRenoConfig>,
    pub min: Arc<AtomicU64>,
}

impl Observed {
    /// `min` is in nanoseconds and starts at u64::MAX, which means unknown.
    pub fn new() -> Self {
        Observed { inner: Arc::default(), min: Arc::new(AtomicU64::new(u64::MAX)) }
    }
}

impl ControllerFactory for Observed {
    fn build(self: Arc<Self>, now: Instant, mtu: u16) -> Box<dyn Controller> {
        Box::new(Observer { inner: self.inner.clone().build(now, mtu), min: self.min.clone() })
    }
}

struct Observer {
    inner: Box<dyn Controller>,
    min: Arc<AtomicU64>,
}

impl Controller for Observer {
    fn on_sent(&mut self, now: Instant, bytes: u64, last_packet_number: u64) {
        self.inner.on_sent(now, bytes, last_packet_number);
    }

    fn on_ack(&mut self, now: Instant, sent: Instant, bytes: u64, app_limited: bool, rtt: &RttEstimator) {
        self.min.store(rtt.min().as_nanos() as u64, Ordering::Relaxed);
        self.inner.on_ack(now, sent, bytes, app_limited, rtt);
    }

    fn on_end_acks(&mut self, now: Instant, in_flight: u64, app_limited: bool, largest: Option<u64>) {
        self.inner.on_end_acks(now, in_flight, app_limited, largest);
    }

    fn on_congestion_event(&mut self, now: Instant, sent: Instant, persistent: bool, lost: u64) {
        self.inner.on_congestion_event(now, sent, persistent, lost);
    }

    fn on_mtu_update(&mut self, mtu: u16) {
        self.inner.on_mtu_update(mtu);
    }

    fn window(&self) -> u64 {
        self.inner.window()
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        Box::new(Observer { inner: self.inner.clone_box(), min: self.min.clone() })
    }

    fn initial_window(&self) -> u64 {
        self.inner.initial_window()
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}
