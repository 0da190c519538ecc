//! Bounds of a module, read from its `.cfg`: constants as TLC reads them, and further runs listed
//! in comments.
//!
//! ```text
//! \* also with Class = "volatile"                        another run, within other bounds
//! \* large with MaxSlot = 3                              the same, at night
//! \* reach NobodyDecides: …                              must break with all rules, or the model does nothing
//! \* mutant p1-2 breaks Agreement with MaxSlot = 1: …    must break without the rule
//! \* mutant-large p1-2 breaks …                          the same, at night
//! ```

use crate::shell::Failed;

/// Size of a check, which determines when it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CheckSize {
    /// Runs for every change.
    Small,
    /// Runs at night.
    Large,
}

/// Expected result of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ExpectedResult {
    /// All invariants hold.
    Holds,
    /// This invariant is violated.
    Breaks(String),
}

/// A run of TLC.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TlcCheck {
    pub(super) module: String,
    /// Name shown to the user.
    pub(super) name: String,
    /// The rule left out, if any.
    pub(super) omitted_rule: Option<String>,
    pub(super) size: CheckSize,
    pub(super) expected: ExpectedResult,
    /// Text of the configuration file for TLC.
    pub(super) text: String,
}

/// Parses all checks of a module.
pub(super) fn parse_checks(module: &str, text: &str) -> Result<Vec<TlcCheck>, Failed> {
    let plain: Vec<&str> = text.lines().filter(|line| !line.starts_with("\\*")).collect();
    let mut checks = vec![TlcCheck {
        module: module.to_owned(),
        name: module.to_owned(),
        omitted_rule: None,
        size: CheckSize::Small,
        expected: ExpectedResult::Holds,
        text: plain.join("\n"),
    }];
    for line in text.lines() {
        let words = line.strip_prefix("\\* ").unwrap_or_default();
        let (order, rest) = words.split_once(' ').unwrap_or_default();
        if ["also", "large", "reach", "mutant", "mutant-large"].contains(&order) {
            let check = parse_check(module, &plain, order, rest);
            checks
                .push(check.map_err(|Failed(why)| Failed(format!("{module}.cfg: {line}: {why}")))?);
        }
    }
    Ok(checks)
}

fn parse_check(module: &str, plain: &[&str], order: &str, rest: &str) -> Result<TlcCheck, Failed> {
    // A description for readers follows the colon.
    let told = matches!(order, "reach" | "mutant" | "mutant-large");
    let (rest, _) = match rest.rsplit_once(": ") {
        Some(parts) if told => parts,
        None if told => return Err(Failed("nothing says what it is".to_owned())),
        _ => (rest, ""),
    };
    let (head, with) = match rest.strip_prefix("with ") {
        Some(with) => ("", with),
        None => rest.split_once(" with ").unwrap_or((rest, "")),
    };
    let mut settings = parse_settings(with)?;
    let (mutant, broken) = match order {
        "mutant" | "mutant-large" => {
            let parts = head.split_once(" breaks ");
            let (mutant, broken) = parts.ok_or_else(|| Failed("nothing breaks".to_owned()))?;
            settings.push(("Mutant", format!("\"{mutant}\"")));
            (Some(mutant), Some(broken))
        }
        "reach" => (None, Some(head)),
        _ if head.is_empty() => (None, None),
        _ => return Err(Failed("expected: with NAME = VALUE".to_owned())),
    };
    let name = match (order, mutant) {
        (_, Some(mutant)) => format!("{module} without {mutant}"),
        ("reach", _) => format!("{module} reaches what {head} denies"),
        _ => format!("{module}, {with}"),
    };
    Ok(TlcCheck {
        module: module.to_owned(),
        name,
        omitted_rule: mutant.map(str::to_owned),
        size: if order.ends_with("large") { CheckSize::Large } else { CheckSize::Small },
        expected: broken
            .map_or(ExpectedResult::Holds, |broken| ExpectedResult::Breaks(broken.to_owned())),
        text: changed_bounds(plain, &settings, broken)?,
    })
}

/// Parses `A = {1, 2}, B = 3`; sets may contain commas.
fn parse_settings(text: &str) -> Result<Vec<(&str, String)>, Failed> {
    let mut settings: Vec<(&str, String)> = Vec::new();
    for part in text.split(", ").filter(|part| !part.is_empty()) {
        match (part.split_once(" = "), settings.last_mut()) {
            (Some((name, value)), _) => settings.push((name, value.to_owned())),
            (None, Some((_, value))) => {
                value.push_str(", ");
                value.push_str(part);
            }
            (None, None) => return Err(Failed(format!("{part} is no setting"))),
        }
    }
    Ok(settings)
}

/// Changes constants of the bounds. Keeps a single invariant if that one is expected to break.
fn changed_bounds(
    plain: &[&str],
    settings: &[(&str, String)],
    broken: Option<&str>,
) -> Result<String, Failed> {
    let mut lines: Vec<String> = plain.iter().map(|&line| line.to_owned()).collect();
    for (name, value) in settings {
        let begin = format!("  {name} = ");
        let line = lines.iter_mut().find(|line| line.starts_with(&begin));
        let line = line.ok_or_else(|| Failed(format!("no constant is called {name}")))?;
        *line = begin + value;
    }
    if let Some(broken) = broken {
        let line = lines.iter_mut().find(|line| line.starts_with("INVARIANTS "));
        let line = line.ok_or_else(|| Failed("no line INVARIANTS".to_owned()))?;
        *line = format!("INVARIANT {broken}");
    }
    Ok(lines.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\\* Words.\n\\* also with Nodes = {1, 2}, MaxSlot = 2\n\\* mutant p1-2 told breaks One with \
                        MaxSlot = 3: a promise is told\n\\* reach Nothing: something happens\nCONSTANTS\n  Nodes = \
                        {1}\n  MaxSlot = 1\n  Mutant = \"none\"\nINVARIANTS One Two";

    #[test]
    fn comments_define_additional_runs() {
        let checks = parse_checks("M", TEXT).unwrap();
        let names: Vec<&str> = checks.iter().map(|check| check.name.as_str()).collect();
        assert_eq!(
            names,
            [
                "M",
                "M, Nodes = {1, 2}, MaxSlot = 2",
                "M without p1-2 told",
                "M reaches what Nothing denies"
            ]
        );
        assert_eq!(
            checks[1].text,
            "CONSTANTS\n  Nodes = {1, 2}\n  MaxSlot = 2\n  Mutant = \"none\"\nINVARIANTS One Two"
        );
        assert_eq!(checks[2].omitted_rule.as_deref(), Some("p1-2 told"));
        assert_eq!(
            checks[2].text,
            "CONSTANTS\n  Nodes = {1}\n  MaxSlot = 3\n  Mutant = \"p1-2 told\"\nINVARIANT One"
        );
        assert_eq!(checks[3].expected, ExpectedResult::Breaks("Nothing".to_owned()));
    }

    #[test]
    fn invalid_run_definitions_are_refused() {
        for (line, why) in [
            ("also with Other = 1", "no constant is called Other"),
            ("also MaxSlot = 2", "expected: with NAME = VALUE"),
            ("mutant p1-2 breaks One", "nothing says what it is"),
            ("mutant p1-2: words", "nothing breaks"),
            ("also with 1", "1 is no setting"),
        ] {
            let text = format!("\\* {line}\n{TEXT}");
            let said = parse_checks("M", &text).unwrap_err().to_string();
            assert!(said.ends_with(why), "{said}");
        }
    }
}
