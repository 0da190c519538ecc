//! Experiments on loopback, and refusals.

use serde_json::Value as Json;

use crate::{of_system, once_answered, papers, papers_json};

/// Runs an experiment for a short time that still yields measurements on a busy machine.
fn short(arguments: &[&str]) -> (i32, Json) {
    let time = ["--duration", "200ms", "--warmup", "50ms", "--repeat", "2", "--json"];
    once_answered(|| papers_json(&[arguments, &time].concat()))
}

#[test]
fn refusals_are_clear() {
    for (arguments, code, word) in [
        (&["nothing"][..], 2, "bad_configuration"),
        (&["caans-fig2", "--wan", "half"], 2, "bad_configuration"),
        (&["caans-table1"], 1, "not_ready"),
        (&["zcp-table1", "--quick", "--full"], 2, "bad_usage"),
        (&["caans-fig8", "--duration", "2s"], 2, "bad_configuration"),
        (&["ring-paxos-fig1", "--wan", "half"], 2, "bad_configuration"),
    ] {
        let (got, error) = papers_json(&[arguments, &["--json"]].concat());
        assert_eq!((got, error["error"]["code"].as_str()), (code, Some(word)), "{error}");
        assert!(!error["error"]["message"].as_str().unwrap().is_empty());
    }
}

#[test]
fn experiments_are_listed_with_what_they_wait_for() {
    let output = papers(&["--list"]);
    let list = String::from_utf8(output.stdout).unwrap();
    let line = |name: &str| {
        let found = list.lines().find(|line| line.starts_with(name));
        found.unwrap_or_else(|| panic!("{name}: {list}"))
    };
    for figure in ["fig5", "fig6", "fig7", "table1", "table2"] {
        assert!(line(&format!("kernel-paxos-{figure}")).contains("ready"));
    }
    for figure in ["fig1", "fig2"] {
        assert!(line(&format!("ring-paxos-{figure}")).contains("ready"));
    }
    assert!(line("ring-paxos-fig4").contains("ready"));
    assert!(line("ring-paxos-fig7").contains("ready"));
    assert!(line("caans-table1").contains("waits for "));
}

#[test]
fn an_experiment_puts_published_figures_beside_ours() {
    let (code, document) = short(&["caans-fig2"]);
    assert_eq!(code, 0, "{document}");
    assert_eq!(of_system(&document, "quorate").len(), 3);
    let published = document["published"].as_array().unwrap();
    assert_eq!(published.len(), 1);
    for row in of_system(&document, "quorate") {
        assert!(row["ceiling"].as_f64().unwrap() > 0.0, "{row}");
    }
    for one in published {
        assert!(one["source"].as_str().unwrap().contains("§2.2"));
        assert!(one["ours"].as_f64().is_some(), "{one}");
    }
}

#[test]
fn the_tables_of_a_paper_stand_beside_ours() {
    let arguments = ["zcp-table2", "--repeat", "1"];
    let time = ["--duration", "100ms", "--warmup", "50ms", "--json"];
    let (_, document) = papers_json(&[&arguments[..], &time].concat());
    let rows = of_system(&document, "quorate");
    assert_eq!(rows.len(), 13, "the short form: {document}");
    for row in &rows {
        assert_eq!(row["stream"]["protocol"], "raw");
        assert_eq!((row["errors"].as_u64(), row["lost"].as_u64()), (Some(0), Some(0)), "{row}");
    }
    let published = document["published"].as_array().unwrap();
    assert_eq!(published.len(), rows.len());
    for (one, row) in published.iter().zip(rows) {
        assert!(one["source"].as_str().unwrap().contains("Table 2"));
        assert_eq!(one["ours"].is_null(), row["valid"] == false, "{one}");
    }
}

/// Clients of a follower continue when an acceptor or the leader dies. Each repetition reports its
/// own gap, and CPU time and counts as in other rows.
#[test]
fn killing_nodes_under_load_loses_no_reply() {
    let arguments = ["caans-fig8", "--duration", "3s", "--warmup", "100ms", "--repeat", "2"];
    let (_, document) = papers_json(&[&arguments[..], &["--json"]].concat());
    let rows = of_system(&document, "quorate");
    assert_eq!(rows.len(), 2, "{document}");
    for row in &rows {
        assert_eq!((row["errors"].as_u64(), row["lost"].as_u64()), (Some(0), Some(0)), "{row}");
        assert!(row["over_time"].as_array().unwrap().len() > 10);
        let gaps = row["gaps_ms"].as_array().unwrap();
        assert_eq!((gaps.len(), row["repeats"].as_u64()), (2, Some(2)));
        // All clients wait during the gap, so it appears as a latency as well.
        let longest_ms = row["max_us"].as_f64().unwrap() / 1000.0;
        for gap in gaps {
            let gap = gap.as_f64().unwrap();
            assert!((0.001..=longest_ms * 1.01 + 0.1).contains(&gap), "{row}");
        }
        for figure in ["gap_ms", "cpu_us_per_op", "writes_per_op", "ceiling"] {
            assert!(row[figure].as_f64().unwrap() > 0.0, "{figure}: {row}");
        }
        assert!(row["foreign_cpu"].as_f64().is_some(), "{row}");
        assert_eq!(row["roles"].as_array().unwrap().len(), 3);
    }
    let notes = document["notes"].to_string();
    assert!(notes.contains("an acceptor killed") && notes.contains("the leader killed"));
    assert!(notes.contains("medians of 2; each:"), "{notes}");
}
