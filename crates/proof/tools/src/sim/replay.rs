//! `quorate sim --page FILE`: writes a recorded run as an animated page in a single file.

use std::{fs, path::Path};

use quorate_core::record::Class;
use quorate_sim::{
    check::Violation,
    faults::Settings,
    story::{self, Opening},
};
use serde::Serialize;

use quorate_cli::output::{Exit, Output, Problem};

/// Default seed for the animation. `docs/stories/` shows the same run.
const SEED: u64 = 2;
/// Template of the page. Two comments in it are replaced.
const HTML: &str = include_str!("replay.html");

/// Recorded run in the form that the page reads.
#[derive(Serialize)]
struct Recorded {
    seed: u64,
    leader: u32,
    ballot: String,
    decided: u64,
    lines: Vec<String>,
}

/// Result of `quorate sim --page`.
#[derive(Serialize)]
struct Written {
    page: String,
    seed: u64,
    events: usize,
}

/// Runs the story and writes the page. Without a seed, uses [`SEED`].
pub(super) fn write(file: &Path, seed: Option<u64>, output: Output) -> Result<Exit, Problem> {
    let seed = seed.unwrap_or(SEED);
    let recorded = record(seed).map_err(|violation| {
        Problem::new(Exit::Violation, "violation", violation.to_string())
            .hint("`quorate sim --seed N` shows the run")
    })?;
    fs::write(file, page(&recorded))
        .map_err(|error| Problem::io(format!("write {}", file.display()), &error))?;
    let written = Written { page: file.display().to_string(), seed, events: recorded.lines.len() };
    output.result(&written, || format!("wrote {}: open it in a browser", written.page));
    Ok(Exit::Done)
}

fn record(seed: u64) -> Result<Recorded, Violation> {
    let mut world = story::begin(Settings::calm(seed, 3, Class::Durable))?;
    let opening = Opening::of(&mut world)?;
    story::a_write(&mut world)?;
    story::a_leader_dies(&mut world)?;
    Ok(Recorded {
        seed,
        leader: opening.leader,
        ballot: opening.ballot.to_string(),
        decided: opening.decided_to.0,
        lines: story::lines(&world).map(str::to_owned).collect(),
    })
}

fn page(recorded: &Recorded) -> String {
    let json = serde_json::to_string(recorded).expect("texts and numbers are always JSON");
    // Prevent the text from closing the element that contains it.
    let json = json.replace('<', "\\u003c");
    HTML.replacen("/*COLOURS*/", quorate_admin::server::COLOURS, 1).replacen("/*RUN*/", &json, 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_has_a_complete_run_and_no_external_links() {
        let recorded = record(SEED).unwrap();
        let told = |what: &str| recorded.lines.iter().any(|line| line.contains(what));
        for what in
            ["killed", "role     candidate", "role     leader", "start    boot 2", "hears    +OK"]
        {
            assert!(told(what), "{what}: {:#?}", recorded.lines);
        }
        let page = page(&recorded);
        assert!(!page.contains("/*RUN*/") && !page.contains("/*COLOURS*/"));
        assert!(page.contains("--flow: light-dark("));
        let links = page.replace("http://www.w3.org/2000/svg", "");
        assert!(!links.contains("http:") && !links.contains("https:") && !links.contains("src="));
    }

    #[test]
    fn no_line_ends_the_element_that_it_is_in() {
        let recorded = Recorded {
            seed: 1,
            leader: 1,
            ballot: "0.1.1".to_owned(),
            decided: 1,
            lines: vec!["0.1 c1 asks node 1: SET a </script>".to_owned()],
        };
        assert!(!page(&recorded).contains("SET a </script>"));
    }
}
