//! Finds the mount of a folder's file system in `/proc/self/mountinfo`: mount point, device and
//! options.

use std::path::Path;

use crate::doctor::system::{SystemFiles, UnreadableFile};

/// File system types whose files are lost, or stored elsewhere, after a crash.
pub(crate) const VOLATILE_FILE_SYSTEMS: [&str; 3] = ["tmpfs", "ramfs", "overlay"];
/// File system types whose locks and flushes depend on another machine.
pub(crate) const REMOTE_FILE_SYSTEMS: [&str; 6] =
    ["nfs", "nfs4", "cifs", "smb3", "9p", "fuse.sshfs"];

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// Path of the mount point.
    pub mount_point: String,
    /// Device numbers, as in `/sys/dev/block`; starts with `0:` if there is no block device.
    pub device_numbers: String,
    /// File system type, such as `ext4`.
    pub kind: String,
    /// Options of the mount and of the file system together.
    pub options: Vec<String>,
}

/// Returns the mount that contains a folder.
pub fn mount_of(system: &SystemFiles, folder: &Path) -> Result<Mount, UnreadableFile> {
    let path = "proc/self/mountinfo";
    let mounts = system.read_text(path)?;
    innermost_mount(&mounts, folder)
        .ok_or_else(|| UnreadableFile(format!("/{path}: nothing about {}", folder.display())))
}

/// Returns the innermost mount that contains a folder. Malformed lines are skipped.
fn innermost_mount(mounts: &str, folder: &Path) -> Option<Mount> {
    let line = |line: &str| {
        let (left, right) = line.split_once(" - ")?;
        let left: Vec<&str> = left.split(' ').collect();
        let mut right = right.split(' ');
        let at = decode_octal_escapes(left.get(4)?);
        let kind = right.next().filter(|kind| !kind.is_empty())?;
        let of_all = right.nth(1).unwrap_or_default();
        let options = left.get(5)?.split(',').chain(of_all.split(','));
        folder.starts_with(&at).then(|| Mount {
            mount_point: at,
            device_numbers: left[2].to_owned(),
            kind: kind.to_owned(),
            options: options.map(str::to_owned).collect(),
        })
    };
    // Of two mounts with the same mount point, the later one covers the earlier one.
    mounts.lines().filter_map(line).max_by_key(|mount| mount.mount_point.len())
}

/// Decodes the octal escapes that the kernel uses for spaces and similar characters.
fn decode_octal_escapes(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        let octal = after.get(..3).and_then(|digits| std::str::from_utf8(digits).ok());
        let octal = octal.and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match octal {
            Some(byte) if first == b'\\' => {
                bytes.push(byte);
                rest = &after[3..];
            }
            _ => {
                bytes.push(first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) const MOUNTS: &str = "21 1 8:1 / / rw,relatime shared:1 - ext4 /dev/vda rw,barrier=0\n\
        22 21 0:5 / /srv/a\\040b rw - xfs /dev/vdb rw\n\
        garbage\n23 21 0:6 / /srv\n - \n24 21 0:7 / /mnt rw master:1 shared:2 - nfs4 h:/x rw\n\
        25 21 0:8 / /dev/shm rw - tmpfs tmpfs rw\n";

    #[test]
    fn file_system_is_that_of_the_nearest_mount() {
        let of = |folder: &str| innermost_mount(MOUNTS, Path::new(folder)).unwrap().kind;
        assert_eq!(of("/srv/a b/n1"), "xfs");
        assert_eq!(of("/srv/a bc"), "ext4");
        assert_eq!(of("/mnt"), "nfs4");
        assert_eq!(innermost_mount("", Path::new("/")), None);
        assert_eq!(decode_octal_escapes("a\\040b\\134\\9x\\"), "a b\\\\9x\\");
    }

    #[test]
    fn device_and_options_of_a_mount_are_parsed() {
        let root = innermost_mount(MOUNTS, Path::new("/home")).unwrap();
        assert_eq!(root.device_numbers, "8:1");
        assert_eq!(root.options, ["rw", "relatime", "rw", "barrier=0"]);
    }
}
