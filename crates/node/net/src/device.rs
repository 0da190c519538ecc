//! The optional device of a node, which casts votes, assigns slots and counts votes ([offload-5]).
//!
//! Reading order: [`Kind`] (the configured device), `ladder` (its fallbacks), `kernel`, `place`,
//! `by_udp`, `boxes` (the kinds of candidates), `waiting` (wake-up of the reactor by a device).

mod boxes;
mod by_udp;
mod kernel;
mod ladder;
mod place;
mod waiting;

use std::{
    env, io,
    net::{SocketAddr, SocketAddrV4},
    path::PathBuf,
    sync::Arc,
};

use quorate_device::GroupMembers;
use quorate_device::xdp::Hook;
use quorate_replica::DeviceSource;

use crate::{
    handle::ReactorMailbox,
    identity::Identity,
    plane::{
        PlaneSettings,
        sockets::{LOOPBACK_INTERFACE, interface_of},
    },
};
use boxes::ExternalTransport;
use by_udp::UdpCandidate;
use ladder::{Candidate, Candidates};
pub(crate) use waiting::DeviceWakeup;

/// Number of slots that each device program stores.
const DEVICE_SLOT_COUNT: u32 = 1 << 12;
/// Maximum payload of a frame in bytes. With all headers it takes 1512 bytes, and 1526 on Ethernet.
const PAYLOAD_BYTES_MAX: usize = 1408;
/// Maximum number of frames that a device running as a thread may queue for the reactor.
const QUEUED_FRAMES_MAX: usize = 1 << 13;

/// Name of the program that interprets this project's P4 programs, for `--device p4`.
const P4_INTERPRETER: &str = "quorate-p4";

/// Returns the path of the interpreter of P4 programs, in the folder of the running program.
pub fn p4_interpreter_path() -> Result<PathBuf, DeviceRefusal> {
    let path = env::current_exe().unwrap_or_default().with_file_name(P4_INTERPRETER);
    if path.is_file() { Ok(path) } else { Err(DeviceRefusal::NoInterpreter(path)) }
}

/// Kind of a node's voting device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum Kind {
    #[default]
    Off,
    /// A thread of this process that exchanges UDP datagrams.
    Udp,
    /// A thread that exchanges raw Ethernet frames.
    Packet,
    /// A device in the kernel, by XDP or tc. Falls back to the thread that uses raw frames.
    Kernel,
    /// A device in the kernel, by tc only. Falls back to the thread that uses raw frames.
    Tc,
    /// External device processes. Fall back to a thread that uses the same frames.
    External(ExternalDevice),
}

/// An external device: two processes that turn received frames into frames to send, in place of
/// hardware that does the same.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ExternalDevice {
    kind: &'static str,
    /// Command line. The program name replaces every `{}`, or is appended if there is none.
    command_line: Vec<String>,
}

impl ExternalDevice {
    /// Parses `process:COMMAND`, `rtl:FOLDER` (built by Verilator), or `p4`
    /// ([`p4_interpreter_path`]).
    fn from_name(name: &str) -> Option<Self> {
        let (kind, words) = match name.split_once(':') {
            None if name == "p4" => {
                let path = env::current_exe().ok()?.with_file_name(P4_INTERPRETER);
                ("p4", vec![path.to_str()?.to_owned()])
            }
            Some(("rtl", folder)) => ("rtl", vec![format!("{folder}/{{}}/V{{}}")]),
            Some(("process", command)) => ("process", split_command(command)),
            _ => return None,
        };
        (!words.is_empty()).then_some(Self { kind, command_line: words })
    }
}

/// Splits a command at whitespace outside quotes.
fn split_command(command: &str) -> Vec<String> {
    let (mut words, mut within, mut quote) = (Vec::<String>::new(), false, None);
    for letter in command.chars() {
        let ends = quote == Some(letter);
        if quote.is_none() && letter.is_whitespace() {
            within = false;
            continue;
        }
        if !within {
            words.push(String::new());
            within = true;
        }
        if ends {
            quote = None;
        } else if quote.is_none() && matches!(letter, '\'' | '"') {
            quote = Some(letter);
        } else if let Some(word) = words.last_mut() {
            word.push(letter);
        }
    }
    words
}

impl Kind {
    /// Parses the name of a kind, as used in settings.
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "off" => Some(Self::Off),
            "udp" => Some(Self::Udp),
            "packet" => Some(Self::Packet),
            "kernel" => Some(Self::Kernel),
            "tc" => Some(Self::Tc),
            name => ExternalDevice::from_name(name).map(Self::External),
        }
    }

    /// Returns the kind with all programs of an external device run as arguments of `launcher`.
    #[must_use]
    pub fn with_launcher(self, launcher: &[String]) -> Self {
        match self {
            Self::External(ExternalDevice { kind, command_line: words }) => {
                Self::External(ExternalDevice { kind, command_line: [launcher, &words].concat() })
            }
            other => other,
        }
    }

    /// Returns the name of the kind, as used in settings.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::External(one) => one.kind,
            Self::Off => "off",
            Self::Udp => "udp",
            Self::Packet => "packet",
            Self::Kernel => "kernel",
            Self::Tc => "tc",
        }
    }

    const fn hooks(&self) -> &'static [Hook] {
        match self {
            Self::Kernel => &Hook::ALL,
            Self::Tc => &[Hook::Traffic],
            Self::Off | Self::Udp | Self::Packet | Self::External(_) => &[],
        }
    }
}

/// Reason why the configured device cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DeviceRefusal {
    /// The device's frames carry no keys, and other machines can reach the address.
    #[error(
        "--device {0} has no keys, and other machines can reach this address: anyone who can send frames there could vote as a member"
    )]
    Untrusted(&'static str),
    /// The packet plane's datagrams already use the port.
    #[error("--device udp and --plane {0} both need the UDP port of --peer")]
    PortInUse(&'static str),
    /// The address is not IPv4, the only version that the frames support.
    #[error("--device udp needs one specific IPv4 address at --peer, not {0}")]
    NotIpv4(SocketAddr),
    /// The port for the device's datagrams cannot be bound.
    #[error("cannot bind the UDP port of --peer {0}: {1}")]
    BindFailed(SocketAddr, io::Error),
    /// No interface, or more than one, has the peer address.
    #[error(
        "--device {0} needs --plane-interface: no interface of this machine has the address {1}"
    )]
    NoInterface(&'static str, SocketAddr),
    /// The interpreter of P4 programs is not in the folder of this program.
    #[error("--device p4 needs the program {}, which does not exist", .0.display())]
    NoInterpreter(PathBuf),
}

impl DeviceRefusal {
    /// Returns advice for the operator on how to fix the problem.
    pub const fn hint(&self) -> &'static str {
        match self {
            Self::Untrusted(_) => "use --plane-trusted where no other machines are on the network",
            Self::PortInUse(_) => "use --plane tcp or --plane ethernet with a device",
            Self::NotIpv4(_) => "name the address that peers reach, such as 10.0.0.1:7451",
            Self::BindFailed(..) => "stop the process that uses it, or choose another address",
            Self::NoInterface(..) => "name the interface, as `ip link` shows it",
            Self::NoInterpreter(_) => {
                "packages of Quorate contain it, and `cargo build --release --bin quorate-p4` builds it"
            }
        }
    }
}

/// Candidate devices of a node, with their sockets already bound.
#[derive(Debug)]
pub(crate) struct BoundCandidates {
    candidates: Vec<Candidate>,
    ruled_out: Vec<String>,
    members: GroupMembers,
}

/// Handles of a started device: the fallback list for the replica, the member feed, and the
/// descriptors that wake the reactor.
pub(crate) struct StartedDevice {
    pub(crate) fallback_source: Box<dyn DeviceSource>,
    pub(crate) member_feed: MemberFeed,
    pub(crate) wakeup: Arc<DeviceWakeup>,
}

impl BoundCandidates {
    /// Opens the candidates at the address of the peer listener.
    pub(crate) fn open(
        kind: &Kind,
        wanted: &PlaneSettings,
        peers: SocketAddr,
    ) -> Result<Option<Self>, DeviceRefusal> {
        if *kind == Kind::Off {
            return Ok(None);
        }
        if kind.name() == "p4" {
            p4_interpreter_path()?;
        }
        let mut bound = Self {
            candidates: Vec::new(),
            ruled_out: Vec::new(),
            members: GroupMembers::default(),
        };
        let by_udp = UdpCandidate::device_address(wanted, peers);
        let by_udp = if *kind == Kind::Udp { Ok(by_udp?) } else { by_udp };
        if !peers.ip().is_loopback() && !wanted.trusted {
            return Err(DeviceRefusal::Untrusted(kind.name()));
        }
        if *kind == Kind::Udp {
            let udp = UdpCandidate::bind(by_udp?, &bound.members)?;
            bound.candidates.push(Candidate::Udp(udp));
            return Ok(Some(bound));
        }
        let interface =
            interface_of(wanted, peers).ok_or(DeviceRefusal::NoInterface(kind.name(), peers))?;
        if interface == LOOPBACK_INTERFACE {
            // All members share this limit, since they reach each other on this interface.
            let why = "a machine does not hear its own frames, and this interface has no others";
            bound.ruled_out.push(format!("not by frames at {LOOPBACK_INTERFACE}: {why}"));
            match by_udp.and_then(|at| UdpCandidate::bind(at, &bound.members)) {
                Ok(udp) => {
                    let later = udp.without_socket();
                    let unused = bound.push_external(kind, ExternalTransport::Udp(udp));
                    bound.candidates.push(match unused {
                        Some(ExternalTransport::Udp(udp)) => Candidate::Udp(udp),
                        _ => Candidate::Udp(later),
                    });
                }
                Err(refused) => bound.ruled_out.push(format!("not by datagrams: {refused}")),
            }
            return Ok(Some(bound));
        }
        if !kind.hooks().is_empty() {
            let hooks = kind.hooks().to_vec();
            bound.candidates.push(Candidate::Kernel {
                interface: interface.clone(),
                hooks,
                hook: None,
            });
        }
        bound.push_external(kind, ExternalTransport::Frames(interface.clone()));
        bound.candidates.push(Candidate::Packet(interface));
        Ok(Some(bound))
    }

    /// Adds an external device that uses the transport `way`, if one is configured. Otherwise
    /// returns the transport.
    fn push_external(&mut self, kind: &Kind, way: ExternalTransport) -> Option<ExternalTransport> {
        let Kind::External(one) = kind else {
            return Some(way);
        };
        self.candidates.push(Candidate::External(one.clone(), way));
        None
    }

    /// Makes the fallback list ready for use.
    pub(crate) fn start(
        self,
        identity: &Identity,
        shared: Arc<ReactorMailbox>,
    ) -> io::Result<StartedDevice> {
        let waiting = Arc::new(DeviceWakeup::new(shared)?);
        let rungs = Candidates {
            remaining: self.candidates,
            ruled_out: self.ruled_out,
            cluster: identity.cluster,
            boot: identity.boot,
            wakeup: Arc::clone(&waiting),
            current_index: 0,
            started_device_count: 0,
        };
        Ok(StartedDevice {
            fallback_source: Box::new(rungs),
            member_feed: MemberFeed { members: self.members, last_addresses: Vec::new() },
            wakeup: waiting,
        })
    }
}

/// Removes devices that killed nodes of this cluster have left in this machine's kernel, regardless
/// of the device that this node uses ([offload-9]).
pub(crate) fn remove_orphaned_devices(cluster: u128) {
    match quorate_device::xdp::end_orphans(cluster_frame_number(cluster)) {
        Ok(ended) => {
            for folder in ended {
                tracing::info!("stopped the device of an earlier process: {}", folder.display());
            }
        }
        // A process without the right to list devices cannot have created any, either.
        Err(failed) => tracing::debug!("devices of earlier processes: {failed}"),
    }
}

/// Returns the number that distinguishes this cluster's frames from those of other clusters.
fn cluster_frame_number(cluster: u128) -> u32 {
    let bytes = cluster.to_le_bytes();
    let words = bytes.chunks_exact(4).map(|word| {
        let mut four = [0; 4];
        four.copy_from_slice(word);
        u32::from_le_bytes(four)
    });
    words.fold(0, |hash: u32, word| hash.rotate_left(5) ^ word)
}

/// Feed of the members with which a device exchanges frames.
#[derive(Debug)]
pub(crate) struct MemberFeed {
    members: GroupMembers,
    last_addresses: Vec<SocketAddrV4>,
}

impl MemberFeed {
    pub(crate) fn set_members(&mut self, peers: impl Iterator<Item = SocketAddrV4>) {
        let mut now: Vec<SocketAddrV4> = peers.collect();
        now.sort_unstable();
        if now != self.last_addresses {
            self.members.set(now.clone());
            self.last_addresses = now;
        }
    }
}

#[cfg(test)]
mod tests {
    use quorate_replica::status::PlaneKind;

    use super::{boxes::ExternalTransport as By, *};

    #[test]
    fn external_devices_have_names_and_commands() {
        let named = |name: &str| match Kind::from_name(name) {
            Some(Kind::External(one)) => Some((one.kind, one.command_line)),
            _ => None,
        };
        let (kind, words) = named("p4").unwrap();
        assert!(kind == "p4" && words.len() == 1 && words[0].ends_with("/quorate-p4"), "{words:?}");
        let words = vec!["a/{}/V{}".to_owned()];
        assert_eq!(named("rtl:a"), Some(("rtl", words)));
        let words = vec!["run".to_owned(), "--fast".to_owned()];
        assert_eq!(named("process: run  --fast"), Some(("process", words)));
        let words = vec!["/a b/run".to_owned(), "--in=c d".to_owned()];
        assert_eq!(named("process:'/a b/run' --in=\"c d\""), Some(("process", words)));
        for none in ["process:", "process: ", "p4:", "box", ""] {
            assert_eq!(named(none), None, "{none}");
        }
    }

    /// Without the external device, the node falls back to a thread that receives the same frames.
    #[test]
    fn external_device_is_tried_before_a_thread() {
        let kind = Kind::from_name("process:none").unwrap();
        let bound = BoundCandidates::open(
            &kind,
            &wanted(PlaneKind::Tcp, false),
            "127.0.0.1:0".parse().unwrap(),
        );
        let rungs = bound.unwrap().unwrap().candidates;
        assert!(matches!(rungs[..], [Candidate::External(_, By::Udp(_)), Candidate::Udp(_)]));
    }

    fn wanted(way: PlaneKind, trusted: bool) -> PlaneSettings {
        PlaneSettings { plane_kind: way, trusted, ..PlaneSettings::default() }
    }

    #[test]
    fn impossible_settings_are_refused_with_a_reason() {
        let open = |way, trusted, at: &str| {
            let at = at.parse().unwrap();
            BoundCandidates::open(&Kind::Udp, &wanted(way, trusted), at)
        };
        let refused = |opened: Result<Option<BoundCandidates>, DeviceRefusal>| {
            opened.unwrap_err().to_string()
        };
        assert!(refused(open(PlaneKind::Udp, true, "127.0.0.1:0")).contains("--plane udp"));
        assert!(refused(open(PlaneKind::Tcp, true, "[::1]:0")).contains("IPv4"));
        assert!(refused(open(PlaneKind::Tcp, true, "0.0.0.0:7451")).contains("IPv4"));
        assert!(
            refused(open(PlaneKind::Tcp, false, "192.0.2.1:7451")).contains("vote as a member")
        );
        assert!(open(PlaneKind::Tcp, false, "127.0.0.1:0").unwrap().is_some());
        let by_frames = BoundCandidates::open(
            &Kind::Kernel,
            &wanted(PlaneKind::Udp, false),
            "127.0.0.1:0".parse().unwrap(),
        );
        let by_frames = by_frames.unwrap().unwrap();
        assert!(by_frames.candidates.is_empty() && by_frames.ruled_out[1].contains("--plane udp"));
        let nowhere = BoundCandidates::open(
            &Kind::Packet,
            &wanted(PlaneKind::Tcp, true),
            "0.0.0.0:7451".parse().unwrap(),
        );
        assert!(nowhere.unwrap_err().to_string().contains("--plane-interface"));
        let p4 = Kind::from_name("p4").unwrap();
        let p4 = BoundCandidates::open(
            &p4,
            &wanted(PlaneKind::Tcp, false),
            "127.0.0.1:0".parse().unwrap(),
        );
        let p4 = p4.unwrap_err();
        assert!(p4.to_string().contains("/quorate-p4") && p4.hint().contains("--bin quorate-p4"));
        let off = BoundCandidates::open(
            &Kind::Off,
            &wanted(PlaneKind::Udp, false),
            "[::1]:0".parse().unwrap(),
        );
        assert!(off.unwrap().is_none());
    }

    #[test]
    fn different_clusters_use_different_groups() {
        assert_ne!(cluster_frame_number(1), cluster_frame_number(1 << 64));
        assert_ne!(cluster_frame_number(1), cluster_frame_number(2));
    }
}
