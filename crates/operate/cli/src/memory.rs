//! Memory use of this process, as reported by Linux.

use std::fs;

use quorate_kv::front::Memory;

/// Returns the memory use of this process. All figures are 0 if the system does not report them.
pub(crate) fn read() -> Memory {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let machine = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    Memory {
        resident_bytes: field(&status, "VmRSS"),
        peak_bytes: field(&status, "VmHWM"),
        system_bytes: field(&machine, "MemTotal"),
    }
}

/// Parses the size in a line such as `VmRSS:   1234 kB`, in bytes.
fn field(text: &str, name: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    let number = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    number.map_or(0, |kib| kib.saturating_mul(1024))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_by_their_whole_names() {
        let text = "VmRSSx:\t1 kB\nVmRSS:\t  12 kB\nVmHWM: x\n";
        assert_eq!(
            (field(text, "VmRSS"), field(text, "VmHWM"), field(text, "None")),
            (12_288, 0, 0)
        );
        let memory = read();
        assert!(memory.resident_bytes > 0 && memory.peak_bytes >= memory.resident_bytes);
        assert!(memory.system_bytes > memory.resident_bytes);
    }
}
