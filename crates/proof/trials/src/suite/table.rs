//! Table of results by unit, and the verdict.

use super::{known::Expectations, outcome::UnitResults};
use crate::shell::Failed;

/// Prints the table. An error names the required changes. `list` is the path of the expectations
/// file.
pub(crate) fn print_verdict(
    units: &[UnitResults],
    list: &str,
    known: &Expectations,
) -> Result<(), Failed> {
    for line in table_lines(units) {
        println!("{line}");
    }
    check_verdict(units, list, known.percent_min)
}

fn table_lines(units: &[UnitResults]) -> Vec<String> {
    let names = units.iter().map(|unit| unit.name.len());
    let width = names.max().unwrap_or_default().max(16);
    let row = |name: &str, [passed, differs, failed, outside]: [usize; 4]| {
        let all = passed + differs + failed;
        let percent = if all == 0 { 100.0 } else { 100.0 * percent_of(passed, all) };
        format!("{name:<width$} {passed:>6} {differs:>8} {failed:>7} {percent:>6.1} % {outside:>9}")
    };
    let heads = ["unit", "passed", "differs", "failed", "of those", "not tried"];
    let [unit, passed, differs, failed, percent, outside] = heads;
    let mut lines = vec![format!(
        "{unit:<width$} {passed:>6} {differs:>8} {failed:>7} {percent:>8} {outside:>9}"
    )];
    lines.extend(units.iter().map(|unit| row(&unit.name, unit_counts(unit))));
    lines.push(row("in all", sum_counts(units)));
    lines
}

fn unit_counts(unit: &UnitResults) -> [usize; 4] {
    [unit.passed, unit.expected_failures.len(), unit.failed.len(), unit.out_of_scope.len()]
}

fn sum_counts(units: &[UnitResults]) -> [usize; 4] {
    units
        .iter()
        .map(unit_counts)
        .fold([0; 4], |sum, unit| std::array::from_fn(|at| sum[at] + unit[at]))
}

fn percent_of(part: usize, all: usize) -> f64 {
    let number = |count: usize| f64::from(u32::try_from(count).unwrap_or(u32::MAX));
    number(part) / number(all)
}

fn check_verdict(units: &[UnitResults], list: &str, percent_min: usize) -> Result<(), Failed> {
    let [passed, differs, failed, _] = sum_counts(units);
    let mut faults = Vec::new();
    let torn: Vec<&str> =
        units.iter().filter(|unit| !unit.is_complete).map(|unit| unit.name.as_str()).collect();
    if !torn.is_empty() {
        faults.push(format!("not run to their end: {}", torn.join(", ")));
    }
    if failed > 0 {
        faults.push(format!("{failed} tests fail that are not in {list}"));
    }
    if passed * 100 < percent_min * (passed + differs + failed) {
        faults.push(format!("fewer than {percent_min} % of the tests in scope pass"));
    }
    if faults.is_empty() { Ok(()) } else { Err(Failed(faults.join("; "))) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unit(passed: usize, differs: usize) -> UnitResults {
        UnitResults {
            name: "scan".to_owned(),
            passed,
            expected_failures: vec![("a".to_owned(), "words".to_owned()); differs],
            is_complete: true,
            ..UnitResults::default()
        }
    }

    #[test]
    fn the_table_has_a_row_for_each_unit_and_their_sum() {
        assert_eq!(
            table_lines(&[unit(97, 1), unit(2, 0)]),
            [
                "unit             passed  differs  failed of those not tried",
                "scan                 97        1       0   99.0 %         0",
                "scan                  2        0       0  100.0 %         0",
                "in all               99        1       0   99.0 %         0",
            ]
        );
    }

    #[test]
    fn low_pass_rate_or_unexpected_failure_is_an_error() {
        assert!(check_verdict(&[unit(95, 5)], "list", 95).is_ok());
        assert!(check_verdict(&[unit(94, 6)], "list", 95).is_err());
        let mut torn = unit(1, 0);
        torn.is_complete = false;
        assert!(check_verdict(&[torn], "list", 95).is_err());
        let mut failed = unit(1000, 0);
        failed.failed = vec![("c".to_owned(), String::new())];
        assert!(check_verdict(&[failed], "list", 95).is_err());
    }
}
