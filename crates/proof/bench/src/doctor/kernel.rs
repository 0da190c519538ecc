//! Kernel check: the release, and the settings that limit sockets and multicast groups.

use crate::doctor::{
    finding::Finding,
    plane::Plane,
    system::{System, UnreadableFile},
};

/// Oldest supported release, the first with UDP_SEGMENT. Earlier releases are untested.
const OLDEST: (u64, u64) = (4, 18);
/// Recommended release, which supports io_uring with a single issuer and deferred work.
const WANTED: (u64, u64) = (6, 1);
/// Receive buffer that a datagram endpoint requests, in bytes.
pub const BUFFER_BYTES: usize = 4 << 20;

/// Checks the kernel's release and settings. `forced` means that this process may exceed the buffer
/// settings.
pub fn examine(system: &System, forced: bool) -> Vec<Finding> {
    let datagrams = &[Plane::Udp, Plane::Multicast, Plane::Chain];
    let buffer = |name, why| {
        let wanted = BUFFER_BYTES as u64;
        let setting = Setting::new("net/core", name, wanted, why);
        let found = setting.setting_finding(system);
        // CAP_NET_ADMIN lets the process exceed this setting.
        let found = match forced {
            true => {
                Finding { state: crate::doctor::finding::State::Ok, hint: String::new(), ..found }
            }
            false => found,
        };
        found.about(datagrams)
    };
    let groups =
        Setting::new("net/ipv4", "igmp_max_memberships", 1, "no multicast group can be joined");
    let groups = groups.setting_finding(system);
    let groups = match groups.state {
        crate::doctor::finding::State::Warning => groups.blocks(&[Plane::Multicast]),
        _ => groups.about(&[Plane::Multicast]),
    };
    let sources =
        Setting::new("net/ipv4", "igmp_max_msf", 1, "groups cannot be filtered by source");
    let backlog = "clients that connect at once are refused";
    vec![
        release(system),
        buffer("rmem_max", "bursts of datagrams are lost"),
        buffer("wmem_max", "bursts of datagrams wait"),
        Setting::new("net/core", "somaxconn", 128, backlog)
            .setting_finding(system)
            .about(&[Plane::Tcp]),
        groups,
        sources.setting_finding(system).about(&[Plane::Multicast]),
    ]
}

fn release(system: &System) -> Finding {
    let name = "kernel";
    let hint = "Linux 6.1 or newer is recommended";
    let release = match system.read("proc/sys/kernel/osrelease") {
        Ok(release) => release,
        Err(UnreadableFile(why)) => {
            return Finding::unknown(name, "its release is unknown", hint).detail(why);
        }
    };
    let found = match version(&release) {
        None => Finding::unknown(name, "its release is not understood", hint),
        Some(version) if version < OLDEST => {
            let what = "Linux before 4.18: too old";
            Finding::failing(name, what, hint).blocks(&Plane::ALL)
        }
        Some(version) if version < WANTED => {
            Finding::warning(name, "Linux before 6.1: io_uring is absent or slower", hint)
        }
        Some((major, minor)) => Finding::ok(name, format!("Linux {major}.{minor}")),
    };
    found.detail(release.chars().take(80).collect::<String>())
}

/// Parses major and minor version: (6, 1) for `6.1.0-13-amd64`.
fn version(release: &str) -> Option<(u64, u64)> {
    let mut parts = release.split(|c: char| !c.is_ascii_digit());
    let mut number = || parts.next()?.parse().ok();
    Some((number()?, number()?))
}

/// A numeric setting in `/proc/sys` with its recommended minimum.
struct Setting {
    group: &'static str,
    name: &'static str,
    minimum: u64,
    otherwise: &'static str,
}

impl Setting {
    const fn new(
        group: &'static str,
        name: &'static str,
        minimum: u64,
        otherwise: &'static str,
    ) -> Self {
        Self { group, name, minimum, otherwise }
    }

    fn setting_finding(&self, system: &System) -> Finding {
        let Self { group, name, minimum: least, otherwise } = *self;
        let path = format!("proc/sys/{group}/{name}");
        let dotted = format!("{}.{name}", group.replace('/', "."));
        match system.number(&path) {
            Ok(value) if value >= least => Finding::ok(name, format!("{dotted} is {value}")),
            Ok(value) => {
                let what = format!("{dotted} is {value}, below {least}: {otherwise}");
                Finding::warning(name, what, format!("sysctl -w {dotted}={least}"))
            }
            Err(UnreadableFile(why)) => {
                let hint = format!("sysctl {dotted}");
                Finding::unknown(name, format!("{dotted} is unknown"), hint).detail(why)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::{finding::State, system::tests::Tree};

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
            assert_eq!(finding.state, State::Ok, "{finding:?}");
            assert_eq!(finding.hint, "");
        }
    }

    #[test]
    fn settings_that_are_too_small_have_a_hint() {
        let found = with("proc/sys/net/core/rmem_max", "212992");
        let rmem = of(&found, "rmem_max");
        assert_eq!((rmem.state, rmem.blocks), (State::Warning, false));
        assert_eq!(rmem.hint, "sysctl -w net.core.rmem_max=4194304");
        let found = with("proc/sys/net/ipv4/igmp_max_memberships", "0");
        let groups = of(&found, "igmp_max_memberships");
        assert!(groups.blocks && groups.about == [Plane::Multicast], "{groups:?}");
        let found = with("proc/sys/net/core/somaxconn", "16");
        assert_eq!(of(&found, "somaxconn").state, State::Warning);
    }

    #[test]
    fn a_process_that_may_force_its_buffers_needs_no_setting() {
        let tree = Tree::of(&[("proc/sys/net/core/rmem_max", "4096")]);
        let found = examine(&tree.system(), true);
        assert_eq!(of(&found, "rmem_max").state, State::Ok);
    }

    #[test]
    fn kernel_releases_are_rated() {
        for (release, state) in [
            ("6.18.44-x", State::Ok),
            ("7.0", State::Ok),
            ("5.15.0", State::Warning),
            ("6.0.9", State::Warning),
            ("4.4.0-21-generic", State::Failing),
            ("six", State::Unknown),
            ("6", State::Unknown),
            ("99999999999999999999.1", State::Unknown),
            ("", State::Unknown),
        ] {
            let kernel = of(&with("proc/sys/kernel/osrelease", release), "kernel");
            assert_eq!(kernel.state, state, "{release}");
            assert_eq!(kernel.hint.is_empty(), state == State::Ok, "{release}");
        }
    }

    #[test]
    fn missing_or_invalid_settings_are_unknown_with_a_reason() {
        for found in examine(&Tree::of(&[]).system(), false) {
            assert_eq!(found.state, State::Unknown, "{found:?}");
            assert!(found.detail.contains("No such file"), "{found:?}");
        }
        let found = of(&with("proc/sys/net/core/somaxconn", "-7 many"), "somaxconn");
        assert_eq!(found.state, State::Unknown);
        assert!(found.detail.contains("no number"), "{found:?}");
    }
}
