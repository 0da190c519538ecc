//! Memory and CPU time of this process, as reported by Linux.

use std::fs;

use quorate_kv::front::{CpuTime, Memory};

/// Returns the memory use of this process. All figures are 0 if the system does not report them.
pub(crate) fn process_memory() -> Memory {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let machine = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    Memory {
        resident_bytes: parse_kb_field(&status, "VmRSS"),
        peak_bytes: parse_kb_field(&status, "VmHWM"),
        system_bytes: parse_kb_field(&machine, "MemTotal"),
    }
}

/// Returns the CPU time of this process, or 0 if the system does not report it.
pub(crate) fn process_cpu_time() -> CpuTime {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    parse_cpu_times(&stat, rustix::param::clock_ticks_per_second()).unwrap_or_default()
}

/// Parses the size in a line such as `VmRSS:   1234 kB`, in bytes.
fn parse_kb_field(text: &str, name: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    let number = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    number.map_or(0, |kib| kib.saturating_mul(1024))
}

fn parse_cpu_times(stat: &str, ticks_per_second: u64) -> Option<CpuTime> {
    // The name of the program is in parentheses, and may contain spaces and parentheses.
    let (_, rest) = stat.rsplit_once(") ")?;
    let mut fields = rest.split_whitespace().skip(11);
    let mut ms =
        || fields.next()?.parse::<u64>().ok()?.checked_mul(1000)?.checked_div(ticks_per_second);
    let user_ms = ms()?;
    Some(CpuTime { user_ms, system_ms: ms()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_by_their_full_names() {
        let text = "VmRSSx:\t1 kB\nVmRSS:\t  12 kB\nVmHWM: x\n";
        assert_eq!(
            (
                parse_kb_field(text, "VmRSS"),
                parse_kb_field(text, "VmHWM"),
                parse_kb_field(text, "None")
            ),
            (12_288, 0, 0)
        );
        let memory = process_memory();
        assert!(memory.resident_bytes > 0 && memory.peak_bytes >= memory.resident_bytes);
        assert!(memory.system_bytes > memory.resident_bytes);
    }

    #[test]
    fn times_follow_the_name_of_the_program() {
        let stat = "7 (a) b (c) S 1 2 3 4 5 6 7 8 9 10 1100 12 13 14 15";
        assert_eq!(parse_cpu_times(stat, 100), Some(CpuTime { user_ms: 11_000, system_ms: 120 }));
        assert_eq!(parse_cpu_times(stat, 0), None);
        assert_eq!(parse_cpu_times("7 (a) S 1 2", 100), None);
    }
}
