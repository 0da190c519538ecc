//! What the verifier and the compiler of the kernel make of the programs.

use quorate_device::xdp::{Device, Entry, Role};
use quorate_offload::header::ROOM_BYTES_MAX;

use crate::{Fallible, group::settings};

/// One line for each entry, for rooms of 64 bytes and of the longest.
pub(crate) fn programs() -> Fallible<()> {
    for room in [64, ROOM_BYTES_MAX] {
        let device = Device::load(Role::Host, &settings(1, room)?)?;
        for entry in Entry::ALL {
            let info = device.info(entry)?;
            println!(
                "room={room} entry={} verified={} translated={} jitted={}",
                entry.name(),
                info.verified_instruction_count().unwrap_or(0),
                info.size_translated().unwrap_or(0),
                info.size_jitted()
            );
        }
    }
    Ok(())
}
