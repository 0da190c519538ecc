//! Counts system calls of processes with `perf`, if it is installed and permitted.

use std::{
    process::{Command, Stdio},
    sync::OnceLock,
    time::Duration,
};

const SYSCALL_EVENT: &str = "raw_syscalls:sys_enter";

/// Returns whether system calls can be counted on this machine. Tested once per process.
pub(super) fn is_available() -> bool {
    static AVAILABLE: OnceLock<bool> = OnceLock::new();
    *AVAILABLE.get_or_init(|| {
        let ran = Command::new("perf")
            .args(["stat", "-e", SYSCALL_EVENT, "--", "true"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        ran.is_ok_and(|status| status.success())
    })
}

/// Counts the system calls of `processes` for `time`; returns `None` on failure.
pub(super) fn count_syscalls(processes: &[u32], time: Duration) -> Option<u64> {
    let list: Vec<String> = processes.iter().map(ToString::to_string).collect();
    let output = Command::new("perf")
        .args(["stat", "-x", ",", "-e", SYSCALL_EVENT, "-p", &list.join(",")])
        .args(["--", "sleep", &format!("{:.3}", time.as_secs_f64())])
        .stdin(Stdio::null())
        .output()
        .ok()?;
    parse_count(&String::from_utf8_lossy(&output.stderr))
}

fn parse_count(text: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.contains(SYSCALL_EVENT))?;
    line.split(',').next()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn system_call_count_is_parsed_or_absent() {
        assert_eq!(parse_count("12345,,raw_syscalls:sys_enter,1,100.00,,\n"), Some(12_345));
        assert_eq!(parse_count("<not counted>,,raw_syscalls:sys_enter,0,0,,\n"), None);
        assert_eq!(parse_count("Error: no permission\n"), None);
    }
}
