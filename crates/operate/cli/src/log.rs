//! `quorate log`: inspects the log of a stopped node.

use std::{
    io::ErrorKind,
    path::{Path, PathBuf},
    process,
};

use clap::{Args, Subcommand};
use quorate_admin::error::error_json;
use quorate_core::{
    record::Record,
    slot::{Slot, SlotRange},
};
use quorate_log::Place;
use quorate_log::disk::ReadOnlyFolder;
use quorate_log::{
    LogError,
    log_write::{Header, Owner},
    record::StoredRecord,
    verify::{LogElement, VerifiedLog, inspect, verify},
};
use quorate_node::{LockedFolder, identity::IdentityError};
use serde::Serialize;
use serde_json::{Value as Json, json};

use crate::output::{Exit, Output, Problem, print_line, print_unless_closed};

/// Subcommands of `quorate log`.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum LogCommand {
    /// Show every record
    Inspect(Folder),
    /// Check every record; exit 4 if the log is damaged
    Verify(Folder),
}

/// Log to inspect.
#[derive(Args, Clone, Debug)]
pub(crate) struct Folder {
    /// Data folder of a stopped node
    #[arg(value_name = "DIR")]
    data: PathBuf,
}

pub(crate) fn run(command: &LogCommand, output: Output) -> Result<Exit, Problem> {
    match command {
        LogCommand::Verify(folder) => run_verify(&folder.data, output),
        LogCommand::Inspect(folder) => run_inspect(&folder.data, output),
    }
}

fn open(data: &Path) -> Result<(ReadOnlyFolder, Owner), Problem> {
    let founding = LockedFolder::read_founding(data).map_err(|error| {
        let elsewhere = matches!(error, IdentityError::Missing { .. } | IdentityError::Io { .. });
        let problem = Problem::from(quorate::Error::from(error));
        match elsewhere {
            true => problem.with_hint("DIR must be the --data folder of a node"),
            false => problem,
        }
    })?;
    let folder = ReadOnlyFolder::open(data).map_err(|error| {
        let hint = match error.kind {
            ErrorKind::ResourceBusy => "stop the node first: its log can only be read offline",
            _ => "check that DIR has a folder `log` that is readable",
        };
        Problem::new(Exit::Failed, "log", error).with_hint(hint)
    })?;
    Ok((folder, Owner { cluster: founding.cluster, node: founding.node }))
}

/// Result of `quorate log verify`.
#[derive(Clone, Debug, Serialize)]
struct Report {
    /// First slot in the log. Omitted if the log begins at [`Slot::FIRST`].
    #[serde(skip_serializing_if = "Option::is_none")]
    start: Option<u64>,
    records: u64,
    /// Slot below which every slot is known to be decided.
    decided: u64,
    next: u64,
    torn_tail_bytes: u64,
    damaged: Vec<Damaged>,
}

#[derive(Clone, Debug, Serialize)]
struct Damaged {
    segment: u64,
    offset: u64,
    slots: Slots,
    reason: String,
}

/// Slots from `from` up to but not including `to`.
#[derive(Clone, Copy, Debug, Serialize)]
struct Slots {
    from: u64,
    to: u64,
}

impl From<SlotRange> for Slots {
    fn from(range: SlotRange) -> Self {
        Self { from: range.from.0, to: range.to.0 }
    }
}

impl From<VerifiedLog> for Report {
    fn from(verified: VerifiedLog) -> Self {
        let damaged = verified.damaged.into_iter().map(|damaged| Damaged {
            segment: damaged.place.segment.0,
            offset: damaged.place.offset,
            slots: damaged.slots.into(),
            reason: damaged.reason,
        });
        Self {
            start: (verified.start > Slot::FIRST).then_some(verified.start.0),
            records: verified.record_count,
            decided: verified.decided_to.0,
            next: verified.next.0,
            torn_tail_bytes: verified.torn_tail_bytes,
            damaged: damaged.collect(),
        }
    }
}

fn run_verify(data: &Path, output: Output) -> Result<Exit, Problem> {
    let (mut folder, owner) = open(data)?;
    let verified = verify(&mut folder, Some(owner)).map_err(|error| {
        let violated = matches!(error, LogError::BaseDamaged { .. });
        let mut problem = Problem::from(quorate::Error::from(error));
        if violated {
            problem.exit = Exit::Violation;
        }
        problem
    })?;
    let report = Report::from(verified);
    output.print_result(&report, || human(&report));
    Ok(if report.damaged.is_empty() { Exit::Done } else { Exit::Violation })
}

fn human(report: &Report) -> String {
    let mut text = format!(
        "{} records, decided below slot {}, next slot {}\n",
        report.records, report.decided, report.next
    );
    if let Some(start) = report.start {
        text.push_str(&format!("starts at slot {start}: a snapshot holds everything before it\n"));
    }
    if report.torn_tail_bytes > 0 {
        let bytes = report.torn_tail_bytes;
        text.push_str(&format!(
            "torn tail of {bytes} bytes: never acknowledged, so this is no damage\n"
        ));
    }
    for place in &report.damaged {
        text.push_str(&format!(
            "damaged: segment {}, offset {}, slots {} to {}: {}\n",
            place.segment,
            place.offset,
            place.slots.from,
            place.slots.to.saturating_sub(1),
            place.reason
        ));
    }
    text.push_str(if report.damaged.is_empty() {
        "the log is intact"
    } else {
        "the log is DAMAGED"
    });
    text
}

/// Prints the records while reading them, since the log may not fit into memory.
fn run_inspect(data: &Path, output: Output) -> Result<Exit, Problem> {
    let (mut folder, owner) = open(data)?;
    let mut printer = RecordPrinter { json: output.json, printed_count: 0 };
    if output.json {
        print_line("{\"log\":[");
    }
    let mut damaged = false;
    let outcome = inspect(&mut folder, Some(owner), &mut |item| {
        damaged |= matches!(item, LogElement::Damage { .. });
        printer.print_item(&item);
    });
    let exit = match &outcome {
        Err(
            LogError::Damaged { .. } | LogError::BaseDamaged { .. } | LogError::Unreadable { .. },
        ) => Exit::Violation,
        Err(_) => Exit::Failed,
        Ok(()) if damaged => Exit::Violation,
        Ok(()) => Exit::Done,
    };
    let problem = outcome.err().map(|error| Problem::from(quorate::Error::from(error)));
    match &problem {
        Some(problem) if output.json => {
            let error = error_json(problem.code, &problem.message, &problem.hint);
            print_line(&format!("],{}", error.strip_prefix('{').unwrap_or(&error)));
        }
        None if output.json => print_line("]}"),
        Some(problem) => {
            output.print_problem(problem);
        }
        None => {}
    }
    Ok(exit)
}

struct RecordPrinter {
    json: bool,
    printed_count: u64,
}

impl RecordPrinter {
    fn print_item(&mut self, item: &LogElement<'_>) {
        let line = if self.json {
            let comma = if self.printed_count > 0 { "," } else { "" };
            format!("{comma}{}", item_json(item))
        } else {
            item_text(item)
        };
        self.printed_count += 1;
        if !print_unless_closed(&line) {
            // The reader has closed the output, so the remaining records are not needed, and there
            // is nothing to clean up.
            process::exit(Exit::Done as i32);
        }
    }
}

fn place_json(place: Place) -> (u64, u64) {
    (place.segment.0, place.offset)
}

fn item_json(item: &LogElement<'_>) -> Json {
    match item {
        LogElement::Base { start, segment, seq, note_bytes } => json!({"base": {
            "start": start.0,
            "segment": segment.0,
            "seq": seq,
            "note_bytes": note_bytes,
        }}),
        LogElement::Write(header) => write_json(header),
        LogElement::Record(stored) => record_json(stored),
        LogElement::Damage { place, missing_writes: writes, reason } => {
            let (segment, offset) = place_json(*place);
            json!({"damage": {
                "segment": segment,
                "offset": offset,
                "batches": writes,
                "reason": reason,
            }})
        }
    }
}

fn write_json(header: &Header) -> Json {
    let (segment, offset) = place_json(header.place);
    let hard = header.hard_state;
    json!({"batch": {
        "seq": header.seq,
        "segment": segment,
        "offset": offset,
        "promised": hard.promised.to_string(),
        "decided": hard.decided_to.0,
        "voted": hard.voted_to.0,
    }})
}

fn record_json(stored: &StoredRecord<'_>) -> Json {
    let bytes = stored.bytes.len();
    match stored.record {
        Record::Round { ballot } => json!({"round": {"ballot": ballot.to_string()}}),
        Record::Promise { ballot } => json!({"promise": {"ballot": ballot.to_string()}}),
        Record::Vote { ballot, range, value } => json!({"vote": {
            "ballot": ballot.to_string(),
            "slots": Slots::from(range),
            "value": value.to_string(),
            "bytes": bytes,
        }}),
        Record::Decided { range, value } => json!({"decided": {
            "slots": Slots::from(range),
            "value": value.to_string(),
            "bytes": bytes,
        }}),
    }
}

fn item_text(item: &LogElement<'_>) -> String {
    match item {
        LogElement::Base { start, segment, seq, note_bytes } => format!(
            "begins with slot {}, batch {seq} in segment {segment}; a note of {note_bytes} bytes",
            start.0
        ),
        LogElement::Write(header) => format!(
            "batch {} at {}: promised {}, decided below {}, voted below {}",
            header.seq,
            header.place,
            header.hard_state.promised,
            header.hard_state.decided_to.0,
            header.hard_state.voted_to.0
        ),
        LogElement::Record(stored) => format!("  {}", record_text(stored)),
        LogElement::Damage { place, missing_writes: writes, reason } => {
            format!("DAMAGED {place}: {writes} batches are lost: {reason}")
        }
    }
}

fn record_text(stored: &StoredRecord<'_>) -> String {
    let bytes = stored.bytes.len();
    let slots = |range: SlotRange| match range.to.0 - range.from.0 {
        1 => format!("slot {}", range.from.0),
        _ => format!("slots {} to {}", range.from.0, range.to.0.saturating_sub(1)),
    };
    match stored.record {
        Record::Round { ballot } => format!("round {ballot}"),
        Record::Promise { ballot } => format!("promise {ballot}"),
        Record::Vote { ballot, range, value } => {
            format!("vote {} in ballot {ballot}: {value}, {bytes} bytes", slots(range))
        }
        Record::Decided { range, value } => {
            format!("decided {}: {value}, {bytes} bytes", slots(range))
        }
    }
}
