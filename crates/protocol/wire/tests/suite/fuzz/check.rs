//! Properties that hold for any bytes from a peer.

use quorate_wire::{BODY_BYTES_MAX, Decoded, checksum, decode, encode, header::HEADER_BYTES};

/// Checks the bytes as they are, and with both checksums corrected, as from a faulty or hostile
/// peer.
pub(crate) fn check(bytes: &[u8]) {
    read(bytes);
    let mut sealed = bytes.to_vec();
    seal(&mut sealed);
    read(&sealed);
}

fn read(bytes: &[u8]) {
    match decode(bytes, BODY_BYTES_MAX) {
        Err(_) => {}
        Ok(Decoded::NeedMore(more)) => {
            assert!(more >= 1, "waits for nothing");
            let enough = bytes.len() + more;
            assert!(enough <= HEADER_BYTES + BODY_BYTES_MAX, "waits for {enough} bytes");
        }
        Ok(Decoded::Frame { from, frame, used_bytes: used }) => {
            assert!(used <= bytes.len(), "uses what is not there");
            // Any frame that is accepted could have been sent by this side.
            let mut again = Vec::new();
            encode(from, &frame, &mut again).expect("a frame that was taken can be sent");
            let expected = Decoded::Frame { from, frame, used_bytes: again.len() };
            assert_eq!(decode(&again, BODY_BYTES_MAX), Ok(expected));
            // Bytes after the frame do not change the result, and fewer bytes are not enough.
            assert_eq!(decode(&bytes[..used], BODY_BYTES_MAX), decode(bytes, BODY_BYTES_MAX));
            let less = decode(&bytes[..used - 1], BODY_BYTES_MAX);
            assert_eq!(less, Ok(Decoded::NeedMore(1)));
        }
    }
}

/// Corrects magic, length and both checksums.
fn seal(bytes: &mut [u8]) {
    let Some(length) = bytes.len().checked_sub(HEADER_BYTES) else {
        return;
    };
    bytes[..4].copy_from_slice(b"QRTE");
    bytes[4] = 1;
    bytes[12..16].copy_from_slice(&u32::try_from(length).unwrap_or(u32::MAX).to_le_bytes());
    let body = checksum(&bytes[HEADER_BYTES..]);
    bytes[16..20].copy_from_slice(&body.to_le_bytes());
    let covered = [&bytes[..8], &bytes[12..HEADER_BYTES]].concat();
    bytes[8..12].copy_from_slice(&checksum(&covered).to_le_bytes());
}
