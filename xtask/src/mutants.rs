//! Mutants: faults injected on purpose. Each belongs to one runner.

use crate::{
    offload,
    shell::{self, Failed, profile_arguments, run_cargo},
};

/// Runner that plants a mutant and looks for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MutantRunner {
    /// Mutants of the protocol, found by the explorer.
    Model,
    /// All other mutants, found by the simulator or by the tests that they name.
    Sim,
    /// Mutants of devices, found by vectors and by the tests of the reference.
    Devices,
}

impl MutantRunner {
    const ALL: [Self; 3] = [Self::Model, Self::Sim, Self::Devices];

    /// Returns the crate of the mutants, below `crates`.
    const fn folder(self) -> &'static str {
        match self {
            Self::Model => "proof/model",
            Self::Sim => "proof/sim",
            Self::Devices => "proof/conformance",
        }
    }

    /// Returns cargo's arguments for the runner.
    fn runner_arguments(self) -> Vec<&'static str> {
        let quiet = ["run", "--quiet"];
        match self {
            Self::Model => [&quiet[..], &["--bin", "mutants", "--"]].concat(),
            Self::Sim => [&quiet[..], &["--example", "mutants", "--"]].concat(),
            Self::Devices => {
                [&quiet[..], &["--bin", "conformance"], profile_arguments(), &["--", "mutants"]]
                    .concat()
            }
        }
    }

    /// Returns the home of a mutant; `None` if no mutant has this name.
    pub(crate) fn for_mutant(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|home| {
            let crates = shell::workspace_root().join("crates").join(home.folder());
            crates.join("mutants").join(format!("{name}.toml")).is_file()
        })
    }
}

/// Result of the search for a mutant.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct MutantFinding {
    /// Test or run that found the mutant; `None` if it was not found.
    pub(crate) found_by: Option<String>,
    /// Duration of the search in seconds, without building.
    pub(crate) seconds: f64,
}

/// Plants one mutant and looks for it.
pub(crate) fn find_mutant(name: &str) -> Result<MutantFinding, Failed> {
    let home = MutantRunner::for_mutant(name).ok_or_else(|| unknown_mutant(name))?;
    let said =
        shell::read_output(shell::cargo_command(&home.runner_arguments()).args(["--lines", name]))?;
    parse_finding(name, &said).ok_or_else(|| Failed(format!("nothing was said of {name}: {said}")))
}

/// Parses a line with the mutant's name, the seconds and the finder.
fn parse_finding(name: &str, said: &str) -> Option<MutantFinding> {
    said.lines().find_map(|line| {
        let mut parts = line.split('\t');
        let of = parts.next()?;
        let seconds = parts.next()?.parse().ok()?;
        let by = parts.next()?;
        (of == name)
            .then(|| MutantFinding { found_by: (!by.is_empty()).then(|| by.to_owned()), seconds })
    })
}

fn unknown_mutant(name: &str) -> Failed {
    Failed(format!("no mutant is called {name}"))
}

/// Plants all mutants, or the named ones. Each must be found.
pub(crate) fn run(names: &[&str]) -> Result<(), Failed> {
    let check = names.first() == Some(&"--check");
    let names = if check { &names[1..] } else { names };
    if let Some(name) = names.iter().find(|name| MutantRunner::for_mutant(name).is_none()) {
        return Err(unknown_mutant(name));
    }
    let of = |home| -> Vec<&str> {
        let own = |name: &&&str| MutantRunner::for_mutant(name) == Some(home);
        names.iter().filter(own).copied().collect()
    };
    // A runner gets one mutant at a time, or no name to plant all of its own.
    let all = &[""][..];
    for home in [MutantRunner::Model, MutantRunner::Sim] {
        let chosen = of(home);
        for name in if names.is_empty() { all } else { &chosen } {
            // Build only the runner. It builds the mutants itself, in another folder.
            let flag = if check { "--check" } else { "" };
            let mut words = home.runner_arguments();
            words.extend([flag, name].iter().filter(|word| !word.is_empty()));
            run_cargo(&words)?;
        }
    }
    let devices = of(MutantRunner::Devices);
    if names.is_empty() || !devices.is_empty() {
        offload::run_mutants(check, &devices)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mutants_are_found_in_their_crate() {
        assert_eq!(MutantRunner::for_mutant("p2-1-vote-below-promise"), Some(MutantRunner::Model));
        assert_eq!(MutantRunner::for_mutant("window_never_shrunk"), Some(MutantRunner::Sim));
        assert_eq!(MutantRunner::for_mutant("p4-floor-falls"), Some(MutantRunner::Devices));
        assert_eq!(MutantRunner::for_mutant("p2-1"), None);
    }

    #[test]
    fn finder_is_parsed_from_the_line() {
        let said =
            "other\t1.0\tsomebody\none\t0.3\texplorer, duel: agreement, run 7\nnone\t60.0\t\n";
        let one = parse_finding("one", said).unwrap();
        assert_eq!(one.found_by.as_deref(), Some("explorer, duel: agreement, run 7"));
        assert!((one.seconds - 0.3).abs() < 1e-9);
        assert_eq!(parse_finding("none", said).unwrap().found_by, None);
        assert_eq!(parse_finding("on", said), None);
    }
}
