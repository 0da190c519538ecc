//! Device in the kernel, accessed through its owner's port. It responds to frames exactly as the
//! reference programs do.

use std::{
    os::fd::{AsFd as _, BorrowedFd},
    path::Path,
    sync::{Arc, Mutex, PoisonError},
};

use aya::{
    Ebpf, EbpfLoader, VerifierLogLevel,
    maps::{Array, ArrayOfMaps, Map, MapData, PerCpuArray, RingBuf},
    programs::{ProgramInfo, SchedClassifier, TestRun as _, TestRunOptions, Xdp},
    util::nr_cpus,
};
use quorate_offload::{port::FrameOrigin, reason::COUNTERS};

use crate::xdp::{
    Settings, XdpError,
    drain::{DrainMaps, DrainWait},
    object,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    Acceptor,
    Coordinator,
    Host,
}

impl Role {
    pub const ALL: [Self; 3] = [Self::Acceptor, Self::Coordinator, Self::Host];

    /// Returns the role's name as used in file names.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Acceptor => "acceptor",
            Self::Coordinator => "coordinator",
            Self::Host => "host",
        }
    }

    const fn program_flags(self) -> u32 {
        match self {
            Self::Acceptor | Self::Coordinator => 1,
            Self::Host => 2,
        }
    }
}

/// Entry point at which a frame is passed to the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryPoint {
    /// The network's port through XDP, native or generic.
    Network,
    /// The network's port through tc.
    NetworkByTc,
    /// The owner's port. Only a process with a descriptor of the program can make the kernel run it
    /// there.
    Owner,
}

impl EntryPoint {
    pub const ALL: [Self; 3] = [Self::Network, Self::NetworkByTc, Self::Owner];

    /// Returns the name of the program in the object, which is also the name of its pin.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Network => "network",
            Self::NetworkByTc => "traffic",
            Self::Owner => "owner",
        }
    }

    /// Interprets the return code of the program.
    fn decode_fate(self, code: u32) -> Result<FrameFate, XdpError> {
        Ok(match (self, code) {
            (Self::Network, 1) | (Self::NetworkByTc, 2) | (Self::Owner, 1) => FrameFate::Consumed,
            (Self::Network, 2) | (Self::NetworkByTc, 0) | (Self::Owner, 0) => FrameFate::PassedOn,
            (Self::Network, 3) | (Self::NetworkByTc, 7) | (Self::Owner, 2) => FrameFate::ToNetwork,
            (Self::Owner, 3) => FrameFate::ToOwner,
            _ => return Err(XdpError::UnknownFate(code)),
        })
    }
}

/// Outcome of passing an owner's frame to a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameFate {
    /// The device passed the frame on to the other port, unchanged.
    PassedOn,
    /// The device consumed the frame.
    Consumed,
    /// The buffer now contains a frame for the network.
    ToNetwork,
    /// The buffer now contains a frame for the owner.
    ToOwner,
}

/// Programs that this process has loaded, or that it found pinned by another process.
pub(crate) enum LoadedPrograms {
    Loaded(Ebpf),
    Pinned { network: Box<Xdp>, owner: Box<Xdp>, traffic: Box<SchedClassifier> },
}

impl LoadedPrograms {
    fn xdp_program(&self, entry: EntryPoint) -> Result<&Xdp, XdpError> {
        Ok(match self {
            Self::Loaded(loaded) => {
                let program = loaded.program(entry.name()).ok_or(XdpError::MismatchedAnswer)?;
                program.try_into()?
            }
            Self::Pinned { network, .. } if entry == EntryPoint::Network => network,
            Self::Pinned { owner, .. } => owner,
        })
    }

    fn tc_program(&self) -> Result<&SchedClassifier, XdpError> {
        Ok(match self {
            Self::Loaded(loaded) => {
                let name = EntryPoint::NetworkByTc.name();
                let program = loaded.program(name).ok_or(XdpError::MismatchedAnswer)?;
                program.try_into()?
            }
            Self::Pinned { traffic, .. } => traffic,
        })
    }

    pub(crate) fn xdp_mut(&mut self) -> Result<&mut Xdp, XdpError> {
        Ok(match self {
            Self::Loaded(loaded) => {
                let name = EntryPoint::Network.name();
                let program = loaded.program_mut(name).ok_or(XdpError::MismatchedAnswer)?;
                program.try_into()?
            }
            Self::Pinned { network, .. } => network,
        })
    }

    pub(crate) fn traffic_mut(&mut self) -> Result<&mut SchedClassifier, XdpError> {
        Ok(match self {
            Self::Loaded(loaded) => {
                let name = EntryPoint::NetworkByTc.name();
                let program = loaded.program_mut(name).ok_or(XdpError::MismatchedAnswer)?;
                program.try_into()?
            }
            Self::Pinned { traffic, .. } => traffic,
        })
    }
}

pub struct Device {
    pub(crate) role: Role,
    pub(crate) settings: Settings,
    pub(crate) programs: LoadedPrograms,
    pub(crate) tap: RingBuf<MapData>,
    pub(crate) reason_counters: PerCpuArray<MapData, CpuCounters>,
    pub(crate) drain: Arc<Mutex<DrainMaps>>,
    /// Maps to be pinned. Empty if they already are.
    pub(crate) maps_to_pin: Vec<(&'static str, MapData)>,
}

/// `struct counters` of `device.h`: one counter per reason, then the number of frames that did not
/// fit into the tap.
pub(crate) type CpuCounters = [u64; COUNTERS + 1];

/// Name of the map of the tap, the queue of frames for the owner. The owner's process uses this map
/// and the ones below.
pub(crate) const TAP_MAP: &str = "tap";
pub(crate) const COUNTED_MAP: &str = "counted";
pub(crate) const DRAINED_MAP: &str = "drained";
pub(crate) const NOTHING_MAP: &str = "nothing";
/// Name of the map that contains the settings.
pub(crate) const SETUP_MAP: &str = ".rodata";

impl Device {
    /// Loads a device into the kernel. The device is not attached, has no boot, and is not armed.
    pub fn load(role: Role, settings: &Settings) -> Result<Self, XdpError> {
        Self::load_object(role, settings, object::object_of(role), VerifierLogLevel::default())
    }

    /// Loads a given object, for tests with injected faults.
    pub fn load_object(
        role: Role,
        settings: &Settings,
        object: &[u8],
        log: VerifierLogLevel,
    ) -> Result<Self, XdpError> {
        settings.validate()?;
        let room =
            u32::try_from(settings.setup.room).map_err(|_| XdpError::InvalidRoom(usize::MAX))?;
        let object = object::resize_rooms(object, room)?;
        let cpus =
            nr_cpus().map_err(|(what, error)| XdpError::Io { what: what.to_owned(), error })?;
        let setup = settings.bytes(u32::try_from(cpus).unwrap_or(u32::MAX));
        let mut loaded = EbpfLoader::new()
            .verifier_log_level(log)
            .override_global("setup", &setup, true)
            .map_max_entries("cells", settings.cells * role.program_flags())
            .map_max_entries("rooms", settings.cells * role.program_flags())
            .map_max_entries(TAP_MAP, settings.tap_bytes)
            .load(&object)?;
        for entry in EntryPoint::ALL {
            let name = entry.name();
            let program = loaded.program_mut(name);
            let program =
                program.ok_or_else(|| XdpError::MalformedObject(format!("no program {name}")))?;
            match entry {
                EntryPoint::NetworkByTc => <&mut SchedClassifier>::try_from(program)?.load()?,
                EntryPoint::Network | EntryPoint::Owner => <&mut Xdp>::try_from(program)?.load()?,
            }
        }
        let mut handles = Vec::new();
        let mut map = |name: &'static str| {
            let map = loaded.take_map(name);
            let map = map.ok_or_else(|| XdpError::MalformedObject(format!("no map {name}")))?;
            handles.push((name, reopen_map(&map)?));
            Ok::<Map, XdpError>(map)
        };
        // This map is only needed for pinning.
        map(SETUP_MAP)?;
        Ok(Self {
            role,
            settings: settings.clone(),
            tap: RingBuf::try_from(map(TAP_MAP)?)?,
            reason_counters: PerCpuArray::try_from(map(COUNTED_MAP)?)?,
            drain: DrainMaps::new(
                ArrayOfMaps::try_from(map(DRAINED_MAP)?)?,
                Array::try_from(map(NOTHING_MAP)?)?,
            ),
            maps_to_pin: handles,
            programs: LoadedPrograms::Loaded(loaded),
        })
    }

    pub const fn role(&self) -> Role {
        self.role
    }

    /// Returns the settings with which the device was loaded.
    pub const fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Returns the kernel's information about the program of an entry point, such as its
    /// instructions and run time.
    pub fn program_info(&self, entry: EntryPoint) -> Result<ProgramInfo, XdpError> {
        Ok(match entry {
            EntryPoint::NetworkByTc => self.programs.tc_program()?.info()?,
            EntryPoint::Network | EntryPoint::Owner => self.programs.xdp_program(entry)?.info()?,
        })
    }

    /// Runs a program on a frame, which is replaced in the buffer by the resulting frame. If a
    /// frame for the network is also addressed to the owner, the tap gets a copy. May be called
    /// concurrently. Like a driver, the kernel refuses frames shorter than an Ethernet header.
    pub fn run_program(
        &self,
        entry: EntryPoint,
        frame: &mut Vec<u8>,
    ) -> Result<FrameFate, XdpError> {
        self.run_repeatedly(entry, frame, 1)
    }

    /// Runs a program repeatedly on the same buffer, which it modifies. For measurements only.
    pub fn run_repeatedly(
        &self,
        entry: EntryPoint,
        frame: &mut Vec<u8>,
        times: u32,
    ) -> Result<FrameFate, XdpError> {
        let input = frame.clone();
        let options = TestRunOptions {
            data_in: Some(&input),
            data_out: Some(frame),
            repeat: times,
            ..TestRunOptions::default()
        };
        let result = match entry {
            EntryPoint::NetworkByTc => self.programs.tc_program()?.test_run(options)?,
            EntryPoint::Network | EntryPoint::Owner => {
                self.programs.xdp_program(entry)?.test_run(options)?
            }
        };
        frame.truncate(usize::try_from(result.data_size_out).unwrap_or(usize::MAX));
        entry.decode_fate(result.return_value)
    }

    /// Passes the oldest frame in the tap to `read`. Returns false if the tap is empty. Makes no
    /// system call.
    pub fn read_tapped(&mut self, mut read: impl FnMut(FrameOrigin, &[u8])) -> bool {
        let Some(record) = self.tap.next() else {
            return false;
        };
        // A record consists of the frame's length, its origin, and the frame.
        if let Some((length, rest)) = record.split_first_chunk::<4>()
            && let Some((came, rest)) = rest.split_first_chunk::<4>()
        {
            let length = usize::try_from(u32::from_ne_bytes(*length)).unwrap_or(usize::MAX);
            if let Some(frame) = rest.get(..length) {
                read(origin_from_code(u32::from_ne_bytes(*came)), frame);
            }
        }
        true
    }

    /// Returns a descriptor that is readable while the tap is not empty.
    pub fn tap_readable_fd(&self) -> BorrowedFd<'_> {
        self.tap.as_fd()
    }

    /// Returns the number of frames per [`Reason`](quorate_offload::Reason), summed over all CPUs
    /// and programs. The last element counts frames that did not fit into the tap.
    pub fn counters(&self) -> Result<[u64; COUNTERS + 1], XdpError> {
        let mut sum = [0; COUNTERS + 1];
        for program in 0..self.role.program_flags() {
            for cpu in self.reason_counters.get(&program, 0)?.iter() {
                for (sum, one) in sum.iter_mut().zip(cpu) {
                    *sum += one;
                }
            }
        }
        Ok(sum)
    }

    /// [offload-14] Returns the number of frames that were counted but did not fit into the tap.
    /// The owner must read their cells before it raises the floor past them.
    pub fn tap_lost_count(&self) -> Result<u64, XdpError> {
        Ok(self.counters()?[COUNTERS])
    }

    /// Pins the maps that an owner's process uses. The programs hold references to the other maps.
    pub(crate) fn pin_maps(&self, folder: &Path) -> Result<(), XdpError> {
        for (name, map) in &self.maps_to_pin {
            // The name of a pin must not contain a dot.
            map.pin(folder.join(name.trim_start_matches('.')))?;
        }
        Ok(())
    }

    /// [offload-8] Starts waiting until all handlers that are running now have ended, which may
    /// take some milliseconds.
    pub fn start_drain(&self) -> DrainWait {
        DrainWait::start(Arc::clone(&self.drain))
    }

    /// [offload-8] Waits until all handlers that are running now have ended.
    pub fn drain_blocking(&self) -> Result<(), XdpError> {
        self.drain.lock().unwrap_or_else(PoisonError::into_inner).wait_for_programs()
    }
}

/// Converts the programs' `enum came`. An unexpected value counts as [`FrameOrigin::Network`].
const fn origin_from_code(came: u32) -> FrameOrigin {
    match came {
        1 => FrameOrigin::NetworkResponse,
        2 => FrameOrigin::LocalResponse,
        _ => FrameOrigin::Network,
    }
}

/// Opens another handle to the same map.
fn reopen_map(map: &Map) -> Result<MapData, XdpError> {
    let (Map::RingBuf(data) | Map::PerCpuArray(data) | Map::ArrayOfMaps(data) | Map::Array(data)) =
        map
    else {
        return Err(XdpError::MalformedObject("a map of another kind".to_owned()));
    };
    let file = data.fd().as_fd().try_clone_to_owned();
    let file =
        file.map_err(|error| XdpError::Io { what: "a map of the device".to_owned(), error })?;
    Ok(MapData::from_fd(file)?)
}
