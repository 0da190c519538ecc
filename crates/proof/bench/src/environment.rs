//! Provenance of a measured figure: program, kernel and machine.

use std::{fmt, sync::OnceLock};

use quorate_testbed::machine::MachineInfo;
use serde::Serialize;

/// Version and commit set by [`set_built_from`].
static BUILT_FROM: OnceLock<(&str, Commit)> = OnceLock::new();

/// Commit of a program, with the suffix `+changes` if its files differed from the commit; `None` if
/// unknown.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Commit(pub Option<String>);

impl fmt::Display for Commit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.as_deref().unwrap_or("unknown"))
    }
}

/// Sets the version of this program and the commit that it was built from. Must be called once,
/// before an [`Environment`] is created. They are recorded at build time because the source tree
/// may have changed since.
pub fn set_built_from(version: &'static str, commit: Option<&str>) {
    let _ = BUILT_FROM.set((version, Commit(commit.map(str::to_owned))));
}

/// Returns the version of this program, with its commit if known.
pub(crate) fn version() -> &'static str {
    BUILT_FROM.get().map_or(env!("CARGO_PKG_VERSION"), |(version, _)| version)
}

/// Program and machine of a measurement, named in every report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Environment {
    pub commit: Commit,
    /// Name and release of the kernel.
    pub kernel: String,
    /// Number of CPUs that this process may use.
    pub cpus: usize,
    /// CPU model as reported by the kernel.
    pub cpu_model: String,
}

impl Environment {
    pub fn of_this_machine() -> Self {
        let MachineInfo { kernel_release: kernel, cpu_count: cpus, cpu_model } =
            MachineInfo::of_this_machine();
        let commit = BUILT_FROM.get().map(|(_, commit)| commit.clone()).unwrap_or_default();
        Self { commit, kernel, cpus, cpu_model }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn environment_has_the_kernel_and_cpus() {
        let environment = Environment::of_this_machine();
        assert!(environment.kernel.starts_with("Linux "), "{environment:?}");
        assert!(environment.cpus > 0);
    }

    #[test]
    fn missing_commit_is_null_in_json_and_unknown_in_text() {
        let [known, unknown] = [Commit(Some("abc+changes".to_owned())), Commit(None)];
        assert_eq!(
            (known.to_string(), unknown.to_string()),
            ("abc+changes".into(), "unknown".into())
        );
        let json = serde_json::to_string(&[known, unknown]).unwrap();
        assert_eq!(json, "[\"abc+changes\",null]");
    }
}
