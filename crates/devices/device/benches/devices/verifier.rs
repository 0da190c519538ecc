//! Output of the kernel's verifier and JIT compiler for the eBPF programs.

use quorate_device::xdp::{Device, EntryPoint, Role};
use quorate_offload::header::ROOM_BYTES_MAX;

use crate::{Fallible, group::settings};

/// Prints a line for each entry point, for value fields of 64 bytes and of the maximum size.
pub(crate) fn programs() -> Fallible<()> {
    for room in [64, ROOM_BYTES_MAX] {
        let device = Device::load(Role::Host, &settings(1, room)?)?;
        for entry in EntryPoint::ALL {
            let info = device.program_info(entry)?;
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
