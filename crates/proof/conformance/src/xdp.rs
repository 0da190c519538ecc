//! Kernel programs, loaded into the running kernel and invoked directly.

use std::path::{Path, PathBuf};

use quorate_device::xdp::{Entry, Failed, Fate, Role, Settings, VerifierLogLevel};
use quorate_offload::{Port, link::ETHER_TYPE};

use crate::{
    Device, Event, Program,
    frames::{CELLS, ProgramRoutes, setup},
    vectors::Sent,
};

/// Returns the folder that contains the committed kernel programs.
pub fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../devices/programs/xdp/bpf")
}

/// Returns the settings for a program. They are the same for all targets.
pub fn settings(program: Program) -> Settings {
    let ways = ProgramRoutes::of(program);
    let settings = Settings::of(setup(), &ways.votes, &ways.proposals, &ways.decisions);
    Settings {
        cells: u32::try_from(CELLS).expect("few"),
        tap: 1 << 16,
        ..settings.expect("one route of each kind")
    }
}

/// Returns the reason why this machine forbids loading programs; `None` if it does not.
pub fn missing() -> Option<String> {
    let loaded = quorate_device::xdp::Device::load(Role::Acceptor, &settings(Program::Acceptor));
    match loaded {
        Ok(_) => None,
        // Any error other than a missing permission is a bug.
        Err(failed) => failed.is_forbidden().then(|| failed.to_string()),
    }
}

const fn role(program: Program) -> Role {
    match program {
        Program::Acceptor => Role::Acceptor,
        Program::Coordinator => Role::Coordinator,
        Program::Host => Role::Host,
    }
}

/// Device in the kernel, with the hook at which it receives frames from the network.
pub struct Kernel {
    program: Program,
    hook: Entry,
    /// Object file that is loaded instead of the committed programs.
    object: Option<Vec<u8>>,
    device: quorate_device::xdp::Device,
}

impl Kernel {
    /// Loads the programs. `object` is an object file with a planted fault, if any.
    pub fn new(program: Program, hook: Entry, object: Option<Vec<u8>>) -> Result<Self, String> {
        let device = load(program, object.as_deref()).map_err(|failed| failed.to_string())?;
        Ok(Self { program, hook, object, device })
    }
}

fn load(program: Program, object: Option<&[u8]>) -> Result<quorate_device::xdp::Device, Failed> {
    let (role, settings) = (role(program), settings(program));
    match object {
        None => quorate_device::xdp::Device::load(role, &settings),
        Some(object) => {
            let log = VerifierLogLevel::default();
            quorate_device::xdp::Device::load_object(role, &settings, object, log)
        }
    }
}

const ETHERNET: usize = 14;
/// Total length of an Ethernet header and an IPv4 header, in bytes.
const IPV4: usize = 34;

/// Makes a frame acceptable for a test run of the kernel: pads it to an Ethernet header and, for
/// tc, one more byte, and replaces the EtherType of a truncated IPv4 header. The result is too
/// short for the program, like the original.
fn whole_enough(frame: &[u8], hook: Entry) -> Vec<u8> {
    let mut frame = frame.to_vec();
    if frame.len() < ETHERNET {
        frame.resize(ETHERNET - 2, 0);
        frame.extend(ETHER_TYPE.to_be_bytes());
    }
    if hook == Entry::Traffic {
        if frame.len() < IPV4 && frame[12..14] == [8, 0] {
            frame[12..14].copy_from_slice(&ETHER_TYPE.to_be_bytes());
        }
        if frame.len() == ETHERNET {
            frame.push(0);
        }
    }
    frame
}

impl Device for Kernel {
    fn step(&mut self, event: &Event) -> Result<Vec<Sent>, String> {
        let text = |failed: Failed| failed.to_string();
        let Event::Frame(port, frame) = event else {
            // A power loss removes the programs and maps.
            self.device = load(self.program, self.object.as_deref()).map_err(text)?;
            return Ok(Vec::new());
        };
        let entry = match port {
            Port::Network => self.hook,
            Port::Owner => Entry::Owner,
        };
        let length = frame.len();
        let mut frame = whole_enough(frame, entry);
        let fate = self.device.put(entry, &mut frame).map_err(text)?;
        frame.truncate(length.max(ETHERNET));
        let mut sent = match fate {
            Fate::Taken => Vec::new(),
            Fate::Passed => vec![(port.other(), frame)],
            Fate::ToNetwork => vec![(Port::Network, frame)],
            Fate::ToOwner => vec![(Port::Owner, frame)],
        };
        while self.device.tapped(|_, frame| sent.push((Port::Owner, frame.to_vec()))) {}
        Ok(sent)
    }
}
