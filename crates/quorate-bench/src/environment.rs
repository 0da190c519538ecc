//! Where a figure comes from: program, kernel, machine.

use std::{
    env, fs,
    path::Path,
    process::{Command, Stdio},
    time::UNIX_EPOCH,
};

use serde::Serialize;

/// What every report names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Environment {
    /// The commit of the source tree. `+changes` if it had changes that are not committed, `?` if
    /// the program is older than the commit.
    pub commit: String,
    /// Name and release.
    pub kernel: String,
    /// CPUs that this process may use.
    pub cpus: usize,
    /// As the kernel calls it.
    pub cpu_model: String,
}

impl Environment {
    /// Of this process.
    pub fn now() -> Self {
        let uname = rustix::system::uname();
        let kernel = format!(
            "{} {}",
            uname.sysname().to_string_lossy(),
            uname.release().to_string_lossy()
        );
        let cpus = std::thread::available_parallelism().map_or(1, Into::into);
        Self {
            commit: commit(),
            kernel,
            cpus,
            cpu_model: cpu_model(&fs::read_to_string("/proc/cpuinfo").unwrap_or_default()),
        }
    }
}

fn cpu_model(info: &str) -> String {
    let line = info.lines().find(|line| line.starts_with("model name"));
    let model = line.and_then(|line| line.split_once(':'));
    model.map_or_else(|| "unknown".to_owned(), |(_, name)| name.trim().to_owned())
}

/// Asked of git when the program runs: a build that noted it would be made anew at every commit.
fn commit() -> String {
    let Some(shown) = git(&["log", "-1", "--format=%h %ct"]) else {
        return format!("{} (no source tree)", env!("CARGO_PKG_VERSION"));
    };
    let (hash, time) = shown.split_once(' ').unwrap_or((&shown, "0"));
    let changed = git(&["status", "--porcelain", "--untracked-files=no"]);
    let changes = if changed.is_some_and(|changed| changed.is_empty()) {
        ""
    } else {
        "+changes"
    };
    let built = env::current_exe().and_then(|path| path.metadata()?.modified());
    let built = built.ok().and_then(|at| at.duration_since(UNIX_EPOCH).ok());
    let older = built.is_none_or(|built| time.parse::<u64>().is_ok_and(|at| built.as_secs() < at));
    format!("{hash}{changes}{}", if older { "?" } else { "" })
}

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git")
        .arg("-C")
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")))
        .args(arguments)
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
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
    fn the_environment_names_all_that_it_should() {
        let environment = Environment::now();
        assert!(environment.kernel.starts_with("Linux "), "{environment:?}");
        assert!(environment.cpus > 0 && !environment.commit.is_empty());
    }
}
