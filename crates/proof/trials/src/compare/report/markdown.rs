//! The comparison's readable report, in Markdown.

use std::fmt::Write as _;

use quorate_admin::units::format_date;

use super::{
    super::{
        CompareOptions, OUTSTANDING, VALUE_BYTES,
        figures::{ComparisonResults, MeasuredLoad, Spread},
        systems::System,
    },
    CAVEATS, FigureOrigin, format_flags,
    targets::{compared_pairs, target_verdicts},
};

pub(super) fn render_markdown(
    wish: &CompareOptions,
    origin: &FigureOrigin,
    systems: &[&System],
    results: &ComparisonResults,
) -> String {
    let mut out = String::new();
    let _ = write!(
        out,
        "# Quorate compared with other systems\n\n    cargo xtask compare{}\n\n\
         Values of {VALUE_BYTES} bytes, {OUTSTANDING} commands in flight, three nodes on loopback (one where there is \
         only one), clients at the leader. Systems took turns in {} rounds, each started afresh, {:.1} s at \
         full load; {:.0} minutes in all. Commit {}, {}, {} CPUs ({}), {}.\n\n\
         Figures are medians of rounds; the lowest and the highest stand in brackets.\n\n## Full load\n\n",
        format_flags(wish),
        wish.repetition_count,
        wish.duration.as_secs_f64(),
        results.seconds / 60.0,
        origin.commit,
        origin.machine.kernel_release,
        origin.machine.cpu_count,
        origin.machine.cpu_model,
        format_date(origin.unix_time),
    );
    out += "| System | Class | Commands/s | Connections (tried: commands/s) | CPU µs/command | load | p50 µs | p99 µs | Foreign CPU | Good rounds |\n\
            |---|---|---|---|---|---|---|---|---|---|\n";
    for system in systems {
        out += &full_load_line(system, results);
    }
    for (system, why) in &results.failures {
        let _ = writeln!(out, "| {system} | | no result: {} | | | | | | | |", escape_line(why));
    }
    out += "\n\"CPU\" is of all processes of the system together, \"load\" of the generator. Latency at full load says little.\n\n";
    out += &latency_table(systems, results);
    out += "\n## Targets\n\n| What | Wanted | Found | |\n|---|---|---|---|\n";
    for verdict in target_verdicts(systems, results) {
        let mark = if verdict.is_reached == Some(true) { "reached" } else { "**missed**" };
        let found = format_spread(&verdict.found_values, 2);
        let _ = writeln!(
            out,
            "| {} | {} | {found} | {mark} |",
            verdict.description, verdict.wanted_value
        );
    }
    out += "\n## What was compared\n\n| System | Version | Transport | Storage | Ours in it | Settings |\n|---|---|---|---|---|---|\n";
    for system in systems {
        let _ = writeln!(
            out,
            "| {} | {} | {} | {} | {} | {} |",
            system.id(),
            origin.system_version(system),
            system.transport,
            system.storage,
            system.own_parts,
            system.settings
        );
    }
    out += "\n## What cannot be compared fairly\n\n";
    for caution in CAVEATS {
        let _ = writeln!(out, "- {caution}");
    }
    out += &list_incidents(results);
    out
}

fn full_load_line(system: &System, results: &ComparisonResults) -> String {
    let id = system.id();
    let median = |figure: fn(&MeasuredLoad) -> f64, digits| {
        format_figure(results.figure_at_maximum(&id, figure).median(), digits)
    };
    let rates = results.figure_at_maximum(&id, |measured| measured.per_second);
    let tried: Vec<String> = results
        .trials
        .iter()
        .filter(|trial| trial.system == id)
        .map(|trial| format!("{}: {:.0}", trial.connections, trial.measured.per_second))
        .collect();
    let best = results.best_trial(&id).map_or(0, |trial| trial.connections);
    let foreign = results.figure_at_maximum(&id, |measured| measured.foreign_cpu * 100.0);
    format!(
        "| {} | {} | {} | {best} ({}) | {} | {} | {} | {} | {} % | {} of {} |\n",
        system.name,
        system.class,
        format_spread(&rates, 0),
        tried.join(", "),
        median(|measured| measured.cpu_us, 2),
        median(|measured| measured.load_cpu_us, 2),
        median(|measured| measured.p50_us, 0),
        median(|measured| measured.p99_us, 0),
        format_figure(foreign.median(), 1),
        rates.count(),
        results.turns_of(&id).count(),
    )
}

fn latency_table(systems: &[&System], results: &ComparisonResults) -> String {
    let mut out = String::from(
        "## Latency at half of their maximum\n\nOpen loop; latency counts from the intended sending.\n\n\
         | Half of | Offered/s | Their p50 µs | Their p99 µs | Ours | p50 µs | p99 µs | p99, ours by theirs |\n|---|---|---|---|---|---|---|---|\n",
    );
    for (ours, peer) in compared_pairs(systems) {
        let (ours, peer) = (ours.id(), peer.id());
        let mut offered = results.turns_of(&peer).flat_map(|turn| &turn.latencies);
        let rate = offered.next().map_or(0, |(_, rate, _)| *rate);
        let p50 = |system: &str| {
            let all = results.figure_at_half(system, &peer, |measured| measured.p50_us);
            format_figure(all.median(), 0)
        };
        let p99 = |system: &str| {
            format_spread(&results.figure_at_half(system, &peer, |measured| measured.p99_us), 0)
        };
        let ratios = results.latency_ratios(&ours, &peer);
        let _ = writeln!(
            out,
            "| {peer} | {rate} | {} | {} | {ours} | {} | {} | {} |",
            p50(&peer),
            p99(&peer),
            p50(&ours),
            p99(&ours),
            format_spread(&ratios, 2)
        );
    }
    out
}

/// Lists problems, and the checks that were made.
fn list_incidents(results: &ComparisonResults) -> String {
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
        let maximum = turn.maximum.iter().map(|one| ("full load".to_owned(), one.invalid_reason()));
        let latencies = turn.latencies.iter().map(|(peer, _, one)| {
            let trouble = one.latency_invalid_reason();
            let shown = trouble.map(|trouble| format!("{trouble} (p99 {:.0} µs)", one.p99_us));
            (format!("half of {peer}"), shown)
        });
        for (what, trouble) in maximum.chain(latencies) {
            if let Some(trouble) = trouble {
                troubles.push(format!("{head}, {what}: no result: {trouble}"));
            }
        }
        if let Some(trouble) = &turn.early_end_reason {
            troubles.push(format!("{head}: {trouble}"));
        }
    }
    for trouble in troubles {
        let _ = writeln!(out, "- {}", escape_line(&trouble));
    }
    out
}

/// Formats a spread as `median (low – high)`.
pub(crate) fn format_spread(spread: &Spread, digits: usize) -> String {
    match (spread.median(), spread.minimum(), spread.maximum()) {
        (Some(median), Some(low), Some(high)) => {
            format!("{median:.digits$} ({low:.digits$} – {high:.digits$})")
        }
        _ => "–".to_owned(),
    }
}

fn format_figure(figure: Option<f64>, digits: usize) -> String {
    figure.map_or_else(|| "–".to_owned(), |figure| format!("{figure:.digits$}"))
}

/// Formats text as one line of a table or a list.
fn escape_line(text: &str) -> String {
    const CHARACTERS_MAX: usize = 600;
    let text = text.replace(['\n', '\r'], " ").replace('|', "/");
    text.chars().take(CHARACTERS_MAX).collect()
}
