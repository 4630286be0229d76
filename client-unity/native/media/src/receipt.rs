//! The receipt that a viewer sends for every frame shown, in the format of internal/qoe.

use moqt::Nanos;

/// Size in bytes. With headers, the datagram has 200 to 240 bytes, by which the network tells it
/// from an acknowledgement.
pub(crate) const SIZE: usize = 200;

pub(crate) fn encode(camera: u16, sequence: u32, delay: Nanos) -> [u8; SIZE] {
    let mut b = [0; SIZE];
    b[0] = 1;
    b[2..4].copy_from_slice(&camera.to_le_bytes());
    b[4..8].copy_from_slice(&sequence.to_le_bytes());
    let us = (delay / 1000).clamp(i32::MIN.into(), i32::MAX.into()) as i32;
    b[8..12].copy_from_slice(&us.to_le_bytes());
    b
}

#[cfg(test)]
mod tests {
    #[test]
    fn layout() {
        let b = super::encode(513, 0x0403_0201, -2_000);
        assert_eq!(b[..12], [1, 0, 1, 2, 1, 2, 3, 4, 0xfe, 0xff, 0xff, 0xff]);
        assert!(b[12..].iter().all(|v| *v == 0));
        assert_eq!(super::encode(0, 0, i64::MAX)[8..12], i32::MAX.to_le_bytes());
    }
}
