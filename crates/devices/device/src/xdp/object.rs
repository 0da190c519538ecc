//! The embedded eBPF objects, and the only change made to them before they are loaded.

use object::{Object as _, ObjectSection as _};

use crate::xdp::{Role, XdpError};

/// Origin of the objects: compiled by this build, or committed.
pub const OBJECT_ORIGIN: &str = env!("QUORATE_XDP_ORIGIN");

pub(crate) const fn object_of(role: Role) -> &'static [u8] {
    match role {
        Role::Acceptor => include_bytes!(concat!(env!("OUT_DIR"), "/acceptor.o")),
        Role::Coordinator => include_bytes!(concat!(env!("OUT_DIR"), "/coordinator.o")),
        Role::Host => include_bytes!(concat!(env!("OUT_DIR"), "/host.o")),
    }
}

/// Returns a mark that distinguishes pins of these programs from those of another release.
pub(crate) fn release_mark(role: Role) -> String {
    let hash = sha1_smol::Sha1::from(object_of(role)).digest().to_string();
    format!("made-{}", &hash[..16])
}

/// Object of the program that passes every frame, for the other end of a veth pair.
pub(crate) const PASS_OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/pass.o"));

/// Object of the program that returns received frames.
pub(crate) const ECHO_OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/echo.o"));

/// Object of the socket filter for clients.
pub(crate) const DECIDED_FILTER_OBJECT: &[u8] =
    include_bytes!(concat!(env!("OUT_DIR"), "/decided.o"));

/// Offset of the value size in a map definition of the older format, after the type and the key
/// size.
const VALUE_SIZE_OFFSET: usize = 8;

/// Returns the object with cells for another size of the value area, because small values should
/// not take up 1408 bytes per cell.
pub(crate) fn resize_rooms(bytes: &[u8], room: u32) -> Result<Vec<u8>, XdpError> {
    let broken = || XdpError::MalformedObject("it has no section of maps".to_owned());
    let file =
        object::File::parse(bytes).map_err(|error| XdpError::MalformedObject(error.to_string()))?;
    let section = file.section_by_name("maps").ok_or_else(broken)?;
    let (offset, length) = section.file_range().ok_or_else(broken)?;
    let at = usize::try_from(offset).map_err(|_| broken())? + VALUE_SIZE_OFFSET;
    let mut changed = bytes.to_vec();
    let place = changed.get_mut(at..at + 4).filter(|_| length >= 12);
    place.ok_or_else(broken)?.copy_from_slice(&room.to_ne_bytes());
    Ok(changed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_size_of_the_value_area_is_changed() {
        for role in Role::ALL {
            let bytes = object_of(role);
            let changed = resize_rooms(bytes, 0x0102_0304).unwrap();
            let differ: Vec<usize> =
                (0..bytes.len()).filter(|at| bytes[*at] != changed[*at]).collect();
            assert_eq!(bytes[differ[0]..differ[0] + 4], 1408_u32.to_ne_bytes());
            assert_eq!(differ.last(), Some(&(differ[0] + 3)));
        }
        assert!(resize_rooms(b"no object", 8).is_err());
    }
}
