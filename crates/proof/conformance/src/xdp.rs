//! Kernel programs, loaded into the running kernel and invoked directly.

use std::path::{Path, PathBuf};

use quorate_device::xdp::{EntryPoint, FrameFate, Role, Settings, VerifierLogLevel, XdpError};
use quorate_offload::{Port, link::ETHER_TYPE};

use crate::{
    Device, Event, Program,
    frames::{CELL_COUNT, ProgramRoutes, setup},
    vectors::SentFrame,
};

/// Returns the folder that contains the committed kernel programs.
pub fn programs_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../devices/programs/xdp/bpf")
}

/// Returns the settings for a program. They are the same for all targets.
pub fn device_settings(program: Program) -> Settings {
    let ways = ProgramRoutes::for_program(program);
    let settings = Settings::from_routes(setup(), &ways.votes, &ways.proposals, &ways.decisions);
    Settings {
        cells: u32::try_from(CELL_COUNT).expect("few"),
        tap_bytes: 1 << 16,
        ..settings.expect("one route of each kind")
    }
}

/// Returns the reason why this machine forbids loading programs; `None` if it does not.
pub fn unavailable_reason() -> Option<String> {
    let loaded =
        quorate_device::xdp::Device::load(Role::Acceptor, &device_settings(Program::Acceptor));
    match loaded {
        Ok(_) => None,
        // Any error other than a missing permission is a bug.
        Err(failed) => failed.is_unsupported().then(|| failed.to_string()),
    }
}

const fn device_role(program: Program) -> Role {
    match program {
        Program::Acceptor => Role::Acceptor,
        Program::Coordinator => Role::Coordinator,
        Program::Host => Role::Host,
    }
}

/// Device in the kernel, with the hook at which it receives frames from the network.
pub struct KernelDevice {
    program: Program,
    hook: EntryPoint,
    /// Object file that is loaded instead of the committed programs.
    object_file: Option<Vec<u8>>,
    device: quorate_device::xdp::Device,
}

impl KernelDevice {
    /// Loads the programs. `object` is an object file with a planted fault, if any.
    pub fn new(
        program: Program,
        hook: EntryPoint,
        object: Option<Vec<u8>>,
    ) -> Result<Self, String> {
        let device =
            load_program(program, object.as_deref()).map_err(|failed| failed.to_string())?;
        Ok(Self { program, hook, object_file: object, device })
    }
}

fn load_program(
    program: Program,
    object: Option<&[u8]>,
) -> Result<quorate_device::xdp::Device, XdpError> {
    let (role, settings) = (device_role(program), device_settings(program));
    match object {
        None => quorate_device::xdp::Device::load(role, &settings),
        Some(object) => {
            let log = VerifierLogLevel::default();
            quorate_device::xdp::Device::load_object(role, &settings, object, log)
        }
    }
}

const ETHERNET_BYTES: usize = 14;
/// Total length of an Ethernet header and an IPv4 header, in bytes.
const ETHERNET_IPV4_BYTES: usize = 34;

/// Makes a frame acceptable for a test run of the kernel: pads it to an Ethernet header and, for
/// tc, one more byte, and replaces the EtherType of a truncated IPv4 header. The result is too
/// short for the program, like the original.
fn pad_for_test_run(frame: &[u8], hook: EntryPoint) -> Vec<u8> {
    let mut frame = frame.to_vec();
    if frame.len() < ETHERNET_BYTES {
        frame.resize(ETHERNET_BYTES - 2, 0);
        frame.extend(ETHER_TYPE.to_be_bytes());
    }
    if hook == EntryPoint::NetworkByTc {
        if frame.len() < ETHERNET_IPV4_BYTES && frame[12..14] == [8, 0] {
            frame[12..14].copy_from_slice(&ETHER_TYPE.to_be_bytes());
        }
        if frame.len() == ETHERNET_BYTES {
            frame.push(0);
        }
    }
    frame
}

impl Device for KernelDevice {
    fn step(&mut self, event: &Event) -> Result<Vec<SentFrame>, String> {
        let text = |failed: XdpError| failed.to_string();
        let Event::Frame(port, frame) = event else {
            // A power loss removes the programs and maps.
            self.device = load_program(self.program, self.object_file.as_deref()).map_err(text)?;
            return Ok(Vec::new());
        };
        let entry = match port {
            Port::Network => self.hook,
            Port::Owner => EntryPoint::Owner,
        };
        let length = frame.len();
        let mut frame = pad_for_test_run(frame, entry);
        let fate = self.device.run_program(entry, &mut frame).map_err(text)?;
        frame.truncate(length.max(ETHERNET_BYTES));
        let mut sent = match fate {
            FrameFate::Consumed => Vec::new(),
            FrameFate::PassedOn => vec![(port.opposite(), frame)],
            FrameFate::ToNetwork => vec![(Port::Network, frame)],
            FrameFate::ToOwner => vec![(Port::Owner, frame)],
        };
        while self.device.read_tapped(|_, frame| sent.push((Port::Owner, frame.to_vec()))) {}
        Ok(sent)
    }
}
