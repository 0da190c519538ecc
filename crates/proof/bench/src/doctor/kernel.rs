//! Kernel check: the release, and the settings that limit sockets and multicast groups.

use crate::doctor::{
    finding::Finding,
    plane::Plane,
    system::{SystemFiles, UnreadableFile},
};

/// Oldest supported release, the first with UDP_SEGMENT. Earlier releases are untested.
const OLDEST_RELEASE: (u64, u64) = (4, 18);
/// Recommended release, which supports io_uring with a single issuer and deferred work.
const RECOMMENDED_RELEASE: (u64, u64) = (6, 1);
/// Receive buffer that a datagram endpoint requests, in bytes.
pub const RECEIVE_BUFFER_BYTES: usize = 4 << 20;

/// Checks the kernel's release and settings. `forced` means that this process may exceed the buffer
/// settings.
pub fn examine(system: &SystemFiles, forced: bool) -> Vec<Finding> {
    let datagrams = &[Plane::Udp, Plane::Multicast, Plane::Chain];
    let buffer = |name, why| {
        let wanted = RECEIVE_BUFFER_BYTES as u64;
        let setting = KernelSetting::new("net/core", name, wanted, why);
        let found = setting.setting_finding(system);
        // CAP_NET_ADMIN lets the process exceed this setting.
        let found = match forced {
            true => Finding {
                state: crate::doctor::finding::FindingState::Ok,
                hint: String::new(),
                ..found
            },
            false => found,
        };
        found.with_planes(datagrams)
    };
    let groups = KernelSetting::new(
        "net/ipv4",
        "igmp_max_memberships",
        1,
        "no multicast group can be joined",
    );
    let groups = groups.setting_finding(system);
    let groups = match groups.state {
        crate::doctor::finding::FindingState::Warning => groups.blocking(&[Plane::Multicast]),
        _ => groups.with_planes(&[Plane::Multicast]),
    };
    let sources =
        KernelSetting::new("net/ipv4", "igmp_max_msf", 1, "groups cannot be filtered by source");
    let backlog = "clients that connect at once are refused";
    vec![
        release_finding(system),
        buffer("rmem_max", "bursts of datagrams are lost"),
        buffer("wmem_max", "bursts of datagrams wait"),
        KernelSetting::new("net/core", "somaxconn", 128, backlog)
            .setting_finding(system)
            .with_planes(&[Plane::Tcp]),
        groups,
        sources.setting_finding(system).with_planes(&[Plane::Multicast]),
    ]
}

fn release_finding(system: &SystemFiles) -> Finding {
    let name = "kernel";
    let hint = "Linux 6.1 or newer is recommended";
    let release = match system.read_text("proc/sys/kernel/osrelease") {
        Ok(release) => release,
        Err(UnreadableFile(why)) => {
            return Finding::unknown(name, "its release is unknown", hint).with_detail(why);
        }
    };
    let found = match parse_version(&release) {
        None => Finding::unknown(name, "its release is not understood", hint),
        Some(version) if version < OLDEST_RELEASE => {
            let what = "Linux before 4.18: too old";
            Finding::failing(name, what, hint).blocking(&Plane::ALL)
        }
        Some(version) if version < RECOMMENDED_RELEASE => {
            Finding::warning(name, "Linux before 6.1: io_uring is absent or slower", hint)
        }
        Some((major, minor)) => Finding::ok(name, format!("Linux {major}.{minor}")),
    };
    found.with_detail(release.chars().take(80).collect::<String>())
}

/// Parses major and minor version: (6, 1) for `6.1.0-13-amd64`.
fn parse_version(release: &str) -> Option<(u64, u64)> {
    let mut parts = release.split(|c: char| !c.is_ascii_digit());
    let mut number = || parts.next()?.parse().ok();
    Some((number()?, number()?))
}

/// A numeric setting in `/proc/sys` with its recommended minimum.
struct KernelSetting {
    group: &'static str,
    name: &'static str,
    minimum: u64,
    consequence: &'static str,
}

impl KernelSetting {
    const fn new(
        group: &'static str,
        name: &'static str,
        minimum: u64,
        otherwise: &'static str,
    ) -> Self {
        Self { group, name, minimum, consequence: otherwise }
    }

    fn setting_finding(&self, system: &SystemFiles) -> Finding {
        let Self { group, name, minimum: least, consequence: otherwise } = *self;
        let path = format!("proc/sys/{group}/{name}");
        let dotted = format!("{}.{name}", group.replace('/', "."));
        match system.read_number(&path) {
            Ok(value) if value >= least => Finding::ok(name, format!("{dotted} is {value}")),
            Ok(value) => {
                let what = format!("{dotted} is {value}, below {least}: {otherwise}");
                Finding::warning(name, what, format!("sysctl -w {dotted}={least}"))
            }
            Err(UnreadableFile(why)) => {
                let hint = format!("sysctl {dotted}");
                Finding::unknown(name, format!("{dotted} is unknown"), hint).with_detail(why)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::{finding::FindingState, system::tests::Tree};

    const GOOD: [(&str, &str); 6] = [
        ("proc/sys/kernel/osrelease", "6.1.0-13-amd64\n"),
        ("proc/sys/net/core/rmem_max", "4194304\n"),
        ("proc/sys/net/core/wmem_max", "8388608\n"),
        ("proc/sys/net/core/somaxconn", "4096\n"),
        ("proc/sys/net/ipv4/igmp_max_memberships", "20\n"),
        ("proc/sys/net/ipv4/igmp_max_msf", "10\n"),
    ];

    fn of(findings: &[Finding], name: &str) -> Finding {
        let mut found = findings.iter();
        found.find(|finding| finding.name == name).unwrap().clone()
    }

    fn with(path: &str, text: &str) -> Vec<Finding> {
        let tree = Tree::of(&GOOD);
        tree.put(path, text);
        examine(&tree.system(), false)
    }

    #[test]
    fn recommended_kernel_has_no_hints() {
        for finding in examine(&Tree::of(&GOOD).system(), false) {
            assert_eq!(finding.state, FindingState::Ok, "{finding:?}");
            assert_eq!(finding.hint, "");
        }
    }

    #[test]
    fn settings_that_are_too_small_have_a_hint() {
        let found = with("proc/sys/net/core/rmem_max", "212992");
        let rmem = of(&found, "rmem_max");
        assert_eq!((rmem.state, rmem.blocks), (FindingState::Warning, false));
        assert_eq!(rmem.hint, "sysctl -w net.core.rmem_max=4194304");
        let found = with("proc/sys/net/ipv4/igmp_max_memberships", "0");
        let groups = of(&found, "igmp_max_memberships");
        assert!(groups.blocks && groups.about == [Plane::Multicast], "{groups:?}");
        let found = with("proc/sys/net/core/somaxconn", "16");
        assert_eq!(of(&found, "somaxconn").state, FindingState::Warning);
    }

    #[test]
    fn a_process_that_may_force_its_buffers_needs_no_setting() {
        let tree = Tree::of(&[("proc/sys/net/core/rmem_max", "4096")]);
        let found = examine(&tree.system(), true);
        assert_eq!(of(&found, "rmem_max").state, FindingState::Ok);
    }

    #[test]
    fn kernel_releases_are_rated() {
        for (release, state) in [
            ("6.18.44-x", FindingState::Ok),
            ("7.0", FindingState::Ok),
            ("5.15.0", FindingState::Warning),
            ("6.0.9", FindingState::Warning),
            ("4.4.0-21-generic", FindingState::Failing),
            ("six", FindingState::Unknown),
            ("6", FindingState::Unknown),
            ("99999999999999999999.1", FindingState::Unknown),
            ("", FindingState::Unknown),
        ] {
            let kernel = of(&with("proc/sys/kernel/osrelease", release), "kernel");
            assert_eq!(kernel.state, state, "{release}");
            assert_eq!(kernel.hint.is_empty(), state == FindingState::Ok, "{release}");
        }
    }

    #[test]
    fn missing_or_invalid_settings_are_unknown_with_a_reason() {
        for found in examine(&Tree::of(&[]).system(), false) {
            assert_eq!(found.state, FindingState::Unknown, "{found:?}");
            assert!(found.detail.contains("No such file"), "{found:?}");
        }
        let found = of(&with("proc/sys/net/core/somaxconn", "-7 many"), "somaxconn");
        assert_eq!(found.state, FindingState::Unknown);
        assert!(found.detail.contains("no number"), "{found:?}");
    }
}
