//! When to leave a relay: its silence, and the pace of moves.

use std::time::Duration;

use tokio::time::Instant;

/// Interval between measurements of a relay's silence.
pub(crate) const LOOK: Duration = Duration::from_millis(50);
/// Time between two measurements from which this process counts as stalled.
const STALLED: Duration = Duration::from_millis(200);
/// Silence after which other relays are dialled. The round-trip time adds to it and to [`DEAD`].
pub(crate) const SUSPECT: Duration = Duration::from_millis(300);
/// Silence after which a relay is left for one that answers. Its clock sends ten stamps a second.
pub(crate) const DEAD: Duration = Duration::from_millis(500);
/// Interval between dials to several relays.
pub(crate) const STAGGER: Duration = Duration::from_millis(200);

// Back-off between connection attempts.
pub(crate) const FIRST_RETRY: Duration = Duration::from_millis(200);
pub(crate) const LAST_RETRY: Duration = Duration::from_secs(5);

/// Number of consecutive moves without delay: a full relay may redirect a viewer to another full one.
const PROMPT_MOVES: u32 = 2;

/// Measures how long the relay of a connection has been silent.
#[derive(Debug, Default)]
pub(crate) struct Silence {
    link: Option<u64>,
    bytes: u64,
    /// Time of the last data, and of the last measurement.
    at: Option<(Instant, Instant)>,
}

impl Silence {
    /// Returns the time since `received`, the connection's byte count, last grew. Time during which this
    /// process was stalled does not count. Call it every [`LOOK`].
    pub fn observe(&mut self, now: Instant, link: u64, received: u64) -> Duration {
        let heard = match self.at {
            Some((heard, looked)) if self.link == Some(link) && self.bytes == received && now - looked < STALLED => {
                heard
            }
            _ => now,
        };
        (self.link, self.bytes, self.at) = (Some(link), received, Some((heard, now)));
        now - heard
    }

    /// Forgets the measurements.
    pub fn clear(&mut self) {
        *self = Silence::default();
    }
}

/// Limits how often a session moves after GOAWAYs, since a relay may send one in each new session.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    moves: u32,
    wait: Duration,
}

impl Pace {
    /// Returns how long to stay with a session that received a GOAWAY after `lasted`. `jitter` is the
    /// fraction of the delay to add.
    pub fn delay(&mut self, lasted: Duration, jitter: f64) -> Duration {
        if lasted > LAST_RETRY {
            *self = Pace::default();
        }
        self.moves += 1;
        if self.moves <= PROMPT_MOVES {
            return Duration::ZERO;
        }
        self.wait = (2 * self.wait).clamp(FIRST_RETRY, LAST_RETRY);
        self.wait + self.wait.mul_f64(jitter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silence() {
        let mut s = Silence::default();
        let mut now = Instant::now();
        let mut observe = |s: &mut Silence, after: Duration, link, bytes| {
            now += after;
            s.observe(now, link, bytes)
        };
        assert_eq!(observe(&mut s, LOOK, 1, 100), Duration::ZERO);
        for i in 1..=20 {
            assert_eq!(observe(&mut s, LOOK, 1, 100), i * LOOK);
        }
        assert_eq!(observe(&mut s, LOOK, 1, 101), Duration::ZERO);
        assert_eq!(observe(&mut s, LOOK, 1, 101), LOOK);
        assert_eq!(observe(&mut s, Duration::from_secs(10), 1, 101), Duration::ZERO, "stalled");
        assert_eq!(observe(&mut s, LOOK, 1, 101), LOOK);
        assert_eq!(observe(&mut s, LOOK, 2, 101), Duration::ZERO, "another connection");
    }

    #[test]
    fn pace() {
        let mut p = Pace::default();
        let delays: Vec<u128> = (0..9).map(|_| p.delay(LAST_RETRY, 0.0).as_millis()).collect();
        assert_eq!(delays, [0, 0, 200, 400, 800, 1600, 3200, 5000, 5000]);
        assert_eq!(p.delay(LAST_RETRY, 0.2).as_millis(), 6000);
        assert_eq!(p.delay(2 * LAST_RETRY, 0.2), Duration::ZERO);
    }
}
