//! Invariant of streams, checked across all nodes: the output of each stream is a prefix of its
//! input.
//!
//! The check follows the chosen values byte by byte with its own arithmetic, independently of the
//! production table.

use std::{
    collections::{BTreeMap, BTreeSet},
    hash::{Hash, Hasher},
};

use quorate_core::{
    ballot::Ballot,
    invariants::Verdict,
    node_id::Member,
    slot::Slot,
    value::{StreamName, Value},
};
use quorate_stream::{Command, Name, OpenMode, StreamOutcome};

use crate::{
    seen::SituationCounts,
    streams::{
        applied::{self, AppliedStreams},
        clients::StreamClients,
        stream_position,
    },
};

/// A byte, represented by its inner stream and position.
type Byte = (StreamName, u64);

/// State of all streams, as it follows from the chosen values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StreamJudge {
    applied: AppliedStreams,
    /// Bytes of each named stream.
    outputs: BTreeMap<Name, Vec<Byte>>,
    /// Open inner streams, and the named stream that each appends to.
    open: BTreeMap<StreamName, Name>,
    /// Byte that each slot appended.
    appended_bytes: BTreeMap<Slot, Byte>,
    /// Votes and decisions recorded without bytes.
    recorded_without_bytes: BTreeSet<(Member, Slot, Value)>,
    /// End of the offers of each stream by the leader of a ballot.
    offered_to: BTreeMap<(Ballot, StreamName), u64>,
    situations: SituationCounts,
}

/// Hashes only the state that does not follow from the chosen values.
impl Hash for StreamJudge {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.applied.hash(state);
        self.recorded_without_bytes.hash(state);
        self.offered_to.hash(state);
    }
}

impl StreamJudge {
    /// Returns the slot below which chosen values have been checked.
    pub fn judged_to(&self) -> Slot {
        self.applied.applied_to()
    }

    pub fn situations(&self) -> SituationCounts {
        self.situations
    }

    /// Returns the byte that this slot appended; `None` if it appended none.
    pub fn appended_byte(&self, slot: Slot) -> Option<Byte> {
        self.appended_bytes.get(&slot).copied()
    }

    pub fn is_open(&self, stream: StreamName) -> bool {
        self.open.contains_key(&stream)
    }

    /// Checks the value chosen in the next slot.
    pub fn judge_chosen(&mut self, value: &Value, clients: &StreamClients) -> Verdict {
        let slot = self.applied.applied_to();
        let done = self.applied.apply(value, clients);
        self.judge_append(slot, value, &done, clients)?;
        self.judge_reply(value, &done, clients)?;
        if let Value::CloseStream(stream) = value {
            // [stream-6] A closed stream accepts no more bytes.
            self.open.remove(stream);
        }
        for (stream, end) in &done.closed_streams {
            let own = self.appended_count(*stream);
            if own != *end {
                return Err(format!(
                    "slot {slot}: stream {stream:?} ended at {end}, {own} bytes of it were appended"
                ));
            }
            self.open.remove(stream);
        }
        self.judge_table_reads(slot)
    }

    /// [stream-4] Checks an append. A byte is appended iff its stream is open and the byte has the
    /// next position.
    fn judge_append(
        &mut self,
        slot: Slot,
        value: &Value,
        done: &applied::AppliedEffect,
        clients: &StreamClients,
    ) -> Verdict {
        let Value::Content { stream, offset } = *value else {
            return Ok(());
        };
        let at = stream_position(offset, slot);
        let name = self.open.get(&stream).cloned();
        let own = name.filter(|_| at == self.appended_count(stream) && offset <= slot.0);
        let byte = own.is_some().then_some((stream, at));
        if done.appended_byte != byte {
            let table = done.appended_byte;
            return Err(format!("slot {slot}: the table appends {table:?}, the rule {byte:?}"));
        }
        let Some(name) = own else {
            self.situations.skipped_bytes += 1;
            return Ok(());
        };
        let given = clients.given_bytes(stream);
        if at >= given {
            return Err(format!("slot {slot}: byte {at} of a stream of {given} bytes"));
        }
        if let Some((member, ..)) = self
            .recorded_without_bytes
            .iter()
            .find(|(_, hollow, what)| *hollow == slot && what == value)
        {
            return Err(format!(
                "slot {slot}: {member} took {value} for a no-op, and it is appended"
            ));
        }
        self.situations.appended_bytes += 1;
        self.appended_bytes.insert(slot, (stream, at));
        self.outputs.entry(name).or_default().push((stream, at));
        Ok(())
    }

    fn judge_reply(
        &mut self,
        value: &Value,
        done: &applied::AppliedEffect,
        clients: &StreamClients,
    ) -> Verdict {
        let command = clients.command(value).and_then(Command::decode);
        let (Some(Ok(reply)), Some(command)) = (&done.reply, command) else {
            return Ok(());
        };
        match (*reply, command) {
            (
                StreamOutcome::Opened { stream, start_position: at },
                Command::Open { name, mode: how, .. },
            ) => {
                let end = self.outputs.entry(name.clone()).or_default().len() as u64;
                let before = self.open.iter().find(|(_, known)| **known == name);
                if let Some((before, _)) = before
                    && !done.closed_streams.iter().any(|(closed, _)| closed == before)
                {
                    // [stream-10] A named stream is open only once.
                    return Err(format!("{name} is open twice: for {before:?}, and {stream:?}"));
                }
                self.situations.takeovers +=
                    u64::from(before.is_some() && how == OpenMode::Takeover);
                self.open.insert(stream, name.clone());
                check_end(&name, at, end)
            }
            (StreamOutcome::Closed { end_position: at }, Command::Close { stream, .. }) => {
                let name = self.open.get(&stream).cloned();
                let name = name.ok_or_else(|| format!("{stream:?} closed, and was not open"))?;
                let end = self.outputs.get(&name).map_or(0, Vec::len) as u64;
                self.open.remove(&stream);
                check_end(&name, at, end)
            }
            _ => Ok(()),
        }
    }

    /// Returns the number of appended bytes of an inner stream.
    fn appended_count(&self, stream: StreamName) -> u64 {
        let all = self.outputs.values().flatten();
        all.filter(|(whose, _)| *whose == stream).count() as u64
    }

    /// Checks that reads through the table return the bytes that were appended.
    fn judge_table_reads(&self, slot: Slot) -> Verdict {
        let table = self.applied.table();
        for (name, output) in &self.outputs {
            let end = table.info(name).map_or(0, |info| info.end);
            check_end(name, end, output.len() as u64)?;
            for (at, byte) in output.iter().enumerate() {
                let found = table.locate(name, at as u64);
                let found = found.map(|located| (located.stream, located.position));
                if found != Ok(*byte) {
                    return Err(format!(
                        "slot {slot}: byte {at} of {name} is {found:?}, {byte:?} was appended"
                    ));
                }
            }
        }
        Ok(())
    }

    /// [snap-1] Checks a slot that a node applied: every node appends the same byte there.
    pub fn judge_applied(&self, slot: Slot, done: &applied::AppliedEffect) -> Verdict {
        let known = self.appended_byte(slot);
        match slot < self.judged_to() && done.appended_byte != known {
            true => Err(format!(
                "slot {slot}: a node appends {:?}, others {known:?}",
                done.appended_byte
            )),
            false => Ok(()),
        }
    }

    /// [stream-7] Checks an owner's confirmation to its client that `count` bytes of a stream are
    /// stored.
    pub fn judge_confirmation(&mut self, stream: StreamName, count: u64) -> Verdict {
        self.situations.confirmed_appends += 1;
        let kept = self.appended_count(stream);
        match kept < count {
            true => Err(format!("{count} bytes of {stream:?} acknowledged, {kept} are kept")),
            false => Ok(()),
        }
    }

    /// [stream-4] Checks a record without bytes, whose slot the node considered a no-op.
    pub fn judge_record_without_bytes(
        &mut self,
        member: Member,
        slot: Slot,
        value: Value,
    ) -> Verdict {
        self.situations.recorded_without_bytes += 1;
        self.recorded_without_bytes.insert((member, slot, value));
        let byte = |offset, stream| (stream, stream_position(offset, slot));
        match value {
            Value::Content { stream, offset }
                if self.appended_byte(slot) == Some(byte(offset, stream)) =>
            {
                Err(format!("slot {slot}: {member} takes {value} for a no-op, and it is appended"))
            }
            _ => Ok(()),
        }
    }

    /// [stream-1] Checks that a leader's offer of a run skips no byte. The stream continues at
    /// `next` in the leader's table.
    pub fn judge_offer(
        &mut self,
        ballot: Ballot,
        stream: StreamName,
        next: u64,
        from: u64,
        to: u64,
    ) -> Verdict {
        let offered = self.offered_to.entry((ballot, stream)).or_default();
        let before = (*offered).max(next);
        *offered = (*offered).max(to);
        match from > before {
            true => {
                Err(format!("ballot {ballot}: offers byte {from} of {stream:?} after {before}"))
            }
            false => Ok(()),
        }
    }
}

fn check_end(name: &Name, told: u64, own: u64) -> Verdict {
    match told == own {
        true => Ok(()),
        false => Err(format!("{name} is said to end at {told}, and has {own} bytes")),
    }
}
