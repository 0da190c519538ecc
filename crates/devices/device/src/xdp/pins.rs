//! Pinned eBPF objects, which let a device outlive its owner so that the next owner finds it
//! ([offload-8], [offload-9]).
//!
//! Each combination of interface, group and role has a folder in the BPF file system. A device
//! found there is still voting, so it is fenced and read out before anything else. An incomplete
//! folder is removed.

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

/// Pin name of the settings map. In the object it is a section without a pin name.
const SETUP: &str = "rodata";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pins {
    folder: PathBuf,
    role: Role,
}

impl Pins {
    /// Returns the location for a device. Mounts the file system if necessary.
    pub fn of(settings: &Settings, interface: &str, role: Role) -> Result<Self, Failed> {
        Ok(Self::below(&claim::folder(interface)?, settings, role))
    }

    pub(crate) fn below(root: &Path, settings: &Settings, role: Role) -> Self {
        let group = format!("{:08x}", settings.setup.group);
        Self { folder: root.join(group).join(role.name()), role }
    }

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
        // The link is pinned last, so a folder with a link is complete.
        match attached.link {
            Link::File(link) => {
                let pinned = link.pin(self.link(attached.hook))?;
                Ok(PinnedAttachment { hook: attached.hook, link: pinned.into() })
            }
            // Without a pinned link, the device would keep voting after its owner ended, and no
            // other process could find it.
            Link::Xdp(_) | Link::Traffic(_) => {
                self.sweep()?;
                Err(Failed::Object("this kernel has no links that outlive a process".to_owned()))
            }
        }
    }

    fn link(&self, hook: Hook) -> PathBuf {
        self.folder.join(format!("link-{}", hook.word()))
    }

    /// Returns the device of an earlier owner and its link to the interface, or `None` if there is
    /// no complete one.
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

    /// Removes the pins. Without other references, the device is then removed from its interface.
    pub fn sweep(&self) -> Result<(), Failed> {
        match fs::remove_dir_all(&self.folder) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(self.failed("remove", error))
            }
            _ => Ok(()),
        }
    }

    /// Removes devices that owners in other groups left at the same interface, because an interface
    /// can have only one device. This process must have claimed the interface. To their owners,
    /// these devices have lost their memory ([offload-9]).
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

/// Link between a pinned device and its interface. The device remains attached while it is pinned,
/// even if this is dropped.
pub struct PinnedAttachment {
    pub(crate) hook: Hook,
    pub(crate) link: FdLink,
}

impl PinnedAttachment {
    pub const fn hook(&self) -> Hook {
        self.hook
    }
}
