//! What figures name of the machine that they come from, and the day.

use std::fs;

/// Kernel and CPUs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Machine {
    /// Name and release.
    pub kernel: String,
    /// CPUs that this process may use.
    pub cpus: usize,
    /// As the kernel calls it.
    pub cpu_model: String,
}

impl Machine {
    /// The one that this process is on.
    pub fn now() -> Self {
        let uname = rustix::system::uname();
        Self {
            kernel: format!(
                "{} {}",
                uname.sysname().to_string_lossy(),
                uname.release().to_string_lossy()
            ),
            cpus: std::thread::available_parallelism().map_or(1, Into::into),
            cpu_model: cpu_model(&fs::read_to_string("/proc/cpuinfo").unwrap_or_default()),
        }
    }
}

fn cpu_model(info: &str) -> String {
    let line = info.lines().find(|line| line.starts_with("model name"));
    let model = line.and_then(|line| line.split_once(':'));
    model.map_or_else(|| "unknown".to_owned(), |(_, name)| name.trim().to_owned())
}

/// Year, month and day (of the proleptic Gregorian calendar, in UTC).
pub fn date(unix_time: u64) -> String {
    let leap = |year: u64| {
        year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
    };
    let mut days = unix_time / 86_400;
    let mut year = 1970;
    while days >= 365 + u64::from(leap(year)) {
        days -= 365 + u64::from(leap(year));
        year += 1;
    }
    let february = 28 + u64::from(leap(year));
    let mut month = 1;
    for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30] {
        if days < length {
            break;
        }
        days -= length;
        month += 1;
    }
    format!("{year}-{month:02}-{:02}", days + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_model_of_the_cpu_is_found_or_unknown() {
        assert_eq!(
            cpu_model("processor: 0\nmodel name\t: Some CPU @ 2 GHz\n"),
            "Some CPU @ 2 GHz"
        );
        assert_eq!(cpu_model(""), "unknown");
    }

    #[test]
    fn dates_are_right() {
        assert_eq!(date(0), "1970-01-01");
        assert_eq!(date(951_782_400), "2000-02-29");
        assert_eq!(date(1_767_225_599), "2025-12-31");
        assert_eq!(date(1_767_225_600), "2026-01-01");
    }
}
