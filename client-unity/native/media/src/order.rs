//! Puts the objects of layout W (docs/spec/video-frame.md) in order, since each needs the earlier
//! ones of its group.

use std::collections::BTreeMap;

use moqt::Nanos;

/// Maximum objects and bytes that wait for earlier ones.
const MAX_EARLY: usize = 256;
const MAX_BYTES: usize = 16 << 20;
/// A group this far below the newest belongs to a restarted publisher; nearer ones are late.
const RESTART_GAP: u64 = 1000;

/// A frame's object.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Ordered {
    pub payload: Vec<u8>,
    pub arrived: Nanos,
    pub fetched: bool,
}

/// Puts objects in order. Moves on to a newer group as soon as that group's key frame arrives.
#[derive(Debug, Default)]
pub(crate) struct Order {
    /// Group and ID of the next object; None before the first key frame.
    next: Option<(u64, u64)>,
    early: BTreeMap<(u64, u64), Ordered>,
    bytes: usize,
}

impl Order {
    /// Takes an object in any order. Appends the objects that can be decoded to `ready`, and useless
    /// payloads to `unused`.
    pub fn add(&mut self, group: u64, id: u64, o: Ordered, ready: &mut Vec<Ordered>, unused: &mut Vec<Vec<u8>>) {
        if self.next.is_some_and(|(g, _)| group < g && g - group >= RESTART_GAP) {
            *self = Order::default();
        }
        let newer = self.next.is_none_or(|(g, _)| group > g);
        let late = !newer && self.next.is_some_and(|next| (group, id) < next);
        if late || self.early.contains_key(&(group, id)) {
            return unused.push(o.payload);
        }
        self.bytes += o.payload.len();
        self.early.insert((group, id), o);
        if newer && id == 0 {
            self.next = Some((group, 0));
        }
        let Some(next) = &mut self.next else { return self.trim(unused) };
        while let Some((key, o)) = self.early.pop_first() {
            if key > *next {
                self.early.insert(key, o);
                break;
            }
            self.bytes -= o.payload.len();
            if key == *next {
                next.1 += 1;
                ready.push(o);
            } else {
                unused.push(o.payload);
            }
        }
        self.trim(unused);
    }

    /// Enforces the limits.
    fn trim(&mut self, unused: &mut Vec<Vec<u8>>) {
        while self.early.len() > MAX_EARLY || self.bytes > MAX_BYTES {
            let Some((_, o)) = self.early.pop_first() else { return };
            self.bytes -= o.payload.len();
            unused.push(o.payload);
        }
    }

    /// True if objects wait for earlier ones.
    pub fn waits(&self) -> bool {
        !self.early.is_empty()
    }

    /// The group after the newest received.
    pub fn following(&self) -> u64 {
        let newest = self.early.last_key_value().map(|(k, _)| k.0).max(self.next.map(|n| n.0));
        newest.map_or(0, |g| g.saturating_add(1))
    }

    /// The group being received.
    pub fn group(&self) -> Option<u64> {
        self.next.map(|n| n.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The objects that become ready, and the number of unused ones.
    fn add(o: &mut Order, group: u64, id: u64) -> (Vec<u8>, usize) {
        let (mut ready, mut unused) = (Vec::new(), Vec::new());
        let payload = vec![10 * group as u8 + id as u8];
        o.add(group, id, Ordered { payload, arrived: 0, fetched: false }, &mut ready, &mut unused);
        (ready.iter().map(|r| r.payload[0]).collect(), unused.len())
    }

    #[test]
    fn join_in_the_middle_of_a_group() {
        let mut o = Order::default();
        assert_eq!((add(&mut o, 4, 3), add(&mut o, 4, 4)), ((vec![], 0), (vec![], 0)));
        assert!(o.waits() && o.following() == 5);
        assert_eq!(add(&mut o, 4, 0), (vec![40], 0));
        assert_eq!((add(&mut o, 4, 1), add(&mut o, 4, 1)), ((vec![41], 0), (vec![], 1)));
        assert_eq!(add(&mut o, 4, 2), (vec![42, 43, 44], 0));
        assert!(!o.waits() && o.group() == Some(4));
    }

    #[test]
    fn key_frame_ends_the_group_before() {
        let mut o = Order::default();
        add(&mut o, 4, 0);
        add(&mut o, 4, 2); // its predecessor never arrives
        assert_eq!(add(&mut o, 5, 1), (vec![], 0));
        assert_eq!(add(&mut o, 5, 0), (vec![50, 51], 1));
        assert_eq!(add(&mut o, 4, 1), (vec![], 1));
        assert_eq!(o.bytes, 0);
    }

    #[test]
    fn publisher_restart() {
        let mut o = Order::default();
        let mut ready = Vec::new();
        let object = || Ordered { payload: vec![1], arrived: 0, fetched: false };
        o.add(5000, 0, object(), &mut ready, &mut Vec::new());
        o.add(3, 0, object(), &mut ready, &mut Vec::new());
        assert_eq!((ready.len(), o.group()), (2, Some(3)));
    }

    proptest! {
        /// Objects come out in order, without gaps within a group, and memory is bounded.
        #[test]
        fn any_order(steps in prop::collection::vec((0u64..6, 0u64..40), 0..400)) {
            let mut o = Order::default();
            let mut last: Option<(u64, u64)> = None;
            for (group, id) in steps {
                let (mut ready, mut unused) = (Vec::new(), Vec::new());
                let payload = vec![group as u8, id as u8];
                o.add(group, id, Ordered { payload, arrived: 0, fetched: false }, &mut ready, &mut unused);
                for r in ready {
                    let (group, id) = (u64::from(r.payload[0]), u64::from(r.payload[1]));
                    let begins = id == 0 && last.is_none_or(|l| group > l.0);
                    prop_assert!(begins || last == Some((group, id.wrapping_sub(1))));
                    last = Some((group, id));
                }
                prop_assert!(o.bytes == 2 * o.early.len() && o.early.len() <= MAX_EARLY);
            }
        }
    }
}
