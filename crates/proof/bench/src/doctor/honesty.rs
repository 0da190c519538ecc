//! Checks whether flushes are plausible, as far as this is visible to software: the block device's
//! cache, the mount options, and replies that are faster than a disk can be.
//!
//! Only a power cut proves durability. These findings can show that durability is unlikely, never
//! that it is certain.

use std::path::Path;

use crate::doctor::{
    finding::Finding,
    flushes::FlushTimes,
    mounts::{REMOTE_FILE_SYSTEMS, VOLATILE_FILE_SYSTEMS, mount_of},
    system::{SystemFiles, UnreadableFile},
};

const FINDING_NAME: &str = "flush honesty";
/// Flush time in µs below which a cache must have replied, whatever the disk.
const PLAUSIBLE_US_MIN: f64 = 15.0;
/// Flush time in µs below which a cache must have replied, if the disk rotates.
const PLAUSIBLE_ROTATING_US_MIN: f64 = 500.0;
/// Mount options with which the file system does not flush the disk's cache.
const NO_BARRIER_OPTIONS: [&str; 2] = ["nobarrier", "barrier=0"];
/// Name prefixes of block devices that pass flushes on, with a description of the responsible
/// party.
const STACKED_DEVICES: [(&str, &str); 9] = [
    ("vd", "a virtual disk: the host"),
    ("xvd", "a virtual disk: the host"),
    ("loop", "a file as a disk: the file system below"),
    ("dm-", "mapped onto other devices: those"),
    ("md", "made of other devices: those"),
    ("nbd", "a disk on the network: another machine"),
    ("rbd", "a disk on the network: other machines"),
    ("drbd", "a mirror over the network: this and another machine"),
    ("bcache", "a cache before another device: both"),
];
/// Name prefixes of block devices in memory.
const MEMORY_DEVICES: [&str; 2] = ["ram", "zram"];
/// Vendor names of virtual disks.
const VIRTUAL_DISK_VENDORS: [&str; 7] =
    ["QEMU", "VMware", "Msft", "Google", "Amazon", "Xen", "VBOX"];

/// Evaluates the disk that holds a folder, including its flush times if known.
pub fn examine(system: &SystemFiles, folder: &Path, flushes: Option<&FlushTimes>) -> Finding {
    let mount = match mount_of(system, folder) {
        Ok(mount) => mount,
        Err(UnreadableFile(why)) => {
            return Finding::unknown(FINDING_NAME, "not known", "lsblk -D").with_detail(why);
        }
    };
    if let Some(option) =
        NO_BARRIER_OPTIONS.into_iter().find(|option| mount.options.iter().any(|one| one == option))
    {
        let what = format!("mounted with {option}: a flush does not empty the disk's cache");
        let hint = format!("mount {} without {option}", mount.mount_point);
        return Finding::warning(FINDING_NAME, what, hint);
    }
    if VOLATILE_FILE_SYSTEMS.contains(&&*mount.kind) || REMOTE_FILE_SYSTEMS.contains(&&*mount.kind)
    {
        let what = format!("{} has no local disk to check", mount.kind);
        return Finding::unknown(FINDING_NAME, what, "put --data on ext4 or XFS on a disk");
    }
    let device = match BlockDevice::from_numbers(system, &mount.device_numbers) {
        Ok(device) => device,
        Err(UnreadableFile(why)) => {
            let what = format!("the disk of {} is unknown", mount.kind);
            return Finding::unknown(FINDING_NAME, what, "lsblk -o NAME,MODEL,WCACHE")
                .with_detail(why);
        }
    };
    device.plausibility_finding(flushes.map(|flushes| flushes.quietest_us))
}

#[derive(Clone, Debug)]
struct BlockDevice {
    name: String,
    /// Cache mode: `write back` or `write through`.
    cache_mode: String,
    supports_fua: bool,
    is_rotating: bool,
    /// Party responsible for flushes, if it is not the disk itself.
    flush_owner: Option<String>,
}

impl BlockDevice {
    fn from_numbers(system: &SystemFiles, numbers: &str) -> Result<Self, UnreadableFile> {
        let at = format!("sys/dev/block/{numbers}");
        let uevent = system.read_text(&format!("{at}/uevent"))?;
        let name = uevent.lines().find_map(|line| line.strip_prefix("DEVNAME="));
        let name = name.unwrap_or(numbers).to_owned();
        // A partition's folder is inside the disk's folder and has no queue of its own.
        let disk = match system.exists(&format!("{at}/partition")) {
            true => format!("{at}/.."),
            false => at,
        };
        let cache = system.read_text(&format!("{disk}/queue/write_cache"))?;
        let flag = |what: &str| system.read_number(&format!("{disk}/queue/{what}")) == Ok(1);
        let maker = ["vendor", "model"].into_iter().find_map(|what| {
            let text = system.read_text(&format!("{disk}/device/{what}")).ok()?;
            let host = VIRTUAL_DISK_VENDORS.into_iter().find(|host| text.starts_with(host))?;
            Some(format!("a virtual disk of {host}: the host"))
        });
        let known = STACKED_DEVICES
            .into_iter()
            .find(|(begin, _)| name.starts_with(begin))
            .map(|(_, whose)| whose.to_owned());
        let below = system.list_names(&format!("{disk}/slaves")).unwrap_or_default();
        let other = known.or(maker).map(|whose| match below.is_empty() {
            true => whose,
            false => format!("{whose} ({})", below.join(", ")),
        });
        Ok(Self {
            supports_fua: flag("fua"),
            is_rotating: flag("rotational"),
            name,
            cache_mode: cache,
            flush_owner: other,
        })
    }

    fn plausibility_finding(&self, flush_us: Option<f64>) -> Finding {
        let Self { name, cache_mode: cache, supports_fua: fua, .. } = self;
        if MEMORY_DEVICES.iter().any(|begin| name.starts_with(begin)) {
            let what = format!("{name} is memory: nothing survives a restart");
            return Finding::warning(FINDING_NAME, what, "put --data on a disk");
        }
        let detail = format!(
            "{name}: {cache}{}; only cutting the power proves that a disk keeps what it flushed",
            if *fua { ", writes that pass its cache" } else { "" }
        );
        let caches = cache == "write back";
        let hint = "check that the cache of the disk, controller or host survives power loss; if not, switch it off";
        let found = match (&self.flush_owner, flush_us) {
            (_, Some(us)) if caches && us < PLAUSIBLE_US_MIN => {
                let what = format!("{us:.0} µs is faster than a disk can be: a cache answers");
                Finding::warning(FINDING_NAME, what, hint)
            }
            (None, Some(us)) if caches && self.is_rotating && us < PLAUSIBLE_ROTATING_US_MIN => {
                let what =
                    format!("{us:.0} µs is faster than a spinning disk can be: a cache answers");
                Finding::warning(FINDING_NAME, what, hint)
            }
            (Some(whose), _) => {
                let what = format!("cannot be checked from here, it depends on {whose}");
                Finding::unknown(
                    FINDING_NAME,
                    what,
                    "ask its operator whether a flush reaches storage that survives power loss",
                )
            }
            (None, _) if caches => {
                let what = "the disk has a volatile cache, which each flush empties";
                Finding::ok(FINDING_NAME, what)
            }
            (None, _) if cache == "write through" => {
                Finding::ok(FINDING_NAME, "the disk reports no volatile cache")
            }
            (None, _) => {
                Finding::unknown(FINDING_NAME, "the report of the disk is not understood", hint)
            }
        };
        found.with_detail(detail)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::{finding::FindingState, system::tests::Tree};

    const PLAIN: &str = "21 1 8:0 / / rw - ext4 /dev/x rw";

    fn of(mount: &str, name: &str, cache: &str, turning: &str, flush_us: f64) -> Finding {
        let uevent = format!("MAJOR=8\nDEVNAME={name}\n");
        let tree = Tree::of(&[
            ("proc/self/mountinfo", mount),
            ("sys/dev/block/8:0/uevent", &uevent),
            ("sys/dev/block/8:0/queue/write_cache", cache),
            ("sys/dev/block/8:0/queue/fua", "1"),
            ("sys/dev/block/8:0/queue/rotational", turning),
        ]);
        let flushes = FlushTimes { quietest_us: flush_us, ..FlushTimes::default() };
        examine(&tree.system(), Path::new("/data"), Some(&flushes))
    }

    #[test]
    fn flush_times_must_fit_the_reported_write_cache() {
        let state = |name, cache, turning, us| of(PLAIN, name, cache, turning, us).state;
        assert_eq!(state("nvme0n1", "write back", "0", 40.0), FindingState::Ok);
        assert_eq!(state("nvme0n1", "write back", "0", 9.0), FindingState::Warning);
        assert_eq!(state("nvme0n1", "write through", "0", 9.0), FindingState::Ok);
        assert_eq!(state("sda", "write back", "1", 300.0), FindingState::Warning);
        assert_eq!(state("sda", "write back", "1", 6000.0), FindingState::Ok);
        assert_eq!(state("sda", "sideways", "1", 6000.0), FindingState::Unknown);
        assert_eq!(state("zram0", "write through", "0", 90.0), FindingState::Warning);
    }

    #[test]
    fn virtual_and_network_disks_are_unknown() {
        for (name, whose) in
            [("vda", "the host"), ("loop3", "below"), ("dm-0", "those"), ("nbd1", "machine")]
        {
            // A virtual disk reports itself as rotational by default.
            let found = of(PLAIN, name, "write back", "1", 200.0);
            assert!(
                found.state == FindingState::Unknown && found.what.contains(whose),
                "{found:?}"
            );
            let soon = of(PLAIN, name, "write back", "1", 3.0);
            assert_eq!(soon.state, FindingState::Warning);
        }
    }

    #[test]
    fn a_mount_without_barriers_does_not_flush() {
        for option in ["nobarrier", "barrier=0"] {
            let mount = format!("{PLAIN},{option}");
            let found = of(&mount, "sda", "write back", "0", 100.0);
            assert!(
                found.state == FindingState::Warning && found.hint.contains(option),
                "{found:?}"
            );
        }
        assert_eq!(
            of(&format!("{PLAIN},barrier=1"), "sda", "write back", "0", 100.0).state,
            FindingState::Ok
        );
    }

    #[test]
    fn partition_uses_the_queue_and_vendor_of_its_disk() {
        let tree = Tree::of(&[
            ("proc/self/mountinfo", "21 1 8:1 / / rw - ext4 /dev/sda1 rw"),
            ("sys/dev/block/8:1/uevent", "DEVNAME=sda1"),
            ("sys/dev/block/8:1/partition", "1"),
            ("sys/dev/block/queue/write_cache", "write back"),
        ]);
        let look = || examine(&tree.system(), Path::new("/data"), None);
        assert_eq!(look().state, FindingState::Ok);
        tree.put("sys/dev/block/device/vendor", "QEMU    ");
        assert!(look().state == FindingState::Unknown && look().what.contains("QEMU"));
    }

    #[test]
    fn file_systems_without_a_local_disk_are_unknown() {
        let nfs = of("1 1 0:7 / / rw - nfs4 h:/x rw", "", "", "", 100.0);
        assert_eq!(nfs.state, FindingState::Unknown);
        let btrfs = of("1 1 0:7 / / rw - btrfs /dev/sda rw", "", "", "", 100.0);
        assert_eq!(btrfs.state, FindingState::Unknown);
        let nothing = examine(&Tree::of(&[]).system(), Path::new("/"), None);
        assert_eq!(nothing.state, FindingState::Unknown);
    }
}
