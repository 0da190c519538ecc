//! Network check: interface names, link states and maximum packet sizes, and the kernel's support
//! for datagrams.
//!
//! Hardware offloads (checksums, segmentation, coalescing) are reported only by ethtool, through
//! ioctls that none of our safe crates supports; the finding explains how to query them. The
//! feature that matters to a node, sending many datagrams in one call, is tested on a socket.

use std::net::{Ipv4Addr, SocketAddr};

use quorate_packets::{
    limits::{DATAGRAM_BYTES_MIN, IPV4_UDP_HEADER_BYTES},
    socket::Udp,
};

use crate::doctor::{
    finding::Finding,
    plane::Plane,
    system::{SystemFiles, UnreadableFile},
};

const INTERFACES_FOLDER: &str = "sys/class/net";
/// Flag: the interface is administratively up.
const UP_FLAG: u64 = 0x1;
const LOOPBACK_FLAG: u64 = 0x8;
const MULTICAST_FLAG: u64 = 0x1000;
/// Minimum MTU of an interface that planes can use, in bytes.
const MTU_LEAST: u64 = (DATAGRAM_BYTES_MIN + IPV4_UDP_HEADER_BYTES) as u64;
/// Maximum number of interfaces listed individually; the remaining ones are only counted.
const SHOWN_MAX: usize = 32;

/// A network interface as reported by the system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterfaceView {
    pub name: String,
    /// Set if the interface is administratively up and has a carrier.
    pub is_up: bool,
    /// Set if the interface reaches only this machine.
    pub is_loopback: bool,
    /// Set if the interface supports multicast groups.
    pub supports_multicast: bool,
    /// Maximum packet size in bytes, if reported.
    pub mtu: Option<u64>,
    /// Link speed in Mbit/s, if reported.
    pub speed_mbit: Option<u64>,
    /// `None` for a virtual interface.
    pub driver: Option<String>,
    /// Numbers of receive and transmit queues.
    pub queue_counts: (usize, usize),
}

/// Returns all interfaces of the machine.
pub fn all_interfaces(system: &SystemFiles) -> Result<Vec<InterfaceView>, UnreadableFile> {
    let names = system.list_names(INTERFACES_FOLDER)?;
    // Some drivers put files next to the interfaces' folders.
    let named = names
        .into_iter()
        .filter(|name| system.exists(&format!("{INTERFACES_FOLDER}/{name}/flags")));
    Ok(named.map(|name| read_interface(system, name)).collect())
}

fn read_interface(system: &SystemFiles, name: String) -> InterfaceView {
    let path = |file: &str| format!("{INTERFACES_FOLDER}/{name}/{file}");
    let flags = system.read_text(&path("flags")).unwrap_or_default();
    let flags = u64::from_str_radix(flags.trim_start_matches("0x"), 16).unwrap_or(0);
    let state = system.read_text(&path("operstate")).unwrap_or_default();
    let carrier = system.read_number(&path("carrier"));
    let queues = system.list_names(&path("queues")).unwrap_or_default();
    let queues = |kind: &str| queues.iter().filter(|queue| queue.starts_with(kind)).count();
    InterfaceView {
        is_up: flags & UP_FLAG != 0 && state != "down" && carrier != Ok(0),
        is_loopback: flags & LOOPBACK_FLAG != 0,
        supports_multicast: flags & MULTICAST_FLAG != 0,
        mtu: system.read_number(&path("mtu")).ok(),
        // The kernel reports a speed of -1 if it is unknown.
        speed_mbit: system.read_number(&path("speed")).ok().filter(|mbit| *mbit > 0),
        driver: system.link_target_name(&path("device/driver")),
        queue_counts: (queues("rx-"), queues("tx-")),
        name,
    }
}

/// Evaluates all interfaces. `wanted` is the interface used by planes.
pub fn examine(system: &SystemFiles, wanted: Option<&str>) -> Vec<Finding> {
    let all = match all_interfaces(system) {
        Ok(all) => all,
        Err(UnreadableFile(why)) => {
            let hint = "ip link";
            return vec![Finding::unknown("interfaces", "not known", hint).with_detail(why)];
        }
    };
    let mut findings = vec![summary_finding(&all)];
    if let Some(name) = wanted
        && !all.iter().any(|seen| seen.name == name)
    {
        let what = format!("there is no interface {name}");
        let missing = Finding::failing(&finding_name(name), what, "'ip link' lists them");
        findings.push(missing.blocking(&[Plane::Multicast, Plane::Ethernet]));
    }
    for seen in all.iter().take(SHOWN_MAX) {
        findings.push(interface_finding(seen, wanted == Some(&seen.name)));
    }
    findings
}

fn finding_name(name: &str) -> String {
    format!("interface {name}")
}

fn summary_finding(all: &[InterfaceView]) -> Finding {
    let name = "interfaces";
    let up = all.iter().filter(|seen| seen.is_up && !seen.is_loopback);
    let up: Vec<&str> = up.map(|seen| &*seen.name).collect();
    if up.is_empty() {
        let what = "only loopback is up: no other machine is reachable";
        let hint = "ip link set NAME up; nodes on a single machine need only loopback";
        return Finding::warning(name, what, hint).blocking(&[Plane::Ethernet]);
    }
    let shown = &up[..up.len().min(SHOWN_MAX)];
    Finding::ok(name, format!("{} of {} up: {}", up.len(), all.len(), shown.join(", ")))
}

fn interface_finding(seen: &InterfaceView, wanted: bool) -> Finding {
    let name = finding_name(&seen.name);
    let known = |value: Option<u64>| value.map_or_else(|| "not told".to_owned(), |v| v.to_string());
    let kind = match (seen.is_loopback, &seen.driver) {
        (true, _) => "loopback".to_owned(),
        (false, Some(driver)) => format!("driver {driver}"),
        (false, None) => "virtual".to_owned(),
    };
    let detail = format!(
        "{kind}, {} Mbit/s, {} + {} queues{}; offloads: ethtool -k {}",
        known(seen.speed_mbit),
        seen.queue_counts.0,
        seen.queue_counts.1,
        if seen.supports_multicast || seen.is_loopback { "" } else { ", no multicast" },
        seen.name,
    );
    let what = format!("{}, MTU {}", if seen.is_up { "up" } else { "down" }, known(seen.mtu));
    let datagrams = [Plane::Udp, Plane::Multicast, Plane::Chain];
    let found = match seen {
        // An interface that no plane uses may be down.
        _ if !wanted && !seen.is_up => Finding::ok(&name, what),
        InterfaceView { is_up: false, .. } => {
            let hint = format!("ip link set {} up; check the cable", seen.name);
            Finding::failing(&name, what, hint).blocking(&[Plane::Multicast, Plane::Ethernet])
        }
        InterfaceView { mtu: Some(mtu), .. } if *mtu < MTU_LEAST => {
            let hint = format!("ip link set {} mtu 1500", seen.name);
            let what = format!("{what}: datagrams need {MTU_LEAST}");
            let found = Finding::warning(&name, what, hint);
            if wanted { found.blocking(&datagrams) } else { found.with_planes(&datagrams) }
        }
        InterfaceView { mtu: None, .. } => {
            Finding::unknown(&name, what, format!("ip link show {}", seen.name))
        }
        InterfaceView { supports_multicast: false, is_loopback: false, .. } if wanted => {
            let hint = format!("ip link set {} multicast on", seen.name);
            Finding::failing(&name, format!("{what}, without multicast"), hint)
                .blocking(&[Plane::Multicast])
        }
        _ => Finding::ok(&name, what),
    };
    found.with_detail(detail)
}

/// Checks whether one call can send many datagrams (UDP_SEGMENT), and whether they leave without IP
/// fragmentation.
pub fn datagram_finding() -> Finding {
    let name = "datagrams";
    let planes = &[Plane::Udp, Plane::Multicast, Plane::Chain];
    let place = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    match Udp::bind(place, 64 << 10) {
        Ok(socket) if socket.segments_max() > 1 => {
            let what = format!("one call sends up to {}", socket.segments_max());
            Finding::ok(name, what).with_planes(planes)
        }
        Ok(_) => {
            let hint = "Linux 4.18 has UDP_SEGMENT; check whether a sandbox blocks it";
            Finding::warning(name, "each datagram takes a call of its own", hint)
                .with_planes(planes)
        }
        Err(why) => {
            let hint = "check whether a sandbox blocks UDP";
            let found = Finding::warning(name, "cannot open a socket", hint);
            found.with_detail(why.to_string()).blocking(planes)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::*;
    use crate::doctor::{finding::FindingState, system::tests::Tree};

    fn tree(name: &str, files: &[(&str, &str)]) -> Tree {
        let tree = Tree::of(&[]);
        add(&tree, "lo", &[("flags", "0x9"), ("operstate", "unknown"), ("mtu", "65536")]);
        add(&tree, name, files);
        tree
    }

    fn add(tree: &Tree, name: &str, files: &[(&str, &str)]) {
        for (file, text) in files {
            tree.put(&format!("{INTERFACES_FOLDER}/{name}/{file}"), text);
        }
    }

    const ETHERNET: [(&str, &str); 7] = [
        ("flags", "0x1003\n"),
        ("operstate", "up\n"),
        ("carrier", "1\n"),
        ("mtu", "1500\n"),
        ("speed", "10000\n"),
        ("queues/rx-0/a", ""),
        ("queues/tx-0/a", ""),
    ];

    fn check(files: &[(&str, &str)], wanted: Option<&str>) -> Finding {
        let found = examine(&tree("eth0", files).system(), wanted);
        let mut found = found.into_iter();
        found.find(|finding| finding.name == "interface eth0").unwrap()
    }

    #[test]
    fn interface_properties_are_reported() {
        let tree = tree("eth0", &ETHERNET);
        let all = all_interfaces(&tree.system()).unwrap();
        let (eth0, lo) = (&all[0], &all[1]);
        assert!(lo.is_loopback && lo.is_up && !eth0.is_loopback && eth0.supports_multicast);
        assert_eq!(
            (eth0.mtu, eth0.speed_mbit, eth0.queue_counts),
            (Some(1500), Some(10_000), (1, 1))
        );
        let found = check(&ETHERNET, Some("eth0"));
        assert_eq!((found.state, &*found.what), (FindingState::Ok, "up, MTU 1500"));
        assert!(found.detail.contains("10000 Mbit/s") && found.detail.contains("ethtool -k eth0"));
        let summary = &examine(&tree.system(), None)[0];
        assert_eq!(summary.what, "1 of 2 up: eth0");
    }

    #[test]
    fn driver_name_is_the_last_part_of_its_link() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join(INTERFACES_FOLDER).join("eth0");
        fs::create_dir_all(folder.join("device")).unwrap();
        fs::write(folder.join("flags"), "0x1003").unwrap();
        symlink("../../bus/virtio/drivers/virtio_net", folder.join("device/driver")).unwrap();
        let all = all_interfaces(&SystemFiles::with_root(root.path())).unwrap();
        assert_eq!(all[0].driver.as_deref(), Some("virtio_net"));
    }

    #[test]
    fn interface_that_is_down_fails_only_if_it_is_requested() {
        let mut down = ETHERNET;
        down[1].1 = "down";
        assert_eq!(check(&down, None).state, FindingState::Ok);
        let found = check(&down, Some("eth0"));
        assert!(found.state == FindingState::Failing && found.blocks, "{found:?}");
        let mut cut = ETHERNET;
        cut[2].1 = "0";
        assert_eq!(check(&cut, Some("eth0")).state, FindingState::Failing);
        let missing = examine(&tree("eth0", &ETHERNET).system(), Some("eth7"));
        assert!(missing.iter().any(|found| found.name == "interface eth7" && found.blocks));
    }

    #[test]
    fn small_mtu_and_missing_multicast_are_reported() {
        let mut short = ETHERNET;
        short[3].1 = "576";
        let found = check(&short, Some("eth0"));
        assert!(found.blocks && found.hint.contains("mtu 1500"), "{found:?}");
        assert!(!check(&short, None).blocks);
        let mut plain = ETHERNET;
        plain[0].1 = "0x3";
        assert_eq!(check(&plain, Some("eth0")).about, [Plane::Multicast]);
    }

    #[test]
    fn missing_or_invalid_interface_data_is_unknown() {
        let found = &examine(&Tree::of(&[]).system(), None)[0];
        assert_eq!(found.state, FindingState::Unknown);
        let garbage = [("flags", "0xzz"), ("mtu", "large"), ("speed", "-1")];
        let found = check(&garbage, None);
        assert!(found.what.contains("MTU not told"), "{found:?}");
        let mut nameless = ETHERNET;
        nameless[3].1 = "x";
        assert_eq!(check(&nameless, None).state, FindingState::Unknown);
        // The machine has no interface except loopback.
        let alone =
            Tree::of(&[("sys/class/net/lo/flags", "0x9"), ("sys/class/net/bonding_masters", "")]);
        let found = &examine(&alone.system(), None)[0];
        assert!(found.blocks && found.what.contains("only loopback"), "{found:?}");
    }
}
