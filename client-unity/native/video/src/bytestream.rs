//! The byte stream format (ISO/IEC 14496-10 Annex B).

/// The NAL units of a byte stream, each of at least one byte. Bytes before the first start code are
/// skipped.
pub(crate) fn units(mut bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    bytes = after(bytes);
    std::iter::from_fn(move || {
        while !bytes.is_empty() {
            let end = start_code(bytes).unwrap_or(bytes.len());
            let (mut nal, rest) = bytes.split_at(end);
            bytes = after(rest);
            while let [front @ .., 0] = nal {
                nal = front; // trailing zero bytes, and the first of a long start code
            }
            if !nal.is_empty() {
                return Some(nal);
            }
        }
        None
    })
}

/// The bytes after the first start code.
fn after(bytes: &[u8]) -> &[u8] {
    start_code(bytes).map_or(&[], |at| &bytes[at + 3..])
}

/// Position of the first start code.
fn start_code(bytes: &[u8]) -> Option<usize> {
    let mut at = 2;
    while at < bytes.len() {
        match bytes[at] {
            0 => at += 1,
            1 if bytes[at - 2..at] == [0, 0] => return Some(at - 2),
            _ => at += 3,
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::units;
    use proptest::prelude::*;

    fn list(bytes: &[u8]) -> Vec<Vec<u8>> {
        units(bytes).map(<[u8]>::to_vec).collect()
    }

    #[test]
    fn splits_at_start_codes() {
        assert_eq!(list(&[0, 0, 0, 1, 7, 8, 0, 0, 1, 9, 0, 0, 0, 1, 5, 1]), [vec![7, 8], vec![9], vec![5, 1]]);
        assert_eq!(list(&[3, 0, 0, 1, 7, 1, 0, 1, 0, 0]), [[7, 1, 0, 1]]);
        assert_eq!(list(&[0, 0, 1, 0, 0, 1, 0, 0, 1]), Vec::<Vec<u8>>::new());
        assert_eq!(list(&[1, 2, 3]), Vec::<Vec<u8>>::new());
    }

    proptest! {
        /// The search finds the same start codes as a test of every position.
        #[test]
        fn any_bytes(b in prop::collection::vec(0u8..3, 0..64)) {
            let mut want = Vec::new();
            let starts: Vec<_> = (3..=b.len()).filter(|at| b[at - 3..*at] == [0, 0, 1]).collect();
            for (i, at) in starts.iter().enumerate() {
                let mut nal = &b[*at..starts.get(i + 1).map_or(b.len(), |next| next - 3)];
                while let [front @ .., 0] = nal {
                    nal = front;
                }
                if !nal.is_empty() {
                    want.push(nal.to_vec());
                }
            }
            prop_assert_eq!(list(&b), want);
        }
    }
}
