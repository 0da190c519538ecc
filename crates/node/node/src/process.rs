//! This process's resource usage in the Prometheus text format, under the standard names, as far as
//! the system reports it. Reads files, so call it on a thread that may block.

use std::{
    fmt::{Display, Write as _},
    fs,
};

pub fn render(out: &mut String) {
    let mut metric = |name, help, kind, value: &dyn Display| {
        let _ = writeln!(out, "# HELP {name} {help}.\n# TYPE {name} {kind}\n{name} {value}");
    };
    let read = |file: &str| fs::read_to_string(file).unwrap_or_default();
    if let Some(kib) = parse_field(&read("/proc/self/status"), "VmRSS:") {
        metric("process_resident_memory_bytes", "Memory of this process", "gauge", &(kib << 10));
    }
    if let Ok(open) = fs::read_dir("/proc/self/fd") {
        metric("process_open_fds", "Open files", "gauge", &open.count());
    }
    if let Some(most) = parse_field(&read("/proc/self/limits"), "Max open files") {
        metric("process_max_fds", "Files that may be open", "gauge", &most);
    }
    let ticks = rustix::param::clock_ticks_per_second();
    let Some((used, begun)) = cpu_and_start_ticks(&read("/proc/self/stat")).filter(|_| ticks > 0)
    else {
        return;
    };
    let hundredths = used.saturating_mul(100) / ticks;
    let seconds = format!("{}.{:02}", hundredths / 100, hundredths % 100);
    metric("process_cpu_seconds_total", "CPU time of this process", "counter", &seconds);
    if let Some(boot) = parse_field(&read("/proc/stat"), "btime") {
        let begun = boot.saturating_add(begun / ticks);
        let help = "When this process started, in seconds since 1970";
        metric("process_start_time_seconds", help, "gauge", &begun);
    }
}

/// Returns the number that follows `name` at the start of a line.
fn parse_field(text: &str, name: &str) -> Option<u64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
    rest.split_whitespace().next()?.parse().ok()
}

/// Returns the CPU time of a process, and the time of its start since boot, both in clock ticks.
fn cpu_and_start_ticks(stat: &str) -> Option<(u64, u64)> {
    // The name of the program is in parentheses, and may contain spaces and parentheses.
    let (_, rest) = stat.rsplit_once(") ")?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    let number = |at: usize| fields.get(at)?.parse::<u64>().ok();
    Some((number(11)?.checked_add(number(12)?)?, number(19)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn field_is_found_by_its_label() {
        let limits =
            "Max stack size    8388608  unlimited bytes\nMax open files    1024    524288  files\n";
        assert_eq!(parse_field(limits, "Max open files"), Some(1024));
        assert_eq!(parse_field("VmRSS:\t   12 kB\n", "VmRSS:"), Some(12));
        assert_eq!(parse_field("VmRSS: unlimited", "VmRSS:"), None);
        assert_eq!(parse_field("", "VmRSS:"), None);
    }

    #[test]
    fn times_are_parsed_after_the_program_name() {
        let stat = "7 (a) b (c) S 1 2 3 4 5 6 7 8 9 10 1100 12 13 14 15 16 17 18 4200 20 21";
        assert_eq!(cpu_and_start_ticks(stat), Some((1112, 4200)));
        assert_eq!(cpu_and_start_ticks("7 (a) S 1 2"), None);
        assert_eq!(cpu_and_start_ticks(""), None);
    }

    #[test]
    fn process_metrics_are_present_and_not_negative() {
        let mut text = String::new();
        render(&mut text);
        for name in ["cpu_seconds_total", "start_time_seconds", "open_fds", "max_fds"] {
            let lines = text.lines().filter(|line| line.starts_with(&format!("process_{name} ")));
            let [line] = lines.collect::<Vec<_>>()[..] else { panic!("{name}: {text}") };
            let value: f64 = line.rsplit_once(' ').unwrap().1.parse().unwrap();
            assert!(value >= 0.0, "{line}");
        }
    }
}
