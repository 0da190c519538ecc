//! Description of the machine on which published figures were measured.

use std::fs;

/// Kernel and CPUs of the machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MachineInfo {
    /// Name and release of the kernel.
    pub kernel_release: String,
    /// Number of CPUs that this process may use.
    pub cpu_count: usize,
    pub cpu_model: String,
}

impl MachineInfo {
    pub fn of_this_machine() -> Self {
        let uname = rustix::system::uname();
        Self {
            kernel_release: format!(
                "{} {}",
                uname.sysname().to_string_lossy(),
                uname.release().to_string_lossy()
            ),
            cpu_count: std::thread::available_parallelism().map_or(1, Into::into),
            cpu_model: cpu_model(&fs::read_to_string("/proc/cpuinfo").unwrap_or_default()),
        }
    }
}

fn cpu_model(info: &str) -> String {
    let line = info.lines().find(|line| line.starts_with("model name"));
    let model = line.and_then(|line| line.split_once(':'));
    model.map_or_else(|| "unknown".to_owned(), |(_, name)| name.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_model_is_parsed_or_unknown() {
        assert_eq!(cpu_model("processor: 0\nmodel name\t: Some CPU @ 2 GHz\n"), "Some CPU @ 2 GHz");
        assert_eq!(cpu_model(""), "unknown");
    }
}
