//! Clock check: source, resolution, jumps, and whether a daemon synchronizes it.
//!
//! Safety never depends on wall time. Timeouts and leases use a monotonic clock, whose source every
//! event loop reads, so a slow one delays each iteration.

use std::{thread, time::Duration};

use rustix::{
    thread::ClockId,
    time::{clock_getres, clock_gettime},
};

use crate::doctor::{
    finding::Finding,
    plane::Plane,
    system::{SystemFiles, UnreadableFile},
};

const CLOCK_SOURCE_FILE: &str = "sys/devices/system/clocksource/clocksource0/current_clocksource";
/// Clock sources that are read without a system call, within some tens of nanoseconds.
const FAST_CLOCK_SOURCES: [&str; 4] =
    ["tsc", "kvm-clock", "arch_sys_counter", "hyperv_clocksource_tsc_page"];
/// Files by which time daemons are recognised.
const TIME_DAEMON_FILES: [(&str, &str); 4] = [
    ("run/systemd/timesync/synchronized", "systemd-timesyncd"),
    ("run/chrony/chronyd.pid", "chrony"),
    ("run/chronyd.pid", "chrony"),
    ("run/ntpd.pid", "ntpd"),
];
/// Time over which wall time and monotonic time are compared.
const JUMP_TEST_DURATION: Duration = Duration::from_millis(50);
/// Difference that slewing cannot cause within [`JUMP_TEST_DURATION`].
const JUMP_NS: i64 = 1_000_000;

/// Checks the clock's source, resolution, jumps and synchronization. Takes 50 ms.
pub fn examine(system: &SystemFiles) -> Vec<Finding> {
    let before = wall_clock_drift_ns();
    thread::sleep(JUMP_TEST_DURATION);
    vec![
        source_finding(system),
        resolution_finding(to_nanos(clock_getres(ClockId::Monotonic))),
        jump_finding(wall_clock_drift_ns() - before),
        time_daemon_finding(system),
    ]
}

fn source_finding(system: &SystemFiles) -> Finding {
    let name = "clocksource";
    match system.read_text(CLOCK_SOURCE_FILE) {
        Ok(source) if FAST_CLOCK_SOURCES.contains(&&*source) => Finding::ok(name, source),
        Ok(source) if !source.is_empty() && source.len() < 64 => {
            let hint = format!(
                "echo tsc > /{CLOCK_SOURCE_FILE}, if available_clocksource in that folder lists tsc"
            );
            let what = format!("{source}: reading it may cost microseconds");
            Finding::warning(name, what, hint).with_planes(&Plane::ALL)
        }
        Ok(_) => Finding::unknown(name, "not understood", format!("cat /{CLOCK_SOURCE_FILE}")),
        Err(UnreadableFile(why)) => {
            Finding::unknown(name, "not known", format!("cat /{CLOCK_SOURCE_FILE}"))
                .with_detail(why)
        }
    }
}

fn resolution_finding(nanos: i64) -> Finding {
    let name = "resolution";
    let what = format!("the monotonic clock has a resolution of {nanos} ns");
    match nanos {
        1..=1000 => Finding::ok(name, what),
        _ => Finding::warning(name, what, "boot with highres=on").with_planes(&Plane::ALL),
    }
}

/// Evaluates the difference between the advances of wall time and monotonic time.
fn jump_finding(nanos: i64) -> Finding {
    let name = "jumps";
    if nanos.abs() < JUMP_NS {
        return Finding::ok(name, "wall time runs as fast as monotonic time");
    }
    let what = format!("wall time was set by {} ms during the check", nanos / 1_000_000);
    Finding::warning(name, what, "let a single daemon set the clock, by slewing")
        .with_detail("deadlines of keys move with it; decided values do not")
}

fn time_daemon_finding(system: &SystemFiles) -> Finding {
    let name = "clock sync";
    let found = TIME_DAEMON_FILES.iter().find(|(path, _)| system.exists(path));
    match found {
        Some((path, keeper)) => {
            Finding::ok(name, format!("set by {keeper}")).with_detail(format!("/{path}"))
        }
        None => Finding::unknown(
            name,
            "no time daemon found",
            "check with timedatectl or chronyc tracking",
        )
        .with_detail("only deadlines of keys need wall time"),
    }
}

fn to_nanos(time: rustix::time::Timespec) -> i64 {
    time.tv_sec.saturating_mul(1_000_000_000).saturating_add(time.tv_nsec)
}

fn wall_clock_drift_ns() -> i64 {
    let of = |clock| to_nanos(clock_gettime(clock));
    of(ClockId::Realtime).saturating_sub(of(ClockId::Monotonic))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::{finding::FindingState, system::tests::Tree};

    #[test]
    fn clock_sources_are_ok_slow_or_unknown() {
        let state =
            |text: &str| source_finding(&Tree::of(&[(CLOCK_SOURCE_FILE, text)]).system()).state;
        assert_eq!(state("tsc\n"), FindingState::Ok);
        assert_eq!(state("kvm-clock"), FindingState::Ok);
        assert_eq!(state("acpi_pm"), FindingState::Warning);
        assert_eq!(state("hpet"), FindingState::Warning);
        assert_eq!(state(""), FindingState::Unknown);
        assert_eq!(state(&"x".repeat(1000)), FindingState::Unknown);
        let missing = source_finding(&Tree::of(&[]).system());
        assert_eq!(missing.state, FindingState::Unknown);
        assert!(missing.detail.contains("No such file"));
    }

    #[test]
    fn coarse_clocks_and_clock_steps_are_warnings() {
        assert_eq!(resolution_finding(1).state, FindingState::Ok);
        assert_eq!(resolution_finding(4_000_000).state, FindingState::Warning);
        assert_eq!(resolution_finding(0).state, FindingState::Warning);
        assert_eq!(jump_finding(-5_000).state, FindingState::Ok);
        let set = jump_finding(-3_600_000_000_000);
        assert_eq!(set.what, "wall time was set by -3600000 ms during the check");
        assert_eq!(jump_finding(i64::MIN + 1).state, FindingState::Warning);
    }

    #[test]
    fn time_daemon_is_recognized_by_its_files() {
        let tree = Tree::of(&[("run/chrony/chronyd.pid", "1")]);
        assert_eq!(time_daemon_finding(&tree.system()).what, "set by chrony");
        assert_eq!(time_daemon_finding(&Tree::of(&[]).system()).state, FindingState::Unknown);
        assert_eq!(examine(&tree.system()).len(), 4);
    }
}
