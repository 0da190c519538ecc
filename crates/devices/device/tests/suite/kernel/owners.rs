//! Ownership of devices at an interface, and the handling of devices whose owners no longer exist.

use std::process::Command;

use quorate_device::{
    PacketSocketWire,
    station::ClaimError,
    xdp::{BPF_FILE_SYSTEM, Hook, XdpError, end_orphans},
};
use quorate_offload::Type;
use quorate_packets::ethernet::Mac;

use crate::kernel::{
    desk::phase2a,
    interfaces::{CELLS, armed, open},
    wires::{Client, GROUP, INTERFACE, alone, at, lay},
};

/// Group of all hosts.
const OURS: u32 = 5;

/// [offload-9] A killed node may return without a device or with another one. A process at another
/// interface ends its orphaned device, and leaves devices with live owners alone.
#[test]
fn what_killed_owners_left_is_ended_from_anywhere() {
    alone("owners::what_killed_owners_left_is_ended_from_anywhere", || {
        let _passing = lay(2);
        let (killed, lives) = (armed(1, &[Hook::Traffic]), armed(2, &[Hook::Native]));
        let client = Client::new();
        let votes = |host, slot| {
            client.send(host, &phase2a(slot, slot));
            client.hear().is_some_and(|(said, _)| said.kind == Type::Phase2b)
        };
        assert!(votes(1, 1) && votes(2, 1));
        assert_eq!(end_orphans(OURS).unwrap(), Vec::<std::path::PathBuf>::new());
        // Drops it as if its process had been killed.
        drop(killed);
        assert!(votes(1, 2), "it votes on");
        assert!(end_orphans(OURS + 1).unwrap().is_empty(), "another cluster's");
        let ended = end_orphans(OURS).unwrap();
        assert_eq!(ended.len(), 1);
        assert!(!ended[0].exists());
        assert!(end_orphans(OURS).unwrap().is_empty());
        // Only the device with a live owner answers.
        client.send(1, &phase2a(3, 3));
        assert!(votes(2, 3));
        assert!(client.hear_at_once().is_none());
        drop(lives);
        assert_eq!(end_orphans(OURS).unwrap().len(), 1);
    });
}

/// An interface has one owner, even among containers that share the machine's network but not its
/// file systems.
#[test]
fn an_interface_has_one_owner_whatever_files_it_sees() {
    alone("owners::an_interface_has_one_owner_whatever_files_it_sees", || {
        let _passing = lay(1);
        let host = armed(1, &[Hook::Traffic]);
        // Mounts another instance of the BPF file system, which has no pins.
        let mounted = Command::new("mount").args(["-t", "bpf", "bpf", BPF_FILE_SYSTEM]).status();
        assert!(mounted.unwrap().success());
        let second = open(1, CELLS, &[Hook::Traffic]);
        assert!(
            matches!(second, Err(XdpError::AlreadyOwned { interface }) if interface == INTERFACE)
        );
        let mut thread = at(1, || PacketSocketWire::open(INTERFACE, &[Mac(GROUP.mac)]).unwrap());
        assert!(matches!(at(1, || thread.claim_group(OURS)), Err(ClaimError::AlreadyClaimed)));
        // Other groups' devices in threads receive other frames.
        assert!(at(1, || thread.claim_group(OURS + 1)).is_ok());
        drop(host);
        assert!(open(1, CELLS, &[Hook::Traffic]).is_ok());
    });
}
