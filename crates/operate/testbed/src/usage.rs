//! Resource usage of processes and of the machine, read from /proc.

use std::{fs, path::Path};

/// Returns the number of kernel clock ticks per second of CPU time.
fn ticks_per_second() -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "100, usually")]
    let ticks = rustix::param::clock_ticks_per_second() as f64;
    ticks.max(1.0)
}

/// Resources that one or more processes have used since they started.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ResourceUsage {
    /// CPU time in user mode, in seconds.
    pub user_s: f64,
    /// CPU time in the kernel, in seconds.
    pub system_s: f64,
    /// Number of voluntary and involuntary context switches over all threads.
    pub context_switches: u64,
}

impl ResourceUsage {
    /// Returns the usage of one process; `None` if the process has ended.
    pub fn of_process(id: u32) -> Option<Self> {
        let folder = Path::new("/proc").join(id.to_string());
        let (user_s, system_s) = cpu_seconds(&fs::read_to_string(folder.join("stat")).ok()?)?;
        let mut switches = 0;
        for task in fs::read_dir(folder.join("task")).ok()? {
            // The thread may have ended in the meantime.
            if let Ok(task) = task
                && let Ok(status) = fs::read_to_string(task.path().join("status"))
            {
                switches += context_switches(&status);
            }
        }
        Some(Self { user_s, system_s, context_switches: switches })
    }

    /// Returns the CPU seconds of a process, with nanosecond precision if the kernel supports it,
    /// or else in ticks.
    pub fn precise_cpu_s(id: u32) -> Option<f64> {
        let folder = Path::new("/proc").join(id.to_string()).join("task");
        let of = |task: &fs::DirEntry| {
            match fs::read_to_string(task.path().join("schedstat")) {
                Ok(text) => nanoseconds(&text),
                // The thread ended after the directory was listed.
                Err(_) if !task.path().exists() => Some(0),
                Err(_) => None,
            }
        };
        let tasks = fs::read_dir(folder).ok()?;
        let all: Option<Vec<u64>> = tasks.flatten().map(|task| of(&task)).collect();
        let sum = all.filter(|all| !all.is_empty());
        #[expect(clippy::cast_precision_loss, reason = "a time for people")]
        let sum = sum.map(|all| all.iter().sum::<u64>() as f64 / 1e9);
        sum.or_else(|| Some(Self::of_process(id)?.cpu_s()))
    }

    /// Returns the total usage of several processes. A process that has ended counts as zero.
    pub fn of_processes(ids: &[u32]) -> Self {
        let usages = ids.iter().filter_map(|id| Self::of_process(*id));
        usages.fold(Self::default(), Self::plus)
    }

    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            user_s: self.user_s + other.user_s,
            system_s: self.system_s + other.system_s,
            context_switches: self.context_switches + other.context_switches,
        }
    }

    #[must_use]
    pub fn since(self, before: Self) -> Self {
        Self {
            user_s: (self.user_s - before.user_s).max(0.0),
            system_s: (self.system_s - before.system_s).max(0.0),
            context_switches: self.context_switches.saturating_sub(before.context_switches),
        }
    }

    /// Returns the CPU time in user mode and in the kernel, in seconds.
    pub fn cpu_s(self) -> f64 {
        self.user_s + self.system_s
    }
}

/// Parses fields 14 and 15 of `stat`. The process name in field 2 may contain any characters.
fn cpu_seconds(stat: &str) -> Option<(f64, f64)> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_ascii_whitespace().skip(11);
    let mut seconds = || -> Option<f64> {
        let ticks: f64 = fields.next()?.parse().ok()?;
        Some(ticks / ticks_per_second())
    };
    Some((seconds()?, seconds()?))
}

/// Parses the first field of `schedstat`, which is the time spent on a CPU.
fn nanoseconds(schedstat: &str) -> Option<u64> {
    schedstat.split_ascii_whitespace().next()?.parse().ok()
}

fn context_switches(status: &str) -> u64 {
    let lines = status.lines().filter_map(|line| line.split_once("ctxt_switches:"));
    lines.filter_map(|(_, count)| count.trim().parse::<u64>().ok()).sum()
}

/// CPU time of the whole machine since it started, in seconds over all CPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct MachineCpuTime {
    /// Busy time, including time taken by other virtual machines.
    pub busy_s: f64,
    /// Sum of busy and idle time.
    pub total_s: f64,
}

impl MachineCpuTime {
    /// Returns the current values; `None` if /proc is not available.
    pub fn now() -> Option<Self> {
        Self::parse(&fs::read_to_string("/proc/stat").ok()?)
    }

    fn parse(stat: &str) -> Option<Self> {
        let line = stat.lines().next()?.strip_prefix("cpu ")?;
        let ticks: Vec<f64> = line
            .split_ascii_whitespace()
            // The first two fields already include the later ones.
            .take(8)
            .filter_map(|field| field.parse().ok())
            .collect();
        let total: f64 = ticks.iter().sum();
        let idle = ticks.get(3)? + ticks.get(4)?;
        Some(Self {
            busy_s: (total - idle) / ticks_per_second(),
            total_s: total / ticks_per_second(),
        })
    }

    /// Returns the share of the machine, 0 to 1, that other processes used since `before`. `own_s`
    /// is the CPU time that the caller's processes used.
    pub fn other_processes_share(self, before: Self, own_s: f64) -> f64 {
        let total = self.total_s - before.total_s;
        let busy = self.busy_s - before.busy_s;
        if total <= 0.0 {
            return 0.0;
        }
        ((busy - own_s) / total).clamp(0.0, 1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_process_does_not_shift_its_fields() {
        let stat = "42 (a) b (c) S 1 2 3 4 5 6 7 8 9 10 250 50 0 0 20";
        let (user, system) = cpu_seconds(stat).unwrap();
        assert!((user / system - 5.0).abs() < 1e-9);
        assert_eq!(cpu_seconds("garbage"), None);
    }

    #[test]
    fn voluntary_and_involuntary_switches_are_added() {
        let status = "Name:\tx\nvoluntary_ctxt_switches:\t40\nnonvoluntary_ctxt_switches:\t2\n";
        assert_eq!(context_switches(status), 42);
    }

    #[test]
    fn time_on_a_processor_is_the_first_field() {
        assert_eq!(nanoseconds("1234567 89 10\n"), Some(1_234_567));
        assert_eq!(nanoseconds(""), None);
        assert!(ResourceUsage::precise_cpu_s(std::process::id()).is_some_and(|used| used > 0.0));
        assert_eq!(ResourceUsage::precise_cpu_s(u32::MAX), None);
    }

    #[test]
    fn usage_exists_for_this_process_but_not_an_absent_one() {
        assert!(ResourceUsage::of_process(std::process::id()).is_some());
        assert_eq!(ResourceUsage::of_process(u32::MAX), None);
    }

    #[test]
    fn cpu_time_of_other_processes_is_foreign() {
        let before = MachineCpuTime::parse("cpu  100 0 100 800 0 0 0 0 0 0\n").unwrap();
        let after = MachineCpuTime::parse("cpu  200 0 150 800 0 0 0 50 9 9\ncpu0 1\n").unwrap();
        let busy = after.busy_s - before.busy_s;
        assert!((after.other_processes_share(before, busy / 2.0) - 0.5).abs() < 1e-9);
        assert!(after.other_processes_share(before, busy * 2.0).abs() < 1e-9);
        assert!(before.other_processes_share(before, 0.0).abs() < 1e-9);
    }
}
