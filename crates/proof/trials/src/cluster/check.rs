//! Porcupine, the checker of histories: a Go program in this repository.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use quorate_testbed::{
    interrupt,
    trial::history::{Falsification, Operation, save_operations},
};

use crate::{
    go::{GoToolchain, NO_GO_MESSAGE},
    shell::{self, Failed, read_output, report_skip, workspace_root},
};

/// Exit code for a history that could not be decided in time.
const UNDECIDED_EXIT: i32 = 3;
const VIOLATION_EXIT: i32 = 4;
/// Time limit for the history of one key.
const KEY_TIME_LIMIT: &str = "60s";

/// The built checker.
pub(crate) struct Checker {
    program: PathBuf,
}

/// Verdict on a history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Linearizable,
    Violation,
    Undecided,
}

impl Checker {
    /// Builds the checker and runs its own tests. Skips with the reason if Go is missing.
    pub(crate) fn build() -> Result<(), Failed> {
        let program = checker_path();
        // An old program must not be used if the build fails.
        let _ = fs::remove_file(&program);
        let Some(go) = GoToolchain::find() else {
            return report_skip("Porcupine", NO_GO_MESSAGE);
        };
        let here = || go.go_command_in(&checker_source());
        if let Err(Failed(why)) = read_output(here().args(["mod", "download"])) {
            return report_skip("Porcupine", &format!("its source cannot be fetched: {why}"));
        }
        read_output(here().args(["test", "./..."]))?;
        read_output(here().args(["build", "-o"]).arg(&program).arg("."))?;
        Ok(())
    }

    /// Returns the built checker; `None` if its build was skipped.
    pub(crate) fn find_built() -> Option<Self> {
        let program = checker_path();
        program.is_file().then_some(Self { program })
    }

    /// Evaluates a history. Keeps its file in the folder, and a drawing if the history is wrong.
    pub(crate) fn check_history(
        &self,
        history: &[Operation],
        folder: &Path,
    ) -> Result<(Verdict, String), Failed> {
        let file = folder.join("history.jsonl");
        save_operations(history, &file)?;
        let drawing = folder.join("history.html");
        let output = Command::new(&self.program)
            .args(["-limit", KEY_TIME_LIMIT, "-html"])
            .args([&drawing, &file])
            .output()?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let verdict = match output.status.code() {
            Some(0) => Verdict::Linearizable,
            Some(UNDECIDED_EXIT) => Verdict::Undecided,
            Some(VIOLATION_EXIT) => Verdict::Violation,
            _ => {
                let error = String::from_utf8_lossy(&output.stderr);
                return Err(Failed(format!("linearizability: {}\n{text}{error}", output.status)));
            }
        };
        Ok((verdict, text))
    }

    /// Checks that the checker rejects the history after each kind of falsification. Otherwise its
    /// verdicts would prove nothing.
    pub(crate) fn check_rejects_falsified(&self, history: &[Operation]) -> Result<(), Failed> {
        let folder = tempfile::tempdir()?;
        interrupt::register_cleanup(Vec::new(), folder.path());
        for lie in Falsification::ALL {
            let twisted = lie
                .inject_into(history)
                .ok_or_else(|| Failed(format!("this history is too short for {lie:?}")))?;
            let (verdict, text) = self.check_history(&twisted, folder.path())?;
            if verdict != Verdict::Violation {
                return Err(Failed(format!("the checker takes a history with {lie:?}: {text}")));
            }
        }
        println!("  the same history with a stale read, a lost write or a lost count is refused");
        Ok(())
    }
}

fn checker_source() -> PathBuf {
    workspace_root().join("tools/linearizability")
}

fn checker_path() -> PathBuf {
    shell::build_folder().join("tools/linearizability")
}

/// Creates a folder for the evidence of a failed run.
pub(crate) fn create_evidence_folder(name: &str) -> Result<PathBuf, Failed> {
    let folder = shell::build_folder().join(format!("cluster/{name}-{}", std::process::id()));
    fs::create_dir_all(&folder)?;
    Ok(env::current_dir().map_or(folder.clone(), |here| here.join(folder)))
}
