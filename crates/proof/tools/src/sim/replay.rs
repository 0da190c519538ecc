//! `quorate sim --page FILE`: writes a recorded run as an animated page in a single file.

use std::{fs, path::Path};

use quorate_core::record::Class;
use quorate_sim::{
    check::Violation,
    faults::RunSettings,
    story::{self, StoryStart},
};
use serde::Serialize;

use quorate_cli::output::{Exit, Output, Problem};

/// Default seed for the animation. `docs/stories/` shows the same run.
const DEFAULT_SEED: u64 = 2;
/// Template of the page. Two comments in it are replaced.
const PAGE_TEMPLATE: &str = include_str!("replay.html");

/// Recorded run in the form that the page reads.
#[derive(Serialize)]
struct RecordedRun {
    seed: u64,
    leader: u32,
    ballot: String,
    decided: u64,
    lines: Vec<String>,
}

/// Result of `quorate sim --page`.
#[derive(Serialize)]
struct WrittenPage {
    page: String,
    seed: u64,
    events: usize,
}

/// Runs the story and writes the page. Without a seed, uses [`DEFAULT_SEED`].
pub(super) fn write_page(file: &Path, seed: Option<u64>, output: Output) -> Result<Exit, Problem> {
    let seed = seed.unwrap_or(DEFAULT_SEED);
    let recorded = record_run(seed).map_err(|violation| {
        Problem::new(Exit::Violation, "violation", violation.to_string())
            .with_hint("`quorate sim --seed N` shows the run")
    })?;
    fs::write(file, render_page(&recorded))
        .map_err(|error| Problem::io_error(format!("write {}", file.display()), &error))?;
    let written =
        WrittenPage { page: file.display().to_string(), seed, events: recorded.lines.len() };
    output.print_result(&written, || format!("wrote {}: open it in a browser", written.page));
    Ok(Exit::Done)
}

fn record_run(seed: u64) -> Result<RecordedRun, Violation> {
    let mut world = story::start_cluster(RunSettings::without_faults(seed, 3, Class::Durable))?;
    let opening = StoryStart::await_leader(&mut world)?;
    story::write_story(&mut world)?;
    story::leader_death_story(&mut world)?;
    Ok(RecordedRun {
        seed,
        leader: opening.leader,
        ballot: opening.ballot.to_string(),
        decided: opening.decided_to.0,
        lines: story::lines_without_heartbeats(&world).map(str::to_owned).collect(),
    })
}

fn render_page(recorded: &RecordedRun) -> String {
    let json = serde_json::to_string(recorded).expect("texts and numbers are always JSON");
    // Prevent the text from closing the element that contains it.
    let json = json.replace('<', "\\u003c");
    PAGE_TEMPLATE
        .replacen("/*COLOURS*/", quorate_admin::server::COLOURS_CSS, 1)
        .replacen("/*RUN*/", &json, 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_has_a_complete_run_and_no_external_links() {
        let recorded = record_run(DEFAULT_SEED).unwrap();
        let told = |what: &str| recorded.lines.iter().any(|line| line.contains(what));
        for what in
            ["killed", "role     candidate", "role     leader", "start    boot 2", "hears    +OK"]
        {
            assert!(told(what), "{what}: {:#?}", recorded.lines);
        }
        let page = render_page(&recorded);
        assert!(!page.contains("/*RUN*/") && !page.contains("/*COLOURS*/"));
        assert!(page.contains("--flow: light-dark("));
        let links = page.replace("http://www.w3.org/2000/svg", "");
        assert!(!links.contains("http:") && !links.contains("https:") && !links.contains("src="));
    }

    #[test]
    fn no_line_ends_the_element_that_it_is_in() {
        let recorded = RecordedRun {
            seed: 1,
            leader: 1,
            ballot: "0.1.1".to_owned(),
            decided: 1,
            lines: vec!["0.1 c1 asks node 1: SET a </script>".to_owned()],
        };
        assert!(!render_page(&recorded).contains("SET a </script>"));
    }
}
