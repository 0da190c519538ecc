//! Counts the instructions and system calls of a program that does a fixed amount of work.

use std::{path::Path, process::Command};

use crate::shell::{Failed, is_installed};

/// An instruction counter available on this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InstructionCounter {
    /// valgrind's callgrind: repeatable to 0.1 % on any machine, but thirty times slower.
    Callgrind,
    /// The processor's own counter.
    Perf,
}

impl InstructionCounter {
    /// Returns the most repeatable counter available.
    pub(crate) fn find_best() -> Result<Self, &'static str> {
        if is_installed("valgrind") {
            return Ok(Self::Callgrind);
        }
        if Self::Perf.count_instructions(Path::new("true"), &[]).is_ok_and(|count| count > 0) {
            return Ok(Self::Perf);
        }
        Err("valgrind is not installed, and this machine does not let perf count instructions")
    }

    /// Returns the counter's name. Counts of different counters are not comparable.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Callgrind => "callgrind",
            Self::Perf => "perf",
        }
    }

    /// Returns the user-mode instructions of a whole run.
    pub(crate) fn count_instructions(self, program: &Path, words: &[&str]) -> Result<u64, Failed> {
        match self {
            Self::Callgrind => {
                let mut command = Command::new("valgrind");
                command.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]);
                let told = stderr_of(command.arg(program).args(words))?;
                let line = told.lines().find_map(|line| line.split_once("Collected : "));
                parse_count(line.map(|(_, count)| count), &told)
            }
            Self::Perf => sum_perf_events(&["instructions:u".to_owned()], program, words),
        }
    }
}

/// A system call counter available on this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SyscallCounter {
    /// The kernel's own trace point.
    Perf,
    /// A tracer that stops the program at each call.
    Strace,
}

impl SyscallCounter {
    /// Returns the cheapest counter available.
    pub(crate) fn find_cheapest() -> Result<Self, &'static str> {
        if Self::Perf.count_calls(Path::new("true"), &[]).is_ok_and(|count| count > 0) {
            return Ok(Self::Perf);
        }
        if is_installed("strace") {
            return Ok(Self::Strace);
        }
        Err("neither perf nor strace can count system calls here")
    }

    /// Returns the system calls of a whole run, over all threads.
    pub(crate) fn count_calls(self, program: &Path, words: &[&str]) -> Result<u64, Failed> {
        match self {
            Self::Perf => sum_perf_events(&["raw_syscalls:sys_enter".to_owned()], program, words),
            Self::Strace => strace_total(&[], program, words),
        }
    }

    /// Returns the calls of a whole run that have one of `names`, over all threads.
    pub(crate) fn count_named(
        self,
        names: &[&str],
        program: &Path,
        words: &[&str],
    ) -> Result<u64, Failed> {
        match self {
            Self::Perf => {
                let event = |name: &&str| format!("syscalls:sys_enter_{name}");
                sum_perf_events(&names.iter().map(event).collect::<Vec<_>>(), program, words)
            }
            Self::Strace => {
                strace_total(&["-e", &format!("trace={}", names.join(","))], program, words)
            }
        }
    }
}

/// Runs the program under `perf stat` and returns the total count of `events`.
fn sum_perf_events(events: &[String], program: &Path, words: &[&str]) -> Result<u64, Failed> {
    let mut command = Command::new("perf");
    command.args(["stat", "-x", ","]);
    for event in events {
        command.args(["-e", event]);
    }
    let told = stderr_of(command.arg("--").arg(program).args(words))?;
    let count = |event: &String| {
        let line = told.lines().find(|line| line.contains(event.as_str()));
        parse_count(line.and_then(|line| line.split(',').next()), &told)
    };
    events.iter().map(count).sum()
}

/// Returns the total that the tracer prints after a whole run.
fn strace_total(which: &[&str], program: &Path, words: &[&str]) -> Result<u64, Failed> {
    let mut command = Command::new("strace");
    command.args(["-f", "-qq", "-c", "-U", "calls,name"]).args(which);
    let told = stderr_of(command.arg(program).args(words))?;
    let total = told.lines().rev().find(|line| line.ends_with("total"));
    parse_count(total, &told)
}

/// Returns a command's standard error.
fn stderr_of(command: &mut Command) -> Result<String, Failed> {
    let output = command.output()?;
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    if output.status.success() {
        Ok(told)
    } else {
        Err(Failed(format!("{command:?}: {}\n{told}", output.status)))
    }
}

fn parse_count(text: Option<&str>, told: &str) -> Result<u64, Failed> {
    let word = text.and_then(|text| text.split_whitespace().next());
    word.and_then(|word| word.replace(',', "").parse().ok())
        .ok_or_else(|| Failed(format!("no count in what it said:\n{told}")))
}
