//! Health check of a device at its interface: another process may have detached it, or the
//! interface may have been removed.

use std::{
    fmt, fs,
    path::{Path, PathBuf},
};

use quorate_packets::ethernet::RawSocket;

use crate::xdp::pins::PinnedAttachment;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttachmentHealth {
    /// The device receives frames.
    Receiving,
    /// The interface is down. The device will receive frames again when it is up.
    InterfaceDown,
    /// Another process detached the device. The device no longer receives frames.
    Detached,
    /// The interface was removed. The device no longer receives frames.
    InterfaceGone,
    Unknown,
}

impl AttachmentHealth {
    /// Returns whether the device receives frames now, or will once the interface is up.
    pub const fn may_receive(self) -> bool {
        matches!(self, Self::Receiving | Self::InterfaceDown)
    }
}

impl fmt::Display for AttachmentHealth {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(match self {
            Self::Receiving => "well",
            Self::InterfaceDown => "the interface is down",
            Self::Detached => "the device was detached from its interface",
            Self::InterfaceGone => "the interface is gone",
            Self::Unknown => "what keeps the device at its interface cannot be read",
        })
    }
}

/// The kernel's information file of a link, which shows whether it is still attached.
#[derive(Debug)]
pub(crate) struct AttachmentWatch {
    info_file: Option<PathBuf>,
}

impl AttachmentWatch {
    /// Finds the file by the id of the link: the loader returns the id, and the kernel reports it
    /// for each descriptor of this process.
    pub(crate) fn of(kept: &PinnedAttachment) -> Self {
        let place = kept.link.info().ok().and_then(|info| find_info_file(info.id()));
        Self { info_file: place }
    }

    /// Returns the current state. `socket` shows whether the interface still exists.
    pub(crate) fn current_health(&self, socket: &RawSocket) -> AttachmentHealth {
        let Some(up) = socket.is_up() else {
            return AttachmentHealth::InterfaceGone;
        };
        let said = self.info_file.as_ref().map(fs::read_to_string);
        match said.and_then(Result::ok).and_then(|said| parse_interface_index(&said)) {
            None => AttachmentHealth::Unknown,
            Some(0) => AttachmentHealth::Detached,
            Some(_) if up => AttachmentHealth::Receiving,
            Some(_) => AttachmentHealth::InterfaceDown,
        }
    }
}

fn find_info_file(id: u32) -> Option<PathBuf> {
    let wanted = format!("link_id:\t{id}");
    let files = fs::read_dir("/proc/self/fdinfo").ok()?;
    let mut paths = files.filter_map(|file| Some(file.ok()?.path()));
    paths.find(|path| has_line(path, &wanted))
}

fn has_line(path: &Path, line: &str) -> bool {
    let said = fs::read_to_string(path).unwrap_or_default();
    said.lines().any(|said| said == line)
}

/// Parses the index of the interface, which is 0 if it no longer exists.
fn parse_interface_index(said: &str) -> Option<u32> {
    let number = said.lines().find_map(|line| line.strip_prefix("ifindex:"))?;
    number.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interface_index_is_parsed_from_the_link_info() {
        let said =
            "pos:\t0\nlink_type:\txdp\nlink_id:\t7\nprog_tag:\tabc\nprog_id:\t3\nifindex:\t12\n";
        assert_eq!(parse_interface_index(said), Some(12));
        assert_eq!(parse_interface_index("ifindex:\t0\n"), Some(0));
        assert_eq!(parse_interface_index("pos:\t0\n"), None);
    }
}
