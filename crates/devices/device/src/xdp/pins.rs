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
    AttachedDevice, Device, EntryPoint, Hook, Role, Settings, XdpError, claim,
    device::{COUNTED_MAP, DRAINED_MAP, LoadedPrograms, NOTHING_MAP, TAP_MAP},
    drain::DrainMaps,
    hook::AttachmentLink,
    object,
    settings::SETUP_BYTES,
};

/// Pin name of the settings map. In the object it is a section without a pin name.
const SETTINGS_PIN: &str = "rodata";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DevicePins {
    folder: PathBuf,
    role: Role,
}

impl DevicePins {
    /// Returns the location for a device. Mounts the file system if necessary.
    pub fn of(settings: &Settings, interface: &str, role: Role) -> Result<Self, XdpError> {
        Ok(Self::below(&claim::interface_folder(interface)?, settings, role))
    }

    pub(crate) fn below(root: &Path, settings: &Settings, role: Role) -> Self {
        let group = format!("{:08x}", settings.setup.group);
        Self { folder: root.join(group).join(role.name()), role }
    }

    pub(crate) const fn in_folder(folder: PathBuf, role: Role) -> Self {
        Self { folder, role }
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Pins a device and its link to the interface, so that they outlive this process.
    pub fn pin_device(
        &self,
        device: &mut Device,
        attached: AttachedDevice,
    ) -> Result<PinnedAttachment, XdpError> {
        self.remove_pins()?;
        let made = self.folder.join(object::release_mark(self.role));
        fs::create_dir_all(made).map_err(|error| self.pin_error("create", error))?;
        let LoadedPrograms::Loaded(loaded) = &mut device.programs else {
            return Err(XdpError::MalformedObject("it was pinned before".to_owned()));
        };
        for entry in EntryPoint::ALL {
            let program = loaded.program_mut(entry.name()).ok_or(XdpError::MismatchedAnswer)?;
            program.pin(self.folder.join(entry.name()))?;
        }
        device.pin_maps(&self.folder)?;
        // The link is pinned last, so a folder with a link is complete.
        match attached.link {
            AttachmentLink::File(link) => {
                let pinned = link.pin(self.link_path(attached.hook))?;
                Ok(PinnedAttachment { hook: attached.hook, link: pinned.into() })
            }
            // Without a pinned link, the device would keep voting after its owner ended, and no
            // other process could find it.
            AttachmentLink::Xdp(_) | AttachmentLink::Traffic(_) => {
                self.remove_pins()?;
                Err(XdpError::MalformedObject(
                    "this kernel has no links that outlive a process".to_owned(),
                ))
            }
        }
    }

    fn link_path(&self, hook: Hook) -> PathBuf {
        self.folder.join(format!("link-{}", hook.pin_name()))
    }

    /// Returns the device of an earlier owner and its link to the interface, or `None` if there is
    /// no complete one.
    pub fn find_device(&self) -> Result<Option<(Device, PinnedAttachment)>, XdpError> {
        let hook = Hook::ALL.into_iter().find(|hook| self.link_path(*hook).exists());
        let Some(hook) = hook else {
            self.remove_pins()?;
            return Ok(None);
        };
        let data = |name: &str| MapData::from_pin(self.folder.join(name));
        let attach = XdpAttachType::Interface;
        let program = |entry: EntryPoint| Xdp::from_pin(self.folder.join(entry.name()), attach);
        let traffic = self.folder.join(EntryPoint::NetworkByTc.name());
        let setup: Array<MapData, [u8; SETUP_BYTES]> =
            Array::try_from(Map::Array(data(SETTINGS_PIN)?))?;
        let tap = data(TAP_MAP)?;
        let tap_bytes = tap.info()?.max_entries();
        let device = Device {
            role: self.role,
            settings: Settings::decode(&setup.get(&0, 0)?, tap_bytes)?,
            tap: RingBuf::try_from(Map::RingBuf(tap))?,
            reason_counters: PerCpuArray::try_from(Map::PerCpuArray(data(COUNTED_MAP)?))?,
            drain: DrainMaps::new(
                ArrayOfMaps::try_from(Map::ArrayOfMaps(data(DRAINED_MAP)?))?,
                Array::try_from(Map::Array(data(NOTHING_MAP)?))?,
            ),
            maps_to_pin: Vec::new(),
            programs: LoadedPrograms::Pinned {
                network: Box::new(program(EntryPoint::Network)?),
                owner: Box::new(program(EntryPoint::Owner)?),
                traffic: Box::new(SchedClassifier::from_pin(traffic)?),
            },
        };
        let link = PinnedLink::from_pin(self.link_path(hook))?.into();
        Ok(Some((device, PinnedAttachment { hook, link })))
    }

    /// Returns whether the pinned device has the same programs as this process.
    pub(crate) fn is_same_object(&self) -> bool {
        self.folder.join(object::release_mark(self.role)).exists()
    }

    /// Removes the pins. Without other references, the device is then removed from its interface.
    pub fn remove_pins(&self) -> Result<(), XdpError> {
        match fs::remove_dir_all(&self.folder) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(self.pin_error("remove", error))
            }
            _ => Ok(()),
        }
    }

    /// Removes devices that owners in other groups left at the same interface, because an interface
    /// can have only one device. This process must have claimed the interface. To their owners,
    /// these devices have lost their memory ([offload-9]).
    pub(crate) fn remove_other_devices(&self, interface: &Path) -> Result<(), XdpError> {
        let folders =
            fs::read_dir(interface).map_err(|error| self.pin_error("look for others", error))?;
        for folder in folders {
            let path = folder.map_err(|error| self.pin_error("look for others", error))?.path();
            if !self.folder.starts_with(&path) {
                fs::remove_dir_all(path).map_err(|error| self.pin_error("remove others", error))?;
            }
        }
        Ok(())
    }

    fn pin_error(&self, what: &str, error: io::Error) -> XdpError {
        XdpError::Io { what: format!("{what} {}", self.folder.display()), error }
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
