//! Pins: a device outlives its owner, and the next owner finds it ([offload-8], [offload-9]).
//!
//! Each interface, group and role has a folder in the BPF file system. A device found there is
//! still voting, so it is fenced and read out before anything else. An incomplete folder is
//! removed.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use aya::{
    maps::{Array, ArrayOfMaps, Map, MapData, PerCpuArray, RingBuf},
    programs::{
        SchedClassifier, Xdp,
        links::{FdLink, PinnedLink},
    },
};
use aya_obj::programs::XdpAttachType;

use crate::xdp::{
    Attached, Device, Entry, Failed, Hook, Role, Settings, claim,
    device::{COUNTED, DRAINED, NOTHING, Programs, TAP},
    drain::Drain,
    hook::Link,
    object,
    settings::SETUP_BYTES,
};

/// Name of the settings map, which the object has as a section without a name for pins.
const SETUP: &str = "rodata";

/// Location of the pins of one device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pins {
    folder: PathBuf,
    role: Role,
}

impl Pins {
    /// Returns the location for this device. Mounts the file system if necessary.
    pub fn of(settings: &Settings, interface: &str, role: Role) -> Result<Self, Failed> {
        Ok(Self::below(&claim::folder(interface)?, settings, role))
    }

    pub(crate) fn below(root: &Path, settings: &Settings, role: Role) -> Self {
        let group = format!("{:08x}", settings.setup.group);
        Self { folder: root.join(group).join(role.name()), role }
    }

    /// Returns the location in this folder.
    pub(crate) const fn at(folder: PathBuf, role: Role) -> Self {
        Self { folder, role }
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Pins a device and its link to the interface, so that they outlive this process.
    pub fn keep(
        &self,
        device: &mut Device,
        attached: Attached,
    ) -> Result<PinnedAttachment, Failed> {
        self.sweep()?;
        let made = self.folder.join(object::mark(self.role));
        fs::create_dir_all(made).map_err(|error| self.failed("create", error))?;
        let Programs::Loaded(loaded) = &mut device.programs else {
            return Err(Failed::Object("it was pinned before".to_owned()));
        };
        for entry in Entry::ALL {
            let program = loaded.program_mut(entry.name()).ok_or(Failed::Answer)?;
            program.pin(self.folder.join(entry.name()))?;
        }
        device.pin_maps(&self.folder)?;
        // Last: a folder with a link is complete.
        match attached.link {
            Link::File(link) => {
                let pinned = link.pin(self.link(attached.hook))?;
                Ok(PinnedAttachment { hook: attached.hook, link: pinned.into() })
            }
            // Without a pin it would keep voting after its owner is gone, and no process could find
            // it.
            Link::Xdp(_) | Link::Traffic(_) => {
                self.sweep()?;
                Err(Failed::Object("this kernel has no links that outlive a process".to_owned()))
            }
        }
    }

    fn link(&self, hook: Hook) -> PathBuf {
        self.folder.join(format!("link-{}", hook.word()))
    }

    /// Returns the device of an earlier owner and its link to the interface; `None` if there is
    /// none, or it was incomplete.
    pub fn find(&self) -> Result<Option<(Device, PinnedAttachment)>, Failed> {
        let hook = Hook::ALL.into_iter().find(|hook| self.link(*hook).exists());
        let Some(hook) = hook else {
            self.sweep()?;
            return Ok(None);
        };
        let data = |name: &str| MapData::from_pin(self.folder.join(name));
        let attach = XdpAttachType::Interface;
        let program = |entry: Entry| Xdp::from_pin(self.folder.join(entry.name()), attach);
        let traffic = self.folder.join(Entry::Traffic.name());
        let setup: Array<MapData, [u8; SETUP_BYTES]> = Array::try_from(Map::Array(data(SETUP)?))?;
        let tap = data(TAP)?;
        let tap_bytes = tap.info()?.max_entries();
        let device = Device {
            role: self.role,
            settings: Settings::read(&setup.get(&0, 0)?, tap_bytes)?,
            tap: RingBuf::try_from(Map::RingBuf(tap))?,
            counted: PerCpuArray::try_from(Map::PerCpuArray(data(COUNTED)?))?,
            drain: Drain::new(
                ArrayOfMaps::try_from(Map::ArrayOfMaps(data(DRAINED)?))?,
                Array::try_from(Map::Array(data(NOTHING)?))?,
            ),
            handles: Vec::new(),
            programs: Programs::Pinned {
                network: Box::new(program(Entry::Network)?),
                owner: Box::new(program(Entry::Owner)?),
                traffic: Box::new(SchedClassifier::from_pin(traffic)?),
            },
        };
        let link = PinnedLink::from_pin(self.link(hook))?.into();
        Ok(Some((device, PinnedAttachment { hook, link })))
    }

    /// Returns whether the pinned device has the same programs as this process.
    pub(crate) fn is_same_object(&self) -> bool {
        self.folder.join(object::mark(self.role)).exists()
    }

    /// Removes the pins. A device without other references is then removed from its interface.
    pub fn sweep(&self) -> Result<(), Failed> {
        match fs::remove_dir_all(&self.folder) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(self.failed("remove", error))
            }
            _ => Ok(()),
        }
    }

    /// Removes the devices that owners in other groups left at the same interface, which this
    /// process has claimed: an interface has one device. Their owners see that as a device that
    /// forgot ([offload-9]).
    pub(crate) fn sweep_others(&self, interface: &Path) -> Result<(), Failed> {
        let folders =
            fs::read_dir(interface).map_err(|error| self.failed("look for others", error))?;
        for folder in folders {
            let path = folder.map_err(|error| self.failed("look for others", error))?.path();
            if !self.folder.starts_with(&path) {
                fs::remove_dir_all(path).map_err(|error| self.failed("remove others", error))?;
            }
        }
        Ok(())
    }

    fn failed(&self, what: &str, error: io::Error) -> Failed {
        Failed::Io { what: format!("{what} {}", self.folder.display()), error }
    }
}

/// Link of a pinned device to its interface. After it is dropped, the device stays attached while
/// it is pinned.
pub struct PinnedAttachment {
    pub(crate) hook: Hook,
    pub(crate) link: FdLink,
}

impl PinnedAttachment {
    /// Returns the hook that the device is attached to.
    pub const fn hook(&self) -> Hook {
        self.hook
    }
}
