//! Limits of this process's control group: memory, CPU, processes and disk. The tightest limit of
//! the group and its parents counts.
//!
//! The group examined is that of `quorate doctor`; a node run by a service manager is in another
//! group.

use crate::doctor::{
    finding::Finding,
    system::{SystemFiles, UnreadableFile},
};

const OWN_CGROUP_FILE: &str = "proc/self/cgroup";
const CGROUP_ROOT: &str = "sys/fs/cgroup";
/// Minimum memory for a node with the default client memory and store, in bytes.
const MEMORY_LEAST: u64 = 512 << 20;
/// Minimum number of processes and threads. It exceeds the number of threads of a node.
const PIDS_LEAST: u64 = 128;
const DEPTH_MAX: usize = 32;

pub fn examine(system: &SystemFiles) -> Vec<Finding> {
    let groups = match cgroup_folders(system) {
        Ok(groups) => groups,
        Err(UnreadableFile(why)) => {
            let hint = "systemd-cgls shows the groups; version 1 of control groups is not checked";
            return vec![
                Finding::unknown("cgroup", "the limits are unknown", hint).with_detail(why),
            ];
        }
    };
    let read = |file: &str| -> Vec<(String, String)> {
        let text = |group: &String| {
            Some((group.clone(), system.read_text(&format!("{group}/{file}")).ok()?))
        };
        groups.iter().filter_map(text).collect()
    };
    vec![
        memory_finding(&read("memory.max"), &read("memory.high")),
        cpu_finding(&read("cpu.max")),
        process_finding(&read("pids.max")),
        disk_finding(&read("io.max")),
    ]
}

/// Returns the folders of this process's group and its parents, innermost first.
fn cgroup_folders(system: &SystemFiles) -> Result<Vec<String>, UnreadableFile> {
    let text = system.read_text(OWN_CGROUP_FILE)?;
    let own = text.lines().find_map(|line| line.strip_prefix("0::"));
    // Where both cgroup versions are in use, version 1 sets the limits.
    let first = text.lines().any(|line| line.contains(":memory:") || line.contains(",memory"));
    let Some(own) = own.filter(|_| !first) else {
        return Err(UnreadableFile(format!(
            "/{OWN_CGROUP_FILE}: no group of version 2 has the memory"
        )));
    };
    if !system.exists(&format!("{CGROUP_ROOT}/cgroup.controllers")) {
        return Err(UnreadableFile(format!(
            "/{CGROUP_ROOT}: no groups of version 2 are mounted there"
        )));
    }
    // In a container, path components outside the container's view appear as `..`.
    let parts: Vec<&str> = own.split('/').filter(|part| !matches!(*part, "" | "..")).collect();
    let depth = parts.len().min(DEPTH_MAX);
    Ok((0..=depth)
        .rev()
        .map(|depth| [&[CGROUP_ROOT], &parts[..depth]].concat().join("/"))
        .collect())
}

/// Returns the smallest number set by any group, with the name of that group.
fn smallest_limit(all: &[(String, String)]) -> Option<(u64, &str)> {
    let number =
        |(group, text): &'_ (String, String)| Some((text.parse::<u64>().ok()?, group.clone()));
    let (least, group) = all.iter().filter_map(number).min()?;
    let group = all.iter().find(|(name, _)| *name == group)?;
    Some((least, &group.0))
}

fn memory_finding(max: &[(String, String)], high: &[(String, String)]) -> Finding {
    let name = "cgroup memory";
    let bound = [smallest_limit(max), smallest_limit(high)].into_iter().flatten().min();
    let Some((bytes, group)) = bound else {
        return Finding::ok(name, "no limit");
    };
    let what = format!("limited to {} MiB", bytes >> 20);
    let found = if bytes < MEMORY_LEAST {
        let hint = "set MemoryMax=2G in the unit, or raise the limit of the container; otherwise the node gets slow or is killed";
        Finding::warning(name, what, hint)
    } else {
        Finding::ok(name, what)
    };
    found.with_detail(format!("/{group}; --client-memory comes on top of the memory of the store"))
}

fn cpu_finding(all: &[(String, String)]) -> Finding {
    let name = "cgroup cpu";
    // Quota and period are given in microseconds.
    let share = |(group, text): &'_ (String, String)| {
        let (quota, period) = text.split_once(' ')?;
        let (quota, period) = (quota.parse::<u64>().ok()?, period.trim().parse::<u64>().ok()?);
        Some((quota.saturating_mul(100).checked_div(period)?, period, group.clone()))
    };
    let Some((percent, period, group)) = all.iter().filter_map(share).min() else {
        return Finding::ok(name, "no limit");
    };
    let what = format!("limited to {percent} % of one CPU");
    let detail =
        format!("/{group}; when it is used up, everything waits for the rest of the {period} µs");
    let found = if percent < 100 {
        let hint = "CPUQuota= in the unit, or the limit of the container: allow at least one whole CPU, or use only a weight";
        Finding::warning(name, what, hint)
    } else {
        Finding::ok(name, what)
    };
    found.with_detail(detail)
}

fn process_finding(all: &[(String, String)]) -> Finding {
    let name = "cgroup pids";
    let Some((count, group)) = smallest_limit(all) else {
        return Finding::ok(name, "no limit");
    };
    let what = format!("limited to {count} threads");
    let found = if count < PIDS_LEAST {
        Finding::warning(
            name,
            what,
            "set TasksMax=512 in the unit, or raise the limit of the container",
        )
    } else {
        Finding::ok(name, what)
    };
    found.with_detail(format!("/{group}"))
}

fn disk_finding(all: &[(String, String)]) -> Finding {
    let name = "cgroup io";
    let bounds = |text: &str| text.lines().any(|line| line.split(' ').skip(1).any(has_limit));
    match all.iter().find(|(_, text)| bounds(text)) {
        None => Finding::ok(name, "no limit"),
        Some((group, text)) => {
            let hint = "remove IOReadBandwidthMax= and IOWriteIOPSMax= from the unit: flushes wait for the limit";
            let text: String =
                text.chars().take(200).map(|c| if c.is_control() { ' ' } else { c }).collect();
            Finding::warning(name, "disk I/O is limited", hint)
                .with_detail(format!("/{group}/io.max: {text}"))
        }
    }
}

/// Returns whether an entry of `io.max` sets a limit: `wbps=1048576` does, `wbps=max` does not.
fn has_limit(part: &str) -> bool {
    part.split_once('=').is_some_and(|(_, value)| value.parse::<u64>().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::{finding::FindingState, system::tests::Tree};

    fn tree(files: &[(&str, &str)]) -> Tree {
        let tree = Tree::of(&[
            (OWN_CGROUP_FILE, "0::/a.slice/b.service\n"),
            ("sys/fs/cgroup/cgroup.controllers", "cpu io"),
        ]);
        files.iter().for_each(|(path, text)| tree.put(&format!("{CGROUP_ROOT}/{path}"), text));
        tree
    }

    fn of(files: &[(&str, &str)]) -> Vec<Finding> {
        examine(&tree(files).system())
    }

    #[test]
    fn no_cgroup_limit_is_ok() {
        let max = [
            ("memory.max", "max"),
            ("a.slice/cpu.max", "max 100000"),
            ("a.slice/b.service/io.max", "8:0 rbps=max wbps=max riops=max wiops=max"),
        ];
        for finding in of(&max).into_iter().chain(of(&[])) {
            assert_eq!(
                (finding.state, &*finding.what),
                (FindingState::Ok, "no limit"),
                "{finding:?}"
            );
        }
    }

    #[test]
    fn tightest_limit_of_all_groups_counts() {
        let found = &of(&[
            ("a.slice/memory.max", "104857600"),
            ("a.slice/b.service/memory.max", "8589934592"),
        ])[0];
        assert_eq!((found.state, &*found.what), (FindingState::Warning, "limited to 100 MiB"));
        assert!(found.detail.contains("/sys/fs/cgroup/a.slice;"), "{found:?}");
        let high = &of(&[("a.slice/b.service/memory.high", "629145600")])[0];
        assert_eq!((high.state, &*high.what), (FindingState::Ok, "limited to 600 MiB"));
        // A container sees its own limits in the root group.
        let inside = &of(&[("pids.max", "20")])[2];
        assert_eq!(inside.state, FindingState::Warning);
    }

    #[test]
    fn cpu_and_disk_limits_of_cgroups_are_warnings() {
        let cpu = |text| of(&[("a.slice/b.service/cpu.max", text)])[1].clone();
        assert_eq!(
            (cpu("50000 100000").state, &*cpu("50000 100000").what),
            (FindingState::Warning, "limited to 50 % of one CPU")
        );
        assert_eq!(cpu("150000 100000\n").state, FindingState::Ok);
        for garbage in ["", "x", "1 0", "-5 7"] {
            assert_eq!(cpu(garbage).state, FindingState::Ok, "{garbage}");
        }
        let io = &of(&[("a.slice/io.max", "8:0 rbps=max wbps=1048576 riops=max wiops=max")])[3];
        assert!(io.state == FindingState::Warning && io.detail.contains("wbps=1048576"), "{io:?}");
    }

    #[test]
    fn cgroup_version_1_is_unknown() {
        for own in ["", "4:memory:/x\n0::/\n", "4:cpu,memory:/x"] {
            let tree = tree(&[]);
            tree.put(OWN_CGROUP_FILE, own);
            let found = examine(&tree.system());
            assert_eq!((found.len(), found[0].state), (1, FindingState::Unknown), "{own}");
        }
        assert_eq!(
            examine(&Tree::of(&[(OWN_CGROUP_FILE, "0::/\n")]).system())[0].state,
            FindingState::Unknown
        );
    }
}
