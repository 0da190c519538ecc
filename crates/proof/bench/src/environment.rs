//! Origin of a figure: program, kernel, machine.

use std::{fmt, sync::OnceLock};

use quorate_testbed::machine::Machine;
use serde::Serialize;

/// Argument of [`built_from`].
static BUILT_FROM: OnceLock<Commit> = OnceLock::new();

/// The commit of a program, with `+changes` if its files differed; `None` if unknown.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Commit(pub Option<String>);

impl fmt::Display for Commit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.as_deref().unwrap_or("unknown"))
    }
}

/// The program says what it is made of, once, before it asks for an [`Environment`]: it was noted
/// when it was built. The source tree, if there is one, may have moved on since.
pub fn built_from(commit: Option<&str>) {
    let _ = BUILT_FROM.set(Commit(commit.map(str::to_owned)));
}

/// Environment named by every report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Environment {
    /// The commit that the program is made of.
    pub commit: Commit,
    /// Name and release.
    pub kernel: String,
    /// CPUs that this process may use.
    pub cpus: usize,
    /// As the kernel calls it.
    pub cpu_model: String,
}

impl Environment {
    /// Returns the environment of this process.
    pub fn now() -> Self {
        let Machine { kernel, cpus, cpu_model } = Machine::now();
        Self { commit: BUILT_FROM.get().cloned().unwrap_or_default(), kernel, cpus, cpu_model }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_names_all_that_it_should() {
        let environment = Environment::now();
        assert!(environment.kernel.starts_with("Linux "), "{environment:?}");
        assert!(environment.cpus > 0);
    }

    #[test]
    fn a_commit_that_nobody_noted_is_null_and_unknown() {
        let [known, unknown] = [Commit(Some("abc+changes".to_owned())), Commit(None)];
        assert_eq!(
            (known.to_string(), unknown.to_string()),
            ("abc+changes".into(), "unknown".into())
        );
        let json = serde_json::to_string(&[known, unknown]).unwrap();
        assert_eq!(json, "[\"abc+changes\",null]");
    }
}
