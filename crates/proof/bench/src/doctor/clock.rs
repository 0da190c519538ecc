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
    system::{System, UnreadableFile},
};

const SOURCE: &str = "sys/devices/system/clocksource/clocksource0/current_clocksource";
/// Clock sources that are read without a system call, within some tens of nanoseconds.
const FAST: [&str; 4] = ["tsc", "kvm-clock", "arch_sys_counter", "hyperv_clocksource_tsc_page"];
/// Files by which time daemons are recognised.
const KEEPERS: [(&str, &str); 4] = [
    ("run/systemd/timesync/synchronized", "systemd-timesyncd"),
    ("run/chrony/chronyd.pid", "chrony"),
    ("run/chronyd.pid", "chrony"),
    ("run/ntpd.pid", "ntpd"),
];
/// Time over which wall time and monotonic time are compared.
const LOOK: Duration = Duration::from_millis(50);
/// Difference that slewing cannot cause within [`LOOK`].
const JUMP_NS: i64 = 1_000_000;

/// Checks the clock's source, resolution, jumps and synchronization. Takes 50 ms.
pub fn examine(system: &System) -> Vec<Finding> {
    let before = wall_clock_drift();
    thread::sleep(LOOK);
    vec![
        source(system),
        resolution(nanos(clock_getres(ClockId::Monotonic))),
        jumps(wall_clock_drift() - before),
        keeper(system),
    ]
}

fn source(system: &System) -> Finding {
    let name = "clocksource";
    match system.read(SOURCE) {
        Ok(source) if FAST.contains(&&*source) => Finding::ok(name, source),
        Ok(source) if !source.is_empty() && source.len() < 64 => {
            let hint =
                format!("echo tsc > /{SOURCE}, if available_clocksource in that folder lists tsc");
            let what = format!("{source}: reading it may cost microseconds");
            Finding::warning(name, what, hint).about(&Plane::ALL)
        }
        Ok(_) => Finding::unknown(name, "not understood", format!("cat /{SOURCE}")),
        Err(UnreadableFile(why)) => {
            Finding::unknown(name, "not known", format!("cat /{SOURCE}")).detail(why)
        }
    }
}

fn resolution(nanos: i64) -> Finding {
    let name = "resolution";
    let what = format!("the monotonic clock has a resolution of {nanos} ns");
    match nanos {
        1..=1000 => Finding::ok(name, what),
        _ => Finding::warning(name, what, "boot with highres=on").about(&Plane::ALL),
    }
}

/// Evaluates the difference between the advances of wall time and monotonic time.
fn jumps(nanos: i64) -> Finding {
    let name = "jumps";
    if nanos.abs() < JUMP_NS {
        return Finding::ok(name, "wall time runs as fast as monotonic time");
    }
    let what = format!("wall time was set by {} ms during the check", nanos / 1_000_000);
    Finding::warning(name, what, "let a single daemon set the clock, by slewing")
        .detail("deadlines of keys move with it; decided values do not")
}

fn keeper(system: &System) -> Finding {
    let name = "clock sync";
    let found = KEEPERS.iter().find(|(path, _)| system.exists(path));
    match found {
        Some((path, keeper)) => {
            Finding::ok(name, format!("set by {keeper}")).detail(format!("/{path}"))
        }
        None => Finding::unknown(
            name,
            "no time daemon found",
            "check with timedatectl or chronyc tracking",
        )
        .detail("only deadlines of keys need wall time"),
    }
}

fn nanos(time: rustix::time::Timespec) -> i64 {
    time.tv_sec.saturating_mul(1_000_000_000).saturating_add(time.tv_nsec)
}

fn wall_clock_drift() -> i64 {
    let of = |clock| nanos(clock_gettime(clock));
    of(ClockId::Realtime).saturating_sub(of(ClockId::Monotonic))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::{finding::State, system::tests::Tree};

    #[test]
    fn clock_sources_are_ok_slow_or_unknown() {
        let state = |text: &str| source(&Tree::of(&[(SOURCE, text)]).system()).state;
        assert_eq!(state("tsc\n"), State::Ok);
        assert_eq!(state("kvm-clock"), State::Ok);
        assert_eq!(state("acpi_pm"), State::Warning);
        assert_eq!(state("hpet"), State::Warning);
        assert_eq!(state(""), State::Unknown);
        assert_eq!(state(&"x".repeat(1000)), State::Unknown);
        let missing = source(&Tree::of(&[]).system());
        assert_eq!(missing.state, State::Unknown);
        assert!(missing.detail.contains("No such file"));
    }

    #[test]
    fn coarse_clocks_and_clock_steps_are_warnings() {
        assert_eq!(resolution(1).state, State::Ok);
        assert_eq!(resolution(4_000_000).state, State::Warning);
        assert_eq!(resolution(0).state, State::Warning);
        assert_eq!(jumps(-5_000).state, State::Ok);
        let set = jumps(-3_600_000_000_000);
        assert_eq!(set.what, "wall time was set by -3600000 ms during the check");
        assert_eq!(jumps(i64::MIN + 1).state, State::Warning);
    }

    #[test]
    fn time_daemon_is_recognized_by_its_files() {
        let tree = Tree::of(&[("run/chrony/chronyd.pid", "1")]);
        assert_eq!(keeper(&tree.system()).what, "set by chrony");
        assert_eq!(keeper(&Tree::of(&[]).system()).state, State::Unknown);
        assert_eq!(examine(&tree.system()).len(), 4);
    }
}
