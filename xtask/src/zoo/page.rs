//! Generates the page `docs/zoo.md`, with a table for each area.

use std::fmt::Write as _;

use super::bugs::{Bug, BugArea, FindingRecord};

/// Path of the page.
pub(super) const PAGE_PATH: &str = "docs/zoo.md";

/// Returns the whole page.
pub(super) fn render_page(bugs: &[Bug], record: &FindingRecord) -> String {
    let mut text = render_head(bugs, record);
    for area in BugArea::ALL {
        let own: Vec<&Bug> = bugs.iter().filter(|bug| bug.area == area).collect();
        if own.is_empty() {
            continue;
        }
        let _ = writeln!(text, "\n## {}\n", area.title());
        text.push_str("| Bug | What happened | The same fault here | Found by | Seconds |\n|---|---|---|---|--:|\n");
        for bug in own {
            text.push_str(&render_row(bug, record));
        }
    }
    text
}

fn render_head(bugs: &[Bug], record: &FindingRecord) -> String {
    let count = |is: &dyn Fn(&Bug) -> bool| bugs.iter().filter(|bug| is(bug)).count();
    let planted = count(&Bug::is_planted);
    let played = count(&|bug: &Bug| bug.is_covered() && !bug.is_planted());
    let never = count(&|bug: &Bug| !bug.is_covered());
    let mut systems: Vec<&str> = bugs.iter().map(|bug| bug.system.as_str()).collect();
    systems.sort_unstable();
    systems.dedup();
    let mut text = format!(
        "<!-- Written by `cargo xtask zoo` from zoo.toml and zoo.found.toml; not edited by hand. -->\n\
         # The zoo\n\n\
         Real bugs of other consensus systems, and what finds each of them here. {all} bugs of {systems} systems and \
         papers, each with a link to its report: {planted} are planted again in this code, {played} are replayed against it as it is, \
         and {never} cannot occur, with the reason.\n\n\
         A fault is planted by a *mutant*, a patch that takes one rule out of a copy of the code \
         ([decision 3](decisions/0003-mutants-are-patches.md)). The *explorer* runs the protocol's core through random schedules \
         ([spec/model.md](spec/model.md)), the *simulator* whole clusters with their logs and stores \
         ([spec/simulator.md](spec/simulator.md)); what neither can see is left to the test named in the row. A row that names only \
         a test plants nothing: the test puts the code through what happened elsewhere. Numbers in brackets are \
         rules: [protocol](spec/protocol.md), [rings](spec/ring.md), [devices](spec/offload.md).\n\n\
         Seconds are search time, without building, on two shared cores (debug builds for the simulator and tests); figures in \
         italics were measured when the mutant was written, and a dash means not measured yet. They vary from run to run. Repeat any row by its name:\n\n\
         ```console\n\
         cargo xtask zoo                  # checks every row, and writes this page\n\
         cargo xtask zoo run              # plants everything; hours\n\
         cargo xtask zoo run {first}\n\
         ```\n",
        all = bugs.len(),
        systems = systems.len(),
        first = bugs.first().map_or("", |bug| bug.name.as_str()),
    );
    let missed_bugs: Vec<String> = bugs
        .iter()
        .filter(|bug| {
            let missed = |name: &&String| record.get(*name).is_some_and(|found| found.by.is_none());
            bug.mutants.iter().any(|name| missed(&name))
        })
        .map(|bug| format!("`{}`", bug.name))
        .collect();
    let _ = match missed_bugs.as_slice() {
        [] => writeln!(text, "\nEvery bug that was planted and searched for is found."),
        names => {
            writeln!(text, "\nPlanted, and found by **nothing** so far: {}.", names.join(", "))
        }
    };
    text
}

fn render_row(bug: &Bug, record: &FindingRecord) -> String {
    let rules: Vec<String> = bug.rules.iter().map(|rule| format!("[{rule}]")).collect();
    let here = match rules.is_empty() {
        true => bug.here.clone(),
        false => format!("{} {}", bug.here, rules.join(" ")),
    };
    let (mut by, mut seconds) = (Vec::new(), Vec::new());
    for name in bug.mutants_and_tests() {
        let found = record.get(name);
        let short = name.rsplit("::").next().unwrap_or(name);
        by.push(match found {
            _ if bug.tests.iter().any(|test| test == name) => format!("test `{short}`"),
            _ if bug.planted.iter().any(|test| test == name) => {
                format!("test `{short}`, which plants it")
            }
            None => format!("`{name}`"),
            Some(found) => match &found.by {
                Some(by) => format!("`{name}`: {}", shorten_finder(by)),
                None => format!("`{name}`: **nothing**"),
            },
        });
        seconds.push(match found {
            None => "–".to_owned(),
            Some(found) if found.earlier => format!("*{:.1}*", found.seconds),
            Some(found) => format!("{:.1}", found.seconds),
        });
    }
    let (by, seconds) = match bug.is_covered() {
        true => (by.join("<br>"), seconds.join("<br>")),
        false => ("cannot occur".to_owned(), String::new()),
    };
    format!(
        "| <a id=\"{name}\"></a>{system}, [{place}]({link}) | {what} | {here} | {by} | {seconds} |\n",
        name = bug.name,
        system = bug.system,
        place = bug.place,
        link = bug.link,
        what = bug.what,
    )
}

/// Shortens `explorer, duel: ballot, run 5` to `explorer, duel: ballot`, and replaces characters
/// that would break the table.
fn shorten_finder(by: &str) -> String {
    by.split(", run ").next().unwrap_or(by).replace('|', "/")
}
