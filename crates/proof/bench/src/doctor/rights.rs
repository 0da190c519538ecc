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
const LOCKED_BYTES: u64 = 4 << 20;
/// Minimum number of file descriptors with which a node of a three-node group starts.
const FILES_LEAST: u64 = 248;
/// Number of file descriptors needed for a few hundred clients.
const FILES_WANTED: u64 = 1024;

#[derive(Clone, Debug)]
pub struct Privileges {
    /// Effective capabilities; `None` if the kernel does not report capabilities.
    pub capabilities: Option<CapabilitySet>,
    /// Result of opening a packet socket.
    pub packets: Result<(), String>,
    /// Hard limit on locked memory in bytes; `None` if unlimited.
    pub locked_bytes: Option<u64>,
    /// Hard limit on the number of open files; `None` if unlimited.
    pub files: Option<u64>,
}

impl Privileges {
    pub fn now() -> Self {
        let flags = SocketFlags::CLOEXEC;
        // A socket bound to no protocol receives nothing.
        let packets = socket_with(AddressFamily::PACKET, SocketType::DGRAM, flags, None);
        Self {
            capabilities: capabilities(None).ok().map(|sets| sets.effective),
            packets: packets.map(|_| ()).map_err(|error| error.to_string()),
            locked_bytes: getrlimit(Resource::Memlock).maximum,
            files: getrlimit(Resource::Nofile).maximum,
        }
    }

    /// Returns whether this process can get larger socket buffers than the settings allow.
    pub fn forces_buffers(&self) -> bool {
        self.has_capability(CapabilitySet::NET_ADMIN) == Some(true)
    }

    fn has_capability(&self, capability: CapabilitySet) -> Option<bool> {
        let all = self.capabilities?;
        Some(all.contains(capability))
    }

    pub fn examine(&self) -> Vec<Finding> {
        vec![
            self.raw(),
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
            self.locked(),
            self.open_files(),
        ]
    }

    fn raw(&self) -> Finding {
        let name = "CAP_NET_RAW";
        let hint = "only the ethernet plane needs it: AmbientCapabilities=CAP_NET_RAW in the \
                    unit, or setcap cap_net_raw+ep on the binary";
        match (&self.packets, self.has_capability(CapabilitySet::NET_RAW)) {
            (Ok(()), _) => {
                Finding::ok(name, "packet sockets can be opened").about(&[Plane::Ethernet])
            }
            (Err(why), Some(true)) => {
                Finding::warning(name, "granted, but no packet socket can be opened", hint)
                    .detail(why)
                    .blocks(&[Plane::Ethernet])
            }
            (Err(why), _) => Finding::warning(name, "no packet socket can be opened", hint)
                .detail(why)
                .blocks(&[Plane::Ethernet]),
        }
    }

    /// Returns an informational finding for a capability that a node can do without. The substitute
    /// has its own finding.
    fn capability_finding(&self, capability: CapabilitySet, name: &str, without: &str) -> Finding {
        match self.has_capability(capability) {
            Some(true) => Finding::ok(name, "held"),
            Some(false) => Finding::ok(name, "not held").detail(without),
            None => Finding::unknown(name, "the kernel does not report it", "capsh --print"),
        }
    }

    fn locked(&self) -> Finding {
        let name = "memlock";
        let Some(bytes) = self.locked_bytes else {
            return Finding::ok(name, "memory may be locked without limit");
        };
        let what = format!("{} KiB of memory may be locked", bytes >> 10);
        if bytes >= LOCKED_BYTES || self.has_capability(CapabilitySet::IPC_LOCK) == Some(true) {
            return Finding::ok(name, what);
        }
        let hint = "LimitMEMLOCK=8M in the unit, or ulimit -l 8192";
        Finding::warning(name, what, hint)
            .detail("io_uring works without registered buffers, but writes cost more")
    }

    fn open_files(&self) -> Finding {
        let name = "nofile";
        let hint = "LimitNOFILE=65536 in the unit, or ulimit -Hn 65536";
        let Some(files) = self.files else {
            return Finding::ok(name, "any number of files may be open");
        };
        let what = format!("{files} files may be open");
        match files {
            0..FILES_LEAST => Finding::failing(name, what, hint)
                .detail(format!("one of three nodes starts with {FILES_LEAST}"))
                .blocks(&Plane::ALL),
            FILES_LEAST..FILES_WANTED => {
                Finding::warning(name, what, hint).detail("the node serves fewer clients")
            }
            _ => Finding::ok(name, what)
                .detail("a node raises its soft limit, often 1024, to this by itself"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::finding::State;

    fn all() -> Privileges {
        Privileges {
            capabilities: Some(CapabilitySet::all()),
            packets: Ok(()),
            locked_bytes: None,
            files: Some(65_536),
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
            assert_eq!(finding.state, State::Ok, "{finding:?}");
        }
        assert!(all().forces_buffers());
    }

    #[test]
    fn without_capabilities_only_ethernet_is_blocked() {
        let little = Privileges {
            capabilities: Some(CapabilitySet::empty()),
            packets: Err("Operation not permitted".to_owned()),
            locked_bytes: Some(64 << 10),
            files: Some(1024),
        };
        let raw = of(&little, "CAP_NET_RAW");
        assert!(raw.blocks && raw.about == [Plane::Ethernet] && !raw.hint.is_empty());
        assert_eq!(of(&little, "memlock").state, State::Warning);
        let blocking = little.examine().into_iter().filter(|finding| finding.blocks);
        assert_eq!(blocking.count(), 1);
        assert!(!little.forces_buffers());
        // CAP_IPC_LOCK makes the limit irrelevant.
        let locks = Privileges { capabilities: Some(CapabilitySet::IPC_LOCK), ..little };
        assert_eq!(of(&locks, "memlock").state, State::Ok);
    }

    #[test]
    fn limit_of_open_files_below_the_minimum_fails() {
        let state = |files| of(&Privileges { files, ..all() }, "nofile").state;
        assert_eq!(state(Some(0)), State::Failing);
        assert_eq!(state(Some(247)), State::Failing);
        assert_eq!(state(Some(248)), State::Warning);
        assert_eq!(state(Some(1024)), State::Ok);
        assert_eq!(state(None), State::Ok);
        let few = of(&Privileges { files: Some(9), ..all() }, "nofile");
        assert!(few.blocks && few.about.len() == Plane::ALL.len());
    }

    #[test]
    fn unreadable_capabilities_are_unknown() {
        let silent = Privileges { capabilities: None, ..all() };
        assert_eq!(of(&silent, "CAP_NET_ADMIN").state, State::Unknown);
        assert_eq!(of(&silent, "CAP_NET_RAW").state, State::Ok, "it was tried");
        assert!(!silent.forces_buffers());
        assert_eq!(Privileges::now().examine().len(), 6);
    }
}
