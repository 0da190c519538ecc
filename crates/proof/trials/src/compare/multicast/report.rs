//! Reports of the multicast comparison: Markdown for readers and JSON for programs.

use std::fmt::Write as _;

use quorate_admin::units::format_date;
use quorate_testbed::segment::Lan;
use serde_json::{Value, json};

use super::{
    super::{
        figures::Spread,
        report::{FigureOrigin, format_spread, save_report},
    },
    MulticastOptions,
    figures::{MulticastCell, Results},
    systems::System,
};
use crate::shell::{self, Failed};

/// Caveats for a reader of the comparison.
const CAVEATS: [&str; 8] = [
    "One sender, in a namespace of its own, as many receivers in one each, on the same processors; the links are emulated, and a switch in software copies for each receiver. Where all processors are busy, the figure is one of processors, not of links.",
    "Payload is what an application offered; the ceiling counts the payload of datagrams, so that headers of a system's own are a loss.",
    "Aeron orders nothing between senders and waits only for the slowest receiver: it is the mark for plain reliable multicast. Nothing is durable anywhere.",
    "Quorate answers its clients when a majority of its voters has the command, and its receivers run the state machine; the clients' connections do not use the shaped links. In the other systems the sender is a member itself.",
    "Corosync and JGroups have the order of one sender only to keep here, which is their best case: the token has no other work, and the sequencer forwards nothing.",
    "Corosync and JGroups send packets larger than a frame, which the kernel cuts and puts together again; on real networks a lost fragment loses the packet.",
    "Dropped: packets that the queue of a processor refused (net.core.netdev_max_backlog, usually 1000), which is one for all namespaces; one packet to many receivers takes as many places, one of UDP_SEGMENT only one for all its datagrams. Real receivers have queues of their own: a figure with many drops is one of this machine.",
    "CPU is of all processes of a system, the load included; what the kernel does in threads of its own is part of the foreign CPU.",
];

pub(super) fn write_report(
    wish: &MulticastOptions,
    systems: &[System],
    results: &Results,
) -> Result<(), Failed> {
    let origin = FigureOrigin::of_this_run();
    let text = render_markdown(wish, &origin, systems, results);
    let document = render_json(wish, &origin, systems, results);
    let usual = || shell::build_folder().join("compare").join("multicast").join("report");
    save_report(&wish.report_path.clone().unwrap_or_else(usual), wish.json.as_ref(), text, document)
}

fn render_markdown(
    wish: &MulticastOptions,
    origin: &FigureOrigin,
    systems: &[System],
    results: &Results,
) -> String {
    let mut out = format!(
        "# Multicast by Quorate and others\n\n    cargo xtask compare multicast{}\n\n\
         Messages from one sender, as fast as flow control lets. Systems took turns in {} rounds, each started afresh, \
         {:.1} s measured after {:.1} s of warm-up; {:.0} minutes in all. Commit {}, {}, {} CPUs ({}), {}.\n\n\
         Figures are medians of rounds; the lowest and the highest stand in brackets. Shares and ratios are of one round each.\n\n\
         | Links | Receivers | Bytes | System | Order | Durable | Payload at the slowest receiver, Mbit/s | Of the ceiling | CPU s/GB | Foreign CPU | Dropped | Good rounds |\n\
         |---|---|---|---|---|---|---|---|---|---|---|---|\n",
        format_flags(wish),
        wish.repetition_count,
        wish.duration.as_secs_f64(),
        wish.warmup_duration().as_secs_f64(),
        results.seconds / 60.0,
        origin.commit,
        origin.machine.kernel_release,
        origin.machine.cpu_count,
        origin.machine.cpu_model,
        format_date(origin.unix_time),
    );
    for cell in results.cells() {
        for system in systems {
            out += &table_line(wish, *system, cell, results);
        }
    }
    for (system, why) in &results.failures {
        let _ = writeln!(
            out,
            "| | | | {} | skipped: {} | | | | | | | |",
            system.name(),
            escape_cell(why)
        );
    }
    out += "\n## Targets\n\n| Links | Receivers | Bytes | What | Wanted | Found | |\n|---|---|---|---|---|---|---|\n";
    for verdict in results.verdicts() {
        let _ = writeln!(
            out,
            "| {} Mbit/s | {} | {} | {} | ≥ {} | {} | {} |",
            verdict.cell.link_megabits,
            verdict.cell.receiver_count,
            verdict.cell.bytes,
            verdict.what,
            verdict.wanted_ratio,
            format_spread(&verdict.found_ratios, 2),
            if verdict.is_reached() { "reached" } else { "**missed**" }
        );
    }
    out += "\n## What was compared\n\n| System | Version | Settings |\n|---|---|---|\n";
    for system in systems {
        let _ =
            writeln!(out, "| {} | {} | {} |", system.name(), system.version(), system.settings());
    }
    out += "\n## What cannot be compared fairly\n\n";
    for caution in CAVEATS {
        let _ = writeln!(out, "- {caution}");
    }
    let bad = results.turns.iter().filter_map(|turn| Some((turn, turn.outcome.as_ref().err()?)));
    for (at, (turn, why)) in bad.enumerate() {
        if at == 0 {
            out += "\n## Turns without a result\n\n";
        }
        let _ = writeln!(
            out,
            "- {} Mbit/s, {} receivers, {} bytes, round {}, {}: {}",
            turn.cell.link_megabits,
            turn.cell.receiver_count,
            turn.cell.bytes,
            turn.round + 1,
            turn.system.name(),
            escape_cell(why)
        );
    }
    out
}

fn table_line(
    wish: &MulticastOptions,
    system: System,
    cell: MulticastCell,
    results: &Results,
) -> String {
    let figure = |figure| results.figure(system, cell, figure);
    format!(
        "| {} Mbit/s | {} | {} | {} | {} | no | {} | {} | {} | {} | {} | {} of {} |\n",
        cell.link_megabits,
        cell.receiver_count,
        cell.bytes,
        system.name(),
        system.delivery_order(),
        format_spread(&figure(|one| one.slowest_mbit), 1),
        format_spread(&results.ratio(system, &[System::Bare], cell), 2),
        format_spread(&figure(|one| one.cpu_s_per_gb), 2),
        format_spread(&figure(|one| one.foreign_cpu), 2),
        format_spread(&figure(|one| one.dropped_packets), 0),
        results.valid_round_count(system, cell),
        wish.repetition_count
    )
}

fn render_json(
    wish: &MulticastOptions,
    origin: &FigureOrigin,
    systems: &[System],
    results: &Results,
) -> String {
    let row = |system: System, cell: MulticastCell| {
        let figure = |figure| spread_json(&results.figure(system, cell, figure));
        json!({
            "system": system.name(),
            "order": system.delivery_order(),
            "durable": false,
            "link_mbit": cell.link_megabits,
            "receivers": cell.receiver_count,
            "bytes": cell.bytes,
            "slowest_mbit": figure(|one| one.slowest_mbit),
            "of_ceiling": spread_json(&results.ratio(system, &[System::Bare], cell)),
            "cpu_s_per_gb": figure(|one| one.cpu_s_per_gb),
            "foreign_cpu": figure(|one| one.foreign_cpu),
            "dropped_packets": figure(|one| one.dropped_packets),
            "good_rounds": results.valid_round_count(system, cell),
            "rounds": wish.repetition_count,
        })
    };
    let cells = results.cells();
    let rows = cells.iter().flat_map(|cell| systems.iter().map(|system| row(*system, *cell)));
    let targets = results.verdicts().into_iter().map(|verdict| {
        json!({
            "link_mbit": verdict.cell.link_megabits,
            "receivers": verdict.cell.receiver_count,
            "bytes": verdict.cell.bytes,
            "what": verdict.what,
            "at_least": verdict.wanted_ratio,
            "found": spread_json(&verdict.found_ratios),
            "reached": verdict.is_reached(),
        })
    });
    let about = systems.iter().map(
        |system| json!({"system": system.name(), "version": system.version(), "settings": system.settings()}),
    );
    let failures =
        results.failures.iter().map(|(system, why)| json!({"system": system.name(), "why": why}));
    let document = json!({
        "command": format!("cargo xtask compare multicast{}", format_flags(wish)),
        "commit": origin.commit,
        "kernel": origin.machine.kernel_release,
        "cpus": origin.machine.cpu_count,
        "unix_time": origin.unix_time,
        "rows": rows.collect::<Vec<Value>>(),
        "targets": targets.collect::<Vec<Value>>(),
        "systems": about.collect::<Vec<Value>>(),
        "failures": failures.collect::<Vec<Value>>(),
        "cautions": CAVEATS,
    });
    format!("{document:#}\n")
}

fn format_flags(wish: &MulticastOptions) -> String {
    let receivers: Vec<String> = wish.receiver_counts.iter().map(u32::to_string).collect();
    let sizes: Vec<String> = wish.message_sizes.iter().map(usize::to_string).collect();
    let speeds: Vec<String> = wish.link_speeds.iter().map(Lan::name).collect();
    let mut out = format!(
        " --receivers {} --speed {} --size {} --duration {}ms --repeat {}",
        receivers.join(","),
        speeds.join(","),
        sizes.join(","),
        wish.duration.as_millis(),
        wish.repetition_count
    );
    if !wish.only.is_empty() {
        let _ = write!(out, " --only {}", wish.only.join(","));
    }
    out
}

fn spread_json(spread: &Spread) -> Value {
    if spread.count() == 0 {
        return Value::Null;
    }
    json!({"median": spread.median(), "least": spread.minimum(), "greatest": spread.maximum()})
}

/// Formats text as a cell of a table.
fn escape_cell(text: &str) -> String {
    text.trim().replace('\n', " ").replace('|', "/")
}

#[cfg(test)]
mod tests {
    use super::{
        super::{figures::tests::results, parse, systems::ALL},
        *,
    };

    #[test]
    fn report_has_shares_targets_and_missing_results() {
        let wish = parse(&["--receivers", "5", "--repeat", "3"]).unwrap();
        let text = render_markdown(&wish, &FigureOrigin::default(), &ALL[..4], &results());
        for wanted in [
            "| 1000 Mbit/s | 5 | 8192 | quorate | ",
            "| no | 800.0 (400.0 – 900.0) | 0.80 (0.80 – 0.90) | 2.00 (2.00 – 2.00) | 0.00 (0.00 – 0.00) | 0 (0 – 0) | 3 of 3 |",
            "| | | | aeron | skipped: no Java |",
            "Quorate ÷ the better of Corosync and JGroups | ≥ 3 | 2.00 (2.00 – 3.00) | **missed** |",
            "- 1000 Mbit/s, 5 receivers, 8192 bytes, round 3, corosync: no / result",
            "2 of 3 |",
        ] {
            assert!(text.contains(wanted), "{wanted} is not in\n{text}");
        }
    }

    #[test]
    fn the_document_is_json_with_the_same_figures() {
        let wish = parse(&["--receivers", "5", "--repeat", "3"]).unwrap();
        let text = render_json(&wish, &FigureOrigin::default(), &ALL[..4], &results());
        let value: Value = serde_json::from_str(&text).unwrap();
        let row = &value["rows"][1];
        assert_eq!(row["system"], "quorate");
        assert_eq!(row["slowest_mbit"]["median"], 800.0);
        assert_eq!(row["of_ceiling"]["greatest"], 0.9);
        assert_eq!(value["targets"][0]["reached"], false);
        assert_eq!(value["failures"][0]["system"], "aeron");
        assert_eq!(value["rows"].as_array().map(Vec::len), Some(4));
    }
}
