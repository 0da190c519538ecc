//! Resource usage of this process, under the standard Prometheus names. Empty on systems that do
//! not report it.

use std::fs;

use super::Text;

/// Appends the metrics that the operating system reports.
pub(super) fn render(text: &mut Text) {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    if let Some(kib) = field(&status, "VmRSS:") {
        let help = "Memory of this process";
        text.gauge("process_resident_memory_bytes", help, kib << 10);
    }
    if let Ok(open) = fs::read_dir("/proc/self/fd") {
        text.gauge("process_open_fds", "Open files", open.count() as u64);
    }
    let limits = fs::read_to_string("/proc/self/limits").unwrap_or_default();
    if let Some(most) = field(&limits, "Max open files") {
        text.gauge("process_max_fds", "Files that may be open", most);
    }
}

/// Returns the number that follows `name` at the start of a line.
fn field(text: &str, name: &str) -> Option<u64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
    rest.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_found_by_the_words_before_it() {
        let limits =
            "Max stack size    8388608  unlimited bytes\nMax open files    1024    524288  files\n";
        assert_eq!(field(limits, "Max open files"), Some(1024));
        assert_eq!(field("VmRSS:\t   12 kB\n", "VmRSS:"), Some(12));
        assert_eq!(field("VmRSS: unlimited", "VmRSS:"), None);
        assert_eq!(field("", "VmRSS:"), None);
    }
}
