//! Faults that are planted on purpose, by the runner that each belongs to.

use crate::{
    offload,
    shell::{self, Failed, cargo, profile},
};

/// Home of a mutant, which plants it and looks for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Home {
    /// Mutants of the protocol: the explorer.
    Model,
    /// Mutants of everything else: the simulator, or tests that they name.
    Sim,
    /// Mutants of devices: vectors, and the tests of the reference.
    Devices,
}

impl Home {
    const ALL: [Self; 3] = [Self::Model, Self::Sim, Self::Devices];

    /// The crate that has them, in `crates`.
    const fn folder(self) -> &'static str {
        match self {
            Self::Model => "proof/model",
            Self::Sim => "proof/sim",
            Self::Devices => "proof/conformance",
        }
    }

    /// Returns cargo's arguments for its runner.
    fn runner(self) -> Vec<&'static str> {
        let quiet = ["run", "--quiet"];
        match self {
            Self::Model => [&quiet[..], &["--bin", "mutants", "--"]].concat(),
            Self::Sim => [&quiet[..], &["--example", "mutants", "--"]].concat(),
            Self::Devices => {
                [&quiet[..], &["--bin", "conformance"], profile(), &["--", "mutants"]].concat()
            }
        }
    }

    /// Returns the home of this mutant; `None` if there is none of that name.
    pub(crate) fn of(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|home| {
            let crates = shell::root().join("crates").join(home.folder());
            crates.join("mutants").join(format!("{name}.toml")).is_file()
        })
    }
}

/// Result of the search for a mutant.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Finding {
    /// The test or run that found it; `None` if it was not found.
    pub(crate) by: Option<String>,
    /// Duration of the search, without building.
    pub(crate) seconds: f64,
}

/// Plants one, and looks for it.
pub(crate) fn look(name: &str) -> Result<Finding, Failed> {
    let home = Home::of(name).ok_or_else(|| unknown(name))?;
    let said = shell::read(shell::cargo_command(&home.runner()).args(["--lines", name]))?;
    finding(name, &said).ok_or_else(|| Failed(format!("nothing was said of {name}: {said}")))
}

/// A line has name, seconds and finder.
fn finding(name: &str, said: &str) -> Option<Finding> {
    said.lines().find_map(|line| {
        let mut parts = line.split('\t');
        let of = parts.next()?;
        let seconds = parts.next()?.parse().ok()?;
        let by = parts.next()?;
        (of == name).then(|| Finding { by: (!by.is_empty()).then(|| by.to_owned()), seconds })
    })
}

fn unknown(name: &str) -> Failed {
    Failed(format!("no mutant is called {name}"))
}

/// Plants all of them, or those with these names; each must be found.
pub(crate) fn run(names: &[&str]) -> Result<(), Failed> {
    let check = names.first() == Some(&"--check");
    let names = if check { &names[1..] } else { names };
    if let Some(name) = names.iter().find(|name| Home::of(name).is_none()) {
        return Err(unknown(name));
    }
    let of = |home| -> Vec<&str> {
        let own = |name: &&&str| Home::of(name) == Some(home);
        names.iter().filter(own).copied().collect()
    };
    // One is given to a runner at a time; none stands for all of its own.
    let all = &[""][..];
    for home in [Home::Model, Home::Sim] {
        let chosen = of(home);
        for name in if names.is_empty() { all } else { &chosen } {
            // The runner alone; what it plants is built by itself, elsewhere.
            let flag = if check { "--check" } else { "" };
            let mut words = home.runner();
            words.extend([flag, name].iter().filter(|word| !word.is_empty()));
            cargo(&words)?;
        }
    }
    let devices = of(Home::Devices);
    if names.is_empty() || !devices.is_empty() {
        offload::mutants(check, &devices)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mutants_are_found_where_they_are() {
        assert_eq!(Home::of("p2-1-vote-below-promise"), Some(Home::Model));
        assert_eq!(Home::of("window_never_shrunk"), Some(Home::Sim));
        assert_eq!(Home::of("p4-floor-falls"), Some(Home::Devices));
        assert_eq!(Home::of("p2-1"), None);
    }

    #[test]
    fn a_line_says_who_found_it() {
        let said =
            "other\t1.0\tsomebody\none\t0.3\texplorer, duel: agreement, run 7\nnone\t60.0\t\n";
        let one = finding("one", said).unwrap();
        assert_eq!(one.by.as_deref(), Some("explorer, duel: agreement, run 7"));
        assert!((one.seconds - 0.3).abs() < 1e-9);
        assert_eq!(finding("none", said).unwrap().by, None);
        assert_eq!(finding("on", said), None);
    }
}
