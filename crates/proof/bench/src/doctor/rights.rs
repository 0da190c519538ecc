//! Privilege check of this process: capabilities, raw sockets, limits on locked memory and open
//! files.
//!
//! The rights are those of `quorate doctor`. A node that runs as another user or under a service
//! manager may have others.

use rustix::{
    net::{AddressFamily, SocketFlags, SocketType, socket_with},
    process::{Resource, getrlimit},
    thread::{CapabilitySet, capabilities},
};

use crate::doctor::{finding::Finding, plane::Plane};

/// Number of bytes that a node registers with io_uring for the buffers of its log.
const LOCKED_MEMORY_BYTES: u64 = 4 << 20;
/// Minimum number of file descriptors with which a node of a three-node group starts.
const FILES_LEAST: u64 = 248;
/// Number of file descriptors needed for a few hundred clients.
const FILES_WANTED: u64 = 1024;

#[derive(Clone, Debug)]
pub struct Privileges {
    /// Effective capabilities; `None` if the kernel does not report capabilities.
    pub capabilities: Option<CapabilitySet>,
    /// Result of opening a packet socket.
    pub packet_socket: Result<(), String>,
    /// Hard limit on locked memory in bytes; `None` if unlimited.
    pub locked_memory_limit: Option<u64>,
    /// Hard limit on the number of open files; `None` if unlimited.
    pub open_files_limit: Option<u64>,
}

impl Privileges {
    pub fn of_this_process() -> Self {
        let flags = SocketFlags::CLOEXEC;
        // A socket bound to no protocol receives nothing.
        let packets = socket_with(AddressFamily::PACKET, SocketType::DGRAM, flags, None);
        Self {
            capabilities: capabilities(None).ok().map(|sets| sets.effective),
            packet_socket: packets.map(|_| ()).map_err(|error| error.to_string()),
            locked_memory_limit: getrlimit(Resource::Memlock).maximum,
            open_files_limit: getrlimit(Resource::Nofile).maximum,
        }
    }

    /// Returns whether this process can get larger socket buffers than the settings allow.
    pub fn can_force_buffers(&self) -> bool {
        self.has_capability(CapabilitySet::NET_ADMIN) == Some(true)
    }

    fn has_capability(&self, capability: CapabilitySet) -> Option<bool> {
        let all = self.capabilities?;
        Some(all.contains(capability))
    }

    pub fn examine(&self) -> Vec<Finding> {
        vec![
            self.packet_socket_finding(),
            self.capability_finding(
                CapabilitySet::NET_ADMIN,
                "CAP_NET_ADMIN",
                "buffers are limited by net.core.rmem_max and wmem_max",
            ),
            self.capability_finding(
                CapabilitySet::IPC_LOCK,
                "CAP_IPC_LOCK",
                "locked memory is limited by the limit below",
            ),
            self.capability_finding(
                CapabilitySet::BPF,
                "CAP_BPF",
                "not needed yet: it is for a plane in the kernel",
            ),
            self.locked_memory_finding(),
            self.open_files_finding(),
        ]
    }

    fn packet_socket_finding(&self) -> Finding {
        let name = "CAP_NET_RAW";
        let hint = "only the ethernet plane needs it: AmbientCapabilities=CAP_NET_RAW in the \
                    unit, or setcap cap_net_raw+ep on the binary";
        match (&self.packet_socket, self.has_capability(CapabilitySet::NET_RAW)) {
            (Ok(()), _) => {
                Finding::ok(name, "packet sockets can be opened").with_planes(&[Plane::Ethernet])
            }
            (Err(why), Some(true)) => {
                Finding::warning(name, "granted, but no packet socket can be opened", hint)
                    .with_detail(why)
                    .blocking(&[Plane::Ethernet])
            }
            (Err(why), _) => Finding::warning(name, "no packet socket can be opened", hint)
                .with_detail(why)
                .blocking(&[Plane::Ethernet]),
        }
    }

    /// Returns an informational finding for a capability that a node can do without. The substitute
    /// has its own finding.
    fn capability_finding(&self, capability: CapabilitySet, name: &str, without: &str) -> Finding {
        match self.has_capability(capability) {
            Some(true) => Finding::ok(name, "held"),
            Some(false) => Finding::ok(name, "not held").with_detail(without),
            None => Finding::unknown(name, "the kernel does not report it", "capsh --print"),
        }
    }

    fn locked_memory_finding(&self) -> Finding {
        let name = "memlock";
        let Some(bytes) = self.locked_memory_limit else {
            return Finding::ok(name, "memory may be locked without limit");
        };
        let what = format!("{} KiB of memory may be locked", bytes >> 10);
        if bytes >= LOCKED_MEMORY_BYTES
            || self.has_capability(CapabilitySet::IPC_LOCK) == Some(true)
        {
            return Finding::ok(name, what);
        }
        let hint = "LimitMEMLOCK=8M in the unit, or ulimit -l 8192";
        Finding::warning(name, what, hint)
            .with_detail("io_uring works without registered buffers, but writes cost more")
    }

    fn open_files_finding(&self) -> Finding {
        let name = "nofile";
        let hint = "LimitNOFILE=65536 in the unit, or ulimit -Hn 65536";
        let Some(files) = self.open_files_limit else {
            return Finding::ok(name, "any number of files may be open");
        };
        let what = format!("{files} files may be open");
        match files {
            0..FILES_LEAST => Finding::failing(name, what, hint)
                .with_detail(format!("one of three nodes starts with {FILES_LEAST}"))
                .blocking(&Plane::ALL),
            FILES_LEAST..FILES_WANTED => {
                Finding::warning(name, what, hint).with_detail("the node serves fewer clients")
            }
            _ => Finding::ok(name, what)
                .with_detail("a node raises its soft limit, often 1024, to this by itself"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::finding::FindingState;

    fn all() -> Privileges {
        Privileges {
            capabilities: Some(CapabilitySet::all()),
            packet_socket: Ok(()),
            locked_memory_limit: None,
            open_files_limit: Some(65_536),
        }
    }

    fn of(rights: &Privileges, name: &str) -> Finding {
        let findings = rights.examine();
        let mut found = findings.into_iter();
        found.find(|finding| finding.name == name).unwrap()
    }

    #[test]
    fn process_with_all_rights_has_no_warning() {
        for finding in all().examine() {
            assert_eq!(finding.state, FindingState::Ok, "{finding:?}");
        }
        assert!(all().can_force_buffers());
    }

    #[test]
    fn without_capabilities_only_ethernet_is_blocked() {
        let little = Privileges {
            capabilities: Some(CapabilitySet::empty()),
            packet_socket: Err("Operation not permitted".to_owned()),
            locked_memory_limit: Some(64 << 10),
            open_files_limit: Some(1024),
        };
        let raw = of(&little, "CAP_NET_RAW");
        assert!(raw.blocks && raw.about == [Plane::Ethernet] && !raw.hint.is_empty());
        assert_eq!(of(&little, "memlock").state, FindingState::Warning);
        let blocking = little.examine().into_iter().filter(|finding| finding.blocks);
        assert_eq!(blocking.count(), 1);
        assert!(!little.can_force_buffers());
        // CAP_IPC_LOCK makes the limit irrelevant.
        let locks = Privileges { capabilities: Some(CapabilitySet::IPC_LOCK), ..little };
        assert_eq!(of(&locks, "memlock").state, FindingState::Ok);
    }

    #[test]
    fn limit_of_open_files_below_the_minimum_fails() {
        let state = |files| of(&Privileges { open_files_limit: files, ..all() }, "nofile").state;
        assert_eq!(state(Some(0)), FindingState::Failing);
        assert_eq!(state(Some(247)), FindingState::Failing);
        assert_eq!(state(Some(248)), FindingState::Warning);
        assert_eq!(state(Some(1024)), FindingState::Ok);
        assert_eq!(state(None), FindingState::Ok);
        let few = of(&Privileges { open_files_limit: Some(9), ..all() }, "nofile");
        assert!(few.blocks && few.about.len() == Plane::ALL.len());
    }

    #[test]
    fn unreadable_capabilities_are_unknown() {
        let silent = Privileges { capabilities: None, ..all() };
        assert_eq!(of(&silent, "CAP_NET_ADMIN").state, FindingState::Unknown);
        assert_eq!(of(&silent, "CAP_NET_RAW").state, FindingState::Ok, "it was tried");
        assert!(!silent.can_force_buffers());
        assert_eq!(Privileges::of_this_process().examine().len(), 6);
    }
}
