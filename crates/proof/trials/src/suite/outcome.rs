//! Results of the tests in a unit.

use super::known::{Expectations, Reason};

/// Results of a unit.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct UnitResults {
    pub(super) name: String,
    pub(super) passed: usize,
    /// Name of each test that failed as listed, with the reason.
    pub(super) expected_failures: Vec<(String, String)>,
    /// Name of each test that failed, with the suite's message.
    pub(super) failed: Vec<(String, String)>,
    /// Name of each test that was not run or is out of scope.
    pub(super) out_of_scope: Vec<String>,
    /// Tests that passed although they are listed as failing.
    pub(super) unexpected_passes: Vec<String>,
    /// Set if the suite reached the end of the unit.
    pub(crate) is_complete: bool,
}

impl UnitResults {
    pub(crate) fn new(name: &str) -> Self {
        Self { name: name.to_owned(), ..Self::default() }
    }

    /// Parses the output of Redis' suite.
    pub(super) fn parse_output(name: &str, text: &str, known: &Expectations) -> Self {
        let mut unit = Self::new(name);
        // The suite repeats failures at the end.
        let text = text.split("\n                   The End\n").next().unwrap_or(text);
        for (status, line, details) in status_entries(text) {
            match status {
                "ok" => unit.pass(strip_duration(line), known),
                "err" => match line.rsplit_once(" in tests/unit/") {
                    Some((test, _)) => unit.fail(test, details, known),
                    None => unit.fail("between tests", &format!("{line}\n{details}"), known),
                },
                "ignore" | "skip" => unit.skip(line),
                "exception" => {
                    unit.fail("the unit breaks off", &format!("{line}\n{details}"), known);
                }
                status if status.ends_with(" done") => unit.is_complete = true,
                _ => {}
            }
        }
        unit
    }

    pub(crate) fn pass(&mut self, test: &str, known: &Expectations) {
        match known.failure_reason(&self.name, test) {
            None => self.passed += 1,
            Some(Reason::Outside(_)) => self.out_of_scope.push(test.to_owned()),
            // Some listed tests depend on timing or on random numbers.
            Some(Reason::Differs(_)) => {
                self.passed += 1;
                self.unexpected_passes.push(test.to_owned());
            }
        }
    }

    pub(crate) fn fail(&mut self, test: &str, details: &str, known: &Expectations) {
        let name = test.to_owned();
        match known.failure_reason(&self.name, test) {
            None => self.failed.push((name, details.to_owned())),
            Some(Reason::Outside(_)) => self.out_of_scope.push(name),
            Some(Reason::Differs(why)) => self.expected_failures.push((name, why.to_owned())),
        }
    }

    pub(crate) fn skip(&mut self, test: &str) {
        self.out_of_scope.push(test.to_owned());
    }

    /// Prints the failures.
    pub(crate) fn print(&self) {
        for (test, details) in &self.failed {
            println!("FAILED {}: {test}", self.name);
            let lines = details.lines().filter(|line| !line.trim().is_empty());
            lines.take(6).for_each(|line| println!("    {line}"));
        }
        for test in &self.unexpected_passes {
            println!("{}: {test} is on the list, and passes this time", self.name);
        }
        if !self.is_complete {
            println!("FAILED {}: the suite did not come to its end", self.name);
        }
    }
}

/// Returns the suite's lines `[status]: text`, each with the lines that follow it.
fn status_entries(text: &str) -> Vec<(&str, &str, &str)> {
    let starts = |line: &str| {
        let (status, rest) = line.strip_prefix('[')?.split_once("]: ")?;
        let known = ["ok", "err", "ignore", "skip", "exception"].contains(&status);
        (known || status.ends_with(" done")).then_some(rest.len())
    };
    let mut places = Vec::new();
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        if starts(line).is_some() {
            places.push(at);
        }
        at += line.len();
    }
    places.push(text.len());
    let one = |pair: &[usize]| {
        let text = text.get(*pair.first()?..*pair.last()?)?;
        let (line, details) = text.split_once('\n').unwrap_or((text, ""));
        let (status, line) = line.strip_prefix('[')?.split_once("]: ")?;
        Some((status, line, details))
    };
    places.windows(2).filter_map(one).collect()
}

/// Returns the name of a passed test, without the duration that follows it.
fn strip_duration(line: &str) -> &str {
    match line.strip_suffix(" ms)").and_then(|line| line.rsplit_once(" (")) {
        Some((name, time)) if time.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = r#"
        units = ["multi"]
        denied = []
        [[outside]]
        unit = "multi"
        why = "scripts"
        tests = ["MULTI and script*"]
        [[differs]]
        unit = "multi"
        why = "words"
        tests = ["EXEC fails", "EXEC passes"]
    "#;

    const TEXT: &str = "Starting test server at port 21079
[ready]: 4711
Testing unit/multi
[ok]: MULTI / EXEC (basics) (2 ms)
[err]: EXEC fails in tests/unit/multi.tcl
Expected 'a' to be equal to 'b'
[ok]: EXEC passes (0 ms)
[err]: WATCH in tests/unit/multi.tcl
Expected '1' to be equal to '[ok]' (context: …)
    while executing
[ignore]: SWAPDB: Not supported on singledb
[err]: MULTI and script timeout in tests/unit/multi.tcl
NOSCRIPT
[1/1 done]: unit/multi (3 seconds)

                   The End

[err]: WATCH in tests/unit/multi.tcl
";

    #[test]
    fn each_test_counts_once() {
        let known = Expectations::parse(LIST).unwrap();
        let unit = UnitResults::parse_output("multi", TEXT, &known);
        assert_eq!(unit.passed, 2);
        assert_eq!(unit.expected_failures, [("EXEC fails".to_owned(), "words".to_owned())]);
        assert_eq!(unit.unexpected_passes, ["EXEC passes"]);
        assert_eq!(unit.out_of_scope.len(), 2);
        let [(test, details)] = &*unit.failed else {
            panic!("{:?}", unit.failed);
        };
        assert_eq!(test, "WATCH");
        assert!(details.ends_with("while executing\n"));
        assert!(unit.is_complete);
    }

    #[test]
    fn unit_that_aborts_is_incomplete() {
        let known = Expectations::parse(LIST).unwrap();
        let text = "[ok]: a (1 ms)\n[exception]: Executing test client: ERR\nERR\n";
        let unit = UnitResults::parse_output("multi", text, &known);
        assert!(!unit.is_complete);
        assert_eq!((unit.passed, unit.failed.len()), (1, 1));
    }
}
