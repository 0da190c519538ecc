//! The comparison's readable report, in Markdown.

use std::fmt::Write as _;

use quorate_admin::units::date;

use super::{
    super::{
        OUTSTANDING, VALUE_BYTES, Wish,
        figures::{Measured, Results, Spread},
        systems::System,
    },
    CAUTIONS, Origin, shown_flags,
    targets::{pairs, verdicts},
};

pub(super) fn markdown(
    wish: &Wish,
    origin: &Origin,
    systems: &[&System],
    results: &Results,
) -> String {
    let mut out = String::new();
    let _ = write!(
        out,
        "# Quorate compared with other systems\n\n    cargo xtask compare{}\n\n\
         Values of {VALUE_BYTES} bytes, {OUTSTANDING} commands in flight, three nodes on loopback (one where there is \
         only one), clients at the leader. Systems took turns in {} rounds, each started afresh, {:.1} s at \
         full load; {:.0} minutes in all. Commit {}, {}, {} CPUs ({}), {}.\n\n\
         Figures are medians of rounds; the lowest and the highest stand in brackets.\n\n## Full load\n\n",
        shown_flags(wish),
        wish.repeat,
        wish.duration.as_secs_f64(),
        results.seconds / 60.0,
        origin.commit,
        origin.machine.kernel,
        origin.machine.cpus,
        origin.machine.cpu_model,
        date(origin.unix_time),
    );
    out += "| System | Class | Commands/s | Connections (tried: commands/s) | CPU µs/command | load | p50 µs | p99 µs | Foreign CPU | Good rounds |\n\
            |---|---|---|---|---|---|---|---|---|---|\n";
    for system in systems {
        out += &full_load_line(system, results);
    }
    for (system, why) in &results.failures {
        let _ = writeln!(out, "| {system} | | no result: {} | | | | | | | |", line(why));
    }
    out += "\n\"CPU\" is of all processes of the system together, \"load\" of the generator. Latency at full load says little.\n\n";
    out += &latency_table(systems, results);
    out += "\n## Targets\n\n| What | Wanted | Found | |\n|---|---|---|---|\n";
    for verdict in verdicts(systems, results) {
        let mark = if verdict.reached == Some(true) { "reached" } else { "**missed**" };
        let found = spread(&verdict.found, 2);
        let _ = writeln!(out, "| {} | {} | {found} | {mark} |", verdict.what, verdict.wanted);
    }
    out += "\n## What was compared\n\n| System | Version | Transport | Storage | Ours in it | Settings |\n|---|---|---|---|---|---|\n";
    for system in systems {
        let _ = writeln!(
            out,
            "| {} | {} | {} | {} | {} | {} |",
            system.id(),
            origin.version(system),
            system.transport,
            system.storage,
            system.by_us,
            system.settings
        );
    }
    out += "\n## What cannot be compared fairly\n\n";
    for caution in CAUTIONS {
        let _ = writeln!(out, "- {caution}");
    }
    out += &incidents(results);
    out
}

fn full_load_line(system: &System, results: &Results) -> String {
    let id = system.id();
    let median = |figure: fn(&Measured) -> f64, digits| {
        shown(results.at_maximum(&id, figure).median(), digits)
    };
    let rates = results.at_maximum(&id, |measured| measured.per_second);
    let tried: Vec<String> = results
        .trials
        .iter()
        .filter(|trial| trial.system == id)
        .map(|trial| format!("{}: {:.0}", trial.connections, trial.measured.per_second))
        .collect();
    let best = results.best(&id).map_or(0, |trial| trial.connections);
    let foreign = results.at_maximum(&id, |measured| measured.foreign_cpu * 100.0);
    format!(
        "| {} | {} | {} | {best} ({}) | {} | {} | {} | {} | {} % | {} of {} |\n",
        system.name,
        system.class,
        spread(&rates, 0),
        tried.join(", "),
        median(|measured| measured.cpu_us, 2),
        median(|measured| measured.load_cpu_us, 2),
        median(|measured| measured.p50_us, 0),
        median(|measured| measured.p99_us, 0),
        shown(foreign.median(), 1),
        rates.count(),
        results.turns_of(&id).count(),
    )
}

fn latency_table(systems: &[&System], results: &Results) -> String {
    let mut out = String::from(
        "## Latency at half of their maximum\n\nOpen loop; latency counts from the intended sending.\n\n\
         | Half of | Offered/s | Their p50 µs | Their p99 µs | Ours | p50 µs | p99 µs | p99, ours by theirs |\n|---|---|---|---|---|---|---|---|\n",
    );
    for (ours, peer) in pairs(systems) {
        let (ours, peer) = (ours.id(), peer.id());
        let mut offered = results.turns_of(&peer).flat_map(|turn| &turn.latencies);
        let rate = offered.next().map_or(0, |(_, rate, _)| *rate);
        let p50 = |system: &str| {
            let all = results.at_half(system, &peer, |measured| measured.p50_us);
            shown(all.median(), 0)
        };
        let p99 =
            |system: &str| spread(&results.at_half(system, &peer, |measured| measured.p99_us), 0);
        let ratios = results.latency_ratios(&ours, &peer);
        let _ = writeln!(
            out,
            "| {peer} | {rate} | {} | {} | {ours} | {} | {} | {} |",
            p50(&peer),
            p99(&peer),
            p50(&ours),
            p99(&ours),
            spread(&ratios, 2)
        );
    }
    out
}

/// Lists problems, and the checks that were made.
fn incidents(results: &Results) -> String {
    let checked = results.turns.iter().filter_map(|turn| turn.applied);
    let sum: u64 = checked.clone().map(|applied| applied.acknowledged).sum();
    let mut out = format!(
        "\n## Checks\n\nIn {} turns the nodes told what they had applied: most of them had applied all of the {sum} \
         commands that were acknowledged, in the same order.\n",
        checked.count()
    );
    let mut troubles = results.notes.clone();
    for turn in &results.turns {
        let head = format!("{}, round {}", turn.system, turn.round + 1);
        let maximum = turn.maximum.iter().map(|one| ("full load".to_owned(), one.trouble()));
        let latencies = turn.latencies.iter().map(|(peer, _, one)| {
            let trouble = one.latency_trouble();
            let shown = trouble.map(|trouble| format!("{trouble} (p99 {:.0} µs)", one.p99_us));
            (format!("half of {peer}"), shown)
        });
        for (what, trouble) in maximum.chain(latencies) {
            if let Some(trouble) = trouble {
                troubles.push(format!("{head}, {what}: no result: {trouble}"));
            }
        }
        if let Some(trouble) = &turn.trouble {
            troubles.push(format!("{head}: {trouble}"));
        }
    }
    for trouble in troubles {
        let _ = writeln!(out, "- {}", line(&trouble));
    }
    out
}

/// Formats a spread as `median (low – high)`.
pub(crate) fn spread(spread: &Spread, digits: usize) -> String {
    match (spread.median(), spread.low(), spread.high()) {
        (Some(median), Some(low), Some(high)) => {
            format!("{median:.digits$} ({low:.digits$} – {high:.digits$})")
        }
        _ => "–".to_owned(),
    }
}

fn shown(figure: Option<f64>, digits: usize) -> String {
    figure.map_or_else(|| "–".to_owned(), |figure| format!("{figure:.digits$}"))
}

/// Formats text as one line of a table or a list.
fn line(text: &str) -> String {
    const CHARACTERS_MAX: usize = 600;
    let text = text.replace(['\n', '\r'], " ").replace('|', "/");
    text.chars().take(CHARACTERS_MAX).collect()
}
