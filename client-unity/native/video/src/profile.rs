//! The profile that OpenH264 sees.

use crate::avc::Bits;
use crate::VideoError;

const MAIN: u8 = 77;
const HIGH: u8 = 100;
const SCALABLE_BASELINE: u8 = 83;
/// 4:2:0, 8 bits, no transform bypass and no scaling matrices (§7.3.2.1.1), as Main profile implies.
const MAIN_FORMAT: [u8; 7] = [0, 1, 0, 1, 1, 0, 0];

/// The sequence parameter set to give to OpenH264. OpenH264 delays the pictures of Main and High profile
/// by one, in case B pictures follow; the streams here have none. It parses Scalable Baseline like High
/// profile, but does not delay it.
pub(crate) fn undelayed(sps: &[u8]) -> Result<Vec<u8>, VideoError> {
    let mut out = sps.to_vec();
    match sps.get(1) {
        Some(&HIGH) => out[1] = SCALABLE_BASELINE,
        Some(&MAIN) => {
            let mut r = Bits::new(&sps[1..]);
            r.bits(24)?; // profile, constraint flags and level
            r.ue()?; // its ID
            let at = r.position();
            let mut bits = r.all();
            bits.splice(at..at, MAIN_FORMAT);
            // The stop bit ends the set.
            bits.truncate(bits.iter().rposition(|b| *b == 1).map_or(0, |n| n + 1));
            out.truncate(1);
            escape(bits.chunks(8).map(|c| c.iter().enumerate().fold(0, |v, (i, b)| v | b << (7 - i))), &mut out);
            out[1] = SCALABLE_BASELINE;
        }
        _ => {}
    }
    Ok(out)
}

/// Appends bytes with emulation prevention (§7.4.1.1).
fn escape(bytes: impl Iterator<Item = u8>, out: &mut Vec<u8>) {
    let mut zeros = 0;
    for b in bytes {
        if zeros >= 2 && b <= 3 {
            out.push(3);
            zeros = 0;
        }
        zeros = if b == 0 { zeros + 1 } else { 0 };
        out.push(b);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes() {
        let mut out = Vec::new();
        escape([0, 0, 0, 0, 0, 4, 0, 0, 3].into_iter(), &mut out);
        assert_eq!(out, [0, 0, 3, 0, 0, 3, 0, 4, 0, 0, 3, 3]);
    }
}
