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

use quorate_device::Members;
use quorate_device::xdp::Hook;
use quorate_replica::DeviceSource;

use crate::{
    handle::Shared,
    identity::Identity,
    plane::{
        Wanted,
        sockets::{LOOPBACK, interface_of},
    },
};
use boxes::ExternalTransport;
use by_udp::UdpCandidate;
use ladder::{Candidate, Candidates};
pub(crate) use waiting::DeviceWakeup;

/// Number of slots that each device program stores.
const CELLS: u32 = 1 << 12;
/// Maximum payload of a frame in bytes. With all headers it takes 1512 bytes, and 1526 on Ethernet.
const PAYLOAD_BYTES_MAX: usize = 1408;
/// Maximum number of frames that a device running as a thread may queue for the reactor.
const TAP_FRAMES: usize = 1 << 13;

/// Name of the program that interprets this project's P4 programs, for `--device p4`.
const INTERPRETER: &str = "quorate-p4";

/// Returns the path of the interpreter of P4 programs, in the folder of the running program.
pub fn interpreter() -> Result<PathBuf, Refused> {
    let path = env::current_exe().unwrap_or_default().with_file_name(INTERPRETER);
    if path.is_file() { Ok(path) } else { Err(Refused::NoInterpreter(path)) }
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
    Box(ExternalDevice),
}

/// An external device: two processes that turn received frames into frames to send, in place of
/// hardware that does the same.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ExternalDevice {
    kind: &'static str,
    /// Command line. The program name replaces every `{}`, or is appended if there is none.
    words: Vec<String>,
}

impl ExternalDevice {
    /// Parses `process:COMMAND`, `rtl:FOLDER` (built by Verilator), or `p4` ([`interpreter`]).
    fn named(name: &str) -> Option<Self> {
        let (kind, words) = match name.split_once(':') {
            None if name == "p4" => {
                let path = env::current_exe().ok()?.with_file_name(INTERPRETER);
                ("p4", vec![path.to_str()?.to_owned()])
            }
            Some(("rtl", folder)) => ("rtl", vec![format!("{folder}/{{}}/V{{}}")]),
            Some(("process", command)) => ("process", words(command)),
            _ => return None,
        };
        (!words.is_empty()).then_some(Self { kind, words })
    }
}

/// Splits a command at whitespace outside quotes.
fn words(command: &str) -> Vec<String> {
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
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "off" => Some(Self::Off),
            "udp" => Some(Self::Udp),
            "packet" => Some(Self::Packet),
            "kernel" => Some(Self::Kernel),
            "tc" => Some(Self::Tc),
            name => ExternalDevice::named(name).map(Self::Box),
        }
    }

    /// Returns the kind with all programs of an external device run as arguments of `launcher`.
    #[must_use]
    pub fn with_launcher(self, launcher: &[String]) -> Self {
        match self {
            Self::Box(ExternalDevice { kind, words }) => {
                Self::Box(ExternalDevice { kind, words: [launcher, &words].concat() })
            }
            other => other,
        }
    }

    /// Returns the name of the kind, as used in settings.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Box(one) => one.kind,
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
            Self::Off | Self::Udp | Self::Packet | Self::Box(_) => &[],
        }
    }
}

/// Reason why the configured device cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// The device's frames carry no keys, and other machines can reach the address.
    #[error(
        "--device {0} has no keys, and other machines can reach this address: anyone who can send frames there could vote as a member"
    )]
    Untrusted(&'static str),
    /// The packet plane's datagrams already use the port.
    #[error("--device udp and --plane {0} both need the UDP port of --peer")]
    PortTaken(&'static str),
    /// The address is not IPv4, the only version that the frames support.
    #[error("--device udp needs one specific IPv4 address at --peer, not {0}")]
    Address(SocketAddr),
    /// The port for the device's datagrams cannot be bound.
    #[error("cannot bind the UDP port of --peer {0}: {1}")]
    Bind(SocketAddr, io::Error),
    /// No interface, or more than one, has the peer address.
    #[error(
        "--device {0} needs --plane-interface: no interface of this machine has the address {1}"
    )]
    NoInterface(&'static str, SocketAddr),
    /// The interpreter of P4 programs is not in the folder of this program.
    #[error("--device p4 needs the program {}, which does not exist", .0.display())]
    NoInterpreter(PathBuf),
}

impl Refused {
    /// Returns advice for the operator on how to fix the problem.
    pub const fn hint(&self) -> &'static str {
        match self {
            Self::Untrusted(_) => "use --plane-trusted where no other machines are on the network",
            Self::PortTaken(_) => "use --plane tcp or --plane ethernet with a device",
            Self::Address(_) => "name the address that peers reach, such as 10.0.0.1:7451",
            Self::Bind(..) => "stop the process that uses it, or choose another address",
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
    rungs: Vec<Candidate>,
    not: Vec<String>,
    members: Members,
}

/// Handles of a started device: the fallback list for the replica, the member feed, and the
/// descriptors that wake the reactor.
pub(crate) struct StartedDevice {
    pub(crate) ladder: Box<dyn DeviceSource>,
    pub(crate) following: MemberFeed,
    pub(crate) wakeup: Arc<DeviceWakeup>,
}

impl BoundCandidates {
    /// Opens the candidates at the address of the peer listener.
    pub(crate) fn open(
        kind: &Kind,
        wanted: &Wanted,
        peers: SocketAddr,
    ) -> Result<Option<Self>, Refused> {
        if *kind == Kind::Off {
            return Ok(None);
        }
        if kind.name() == "p4" {
            interpreter()?;
        }
        let mut bound = Self { rungs: Vec::new(), not: Vec::new(), members: Members::default() };
        let by_udp = UdpCandidate::place(wanted, peers);
        let by_udp = if *kind == Kind::Udp { Ok(by_udp?) } else { by_udp };
        if !peers.ip().is_loopback() && !wanted.trusted {
            return Err(Refused::Untrusted(kind.name()));
        }
        if *kind == Kind::Udp {
            let udp = UdpCandidate::bind(by_udp?, &bound.members)?;
            bound.rungs.push(Candidate::Udp(udp));
            return Ok(Some(bound));
        }
        let interface =
            interface_of(wanted, peers).ok_or(Refused::NoInterface(kind.name(), peers))?;
        if interface == LOOPBACK {
            // All members share this limit, since they reach each other on this interface.
            let why = "a machine does not hear its own frames, and this interface has no others";
            bound.not.push(format!("not by frames at {LOOPBACK}: {why}"));
            match by_udp.and_then(|at| UdpCandidate::bind(at, &bound.members)) {
                Ok(udp) => {
                    let later = udp.later();
                    let unused = bound.push_box(kind, ExternalTransport::Udp(udp));
                    bound.rungs.push(match unused {
                        Some(ExternalTransport::Udp(udp)) => Candidate::Udp(udp),
                        _ => Candidate::Udp(later),
                    });
                }
                Err(refused) => bound.not.push(format!("not by datagrams: {refused}")),
            }
            return Ok(Some(bound));
        }
        if !kind.hooks().is_empty() {
            let hooks = kind.hooks().to_vec();
            bound.rungs.push(Candidate::Kernel { interface: interface.clone(), hooks, hook: None });
        }
        bound.push_box(kind, ExternalTransport::Frames(interface.clone()));
        bound.rungs.push(Candidate::Packet(interface));
        Ok(Some(bound))
    }

    /// Adds an external device that uses the transport `way`, if one is configured. Otherwise
    /// returns the transport.
    fn push_box(&mut self, kind: &Kind, way: ExternalTransport) -> Option<ExternalTransport> {
        let Kind::Box(one) = kind else {
            return Some(way);
        };
        self.rungs.push(Candidate::Box(one.clone(), way));
        None
    }

    /// Makes the fallback list ready for use.
    pub(crate) fn start(
        self,
        identity: &Identity,
        shared: Arc<Shared>,
    ) -> io::Result<StartedDevice> {
        let waiting = Arc::new(DeviceWakeup::new(shared)?);
        let rungs = Candidates {
            rungs: self.rungs,
            not: self.not,
            cluster: identity.cluster,
            boot: identity.boot,
            wakeup: Arc::clone(&waiting),
            current_index: 0,
            devices_started: 0,
        };
        Ok(StartedDevice {
            ladder: Box::new(rungs),
            following: MemberFeed { members: self.members, last_addresses: Vec::new() },
            wakeup: waiting,
        })
    }
}

/// Removes devices that killed nodes of this cluster have left in this machine's kernel, regardless
/// of the device that this node uses ([offload-9]).
pub(crate) fn end_orphans(cluster: u128) {
    match quorate_device::xdp::end_orphans(group_of(cluster)) {
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
fn group_of(cluster: u128) -> u32 {
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
    members: Members,
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
    use quorate_replica::status::Way;

    use super::{boxes::ExternalTransport as By, *};

    #[test]
    fn external_devices_have_names_and_commands() {
        let named = |name: &str| match Kind::named(name) {
            Some(Kind::Box(one)) => Some((one.kind, one.words)),
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
        let kind = Kind::named("process:none").unwrap();
        let bound =
            BoundCandidates::open(&kind, &wanted(Way::Tcp, false), "127.0.0.1:0".parse().unwrap());
        let rungs = bound.unwrap().unwrap().rungs;
        assert!(matches!(rungs[..], [Candidate::Box(_, By::Udp(_)), Candidate::Udp(_)]));
    }

    fn wanted(way: Way, trusted: bool) -> Wanted {
        Wanted { way, trusted, ..Wanted::default() }
    }

    #[test]
    fn impossible_settings_are_refused_with_a_reason() {
        let open = |way, trusted, at: &str| {
            let at = at.parse().unwrap();
            BoundCandidates::open(&Kind::Udp, &wanted(way, trusted), at)
        };
        let refused =
            |opened: Result<Option<BoundCandidates>, Refused>| opened.unwrap_err().to_string();
        assert!(refused(open(Way::Udp, true, "127.0.0.1:0")).contains("--plane udp"));
        assert!(refused(open(Way::Tcp, true, "[::1]:0")).contains("IPv4"));
        assert!(refused(open(Way::Tcp, true, "0.0.0.0:7451")).contains("IPv4"));
        assert!(refused(open(Way::Tcp, false, "192.0.2.1:7451")).contains("vote as a member"));
        assert!(open(Way::Tcp, false, "127.0.0.1:0").unwrap().is_some());
        let by_frames = BoundCandidates::open(
            &Kind::Kernel,
            &wanted(Way::Udp, false),
            "127.0.0.1:0".parse().unwrap(),
        );
        let by_frames = by_frames.unwrap().unwrap();
        assert!(by_frames.rungs.is_empty() && by_frames.not[1].contains("--plane udp"));
        let nowhere = BoundCandidates::open(
            &Kind::Packet,
            &wanted(Way::Tcp, true),
            "0.0.0.0:7451".parse().unwrap(),
        );
        assert!(nowhere.unwrap_err().to_string().contains("--plane-interface"));
        let p4 = Kind::named("p4").unwrap();
        let p4 =
            BoundCandidates::open(&p4, &wanted(Way::Tcp, false), "127.0.0.1:0".parse().unwrap());
        let p4 = p4.unwrap_err();
        assert!(p4.to_string().contains("/quorate-p4") && p4.hint().contains("--bin quorate-p4"));
        let off =
            BoundCandidates::open(&Kind::Off, &wanted(Way::Udp, false), "[::1]:0".parse().unwrap());
        assert!(off.unwrap().is_none());
    }

    #[test]
    fn different_clusters_use_different_groups() {
        assert_ne!(group_of(1), group_of(1 << 64));
        assert_ne!(group_of(1), group_of(2));
    }
}
