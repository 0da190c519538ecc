//! Encoding of records. All numbers are little-endian; `docs/spec/log.md` has the tables.

use quorate_core::{
    ballot::{Ballot, Era},
    configuration::Change,
    level::Level,
    node_id::{Incarnation, Member, NodeId},
    quorum::QuorumRule,
    record::Record,
    slot::{Slot, SlotRange},
    value::{BatchName, StreamName, Value},
};

/// A record as stored in a log write, with the bytes of its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredRecord<'a> {
    pub record: Record,
    /// Bytes of the record's value. Empty if it has none.
    pub bytes: &'a [u8],
    /// Set if `bytes` contains the places of the value's bytes instead of the bytes themselves.
    pub is_placed: bool,
}

impl StoredRecord<'_> {
    /// Returns the slots and the value of a vote or a decision, or `None` for other records.
    pub fn slots(&self) -> Option<(SlotRange, Value)> {
        match self.record {
            Record::Vote { range, value, .. } | Record::Decided { range, value } => {
                Some((range, value))
            }
            Record::Round { .. } | Record::Promise { .. } => None,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed(pub &'static str);

const ROUND: u8 = 1;
const PROMISE: u8 = 2;
const VOTE: u8 = 3;
const DECIDED: u8 = 4;
/// Record type of a vote whose value is stored elsewhere.
const PLACED_VOTE: u8 = 5;
const PLACED_DECIDED: u8 = 6;

/// Maximum size of a record without the bytes of its value, in bytes.
pub const RECORD_HEAD_BYTES_MAX: usize = 96;

/// Encodes everything except the bytes of the value. `bytes` is their length. If `placed`, they
/// locate the value elsewhere.
pub fn encode(record: &Record, placed: bool, bytes: u32, out: &mut Vec<u8>) {
    match *record {
        Record::Round { ballot } => {
            out.push(ROUND);
            put_ballot(out, ballot);
        }
        Record::Promise { ballot } => {
            out.push(PROMISE);
            put_ballot(out, ballot);
        }
        Record::Vote { ballot, range, value } => {
            out.push(if placed { PLACED_VOTE } else { VOTE });
            put_ballot(out, ballot);
            put_slots(out, range, &value, bytes);
        }
        Record::Decided { range, value } => {
            out.push(if placed { PLACED_DECIDED } else { DECIDED });
            put_slots(out, range, &value, bytes);
        }
    }
}

pub(crate) fn put_ballot(out: &mut Vec<u8>, ballot: Ballot) {
    put32(out, ballot.era.0);
    put32(out, ballot.round);
    put32(out, ballot.node.0);
}

fn put_slots(out: &mut Vec<u8>, range: SlotRange, value: &Value, bytes: u32) {
    put64(out, range.from.0);
    put64(out, range.to.0);
    put_value(out, value);
    put32(out, bytes);
}

fn put_value(out: &mut Vec<u8>, value: &Value) {
    match *value {
        Value::NoOp => out.push(0),
        Value::Batch(name) => {
            out.push(1);
            put32(out, name.origin.0);
            put32(out, name.boot);
            put64(out, name.counter);
            put32(out, name.length);
            put32(out, name.checksum);
        }
        Value::Content { stream, offset } => {
            out.push(2);
            put_stream(out, stream);
            put64(out, offset);
        }
        Value::CloseStream(stream) => {
            out.push(3);
            put_stream(out, stream);
        }
        Value::RegisterSession { origin, boot, number } => {
            out.push(4);
            put32(out, origin.0);
            put32(out, boot);
            put64(out, number);
        }
        Value::ExpireSession { session } => {
            out.push(5);
            put64(out, session);
        }
        Value::Reconfigure { era, change } => {
            out.push(6);
            put32(out, era.0);
            put_change(out, change);
        }
        Value::AllocateNode { nonce } => {
            out.push(7);
            put64(out, nonce);
        }
        Value::Now { ms } => {
            out.push(8);
            put64(out, ms);
        }
        Value::Raise { era, nodes, to } => {
            out.push(9);
            put32(out, era.0);
            put32(out, nodes);
            put32(out, to.0.into());
        }
    }
}

fn put_stream(out: &mut Vec<u8>, stream: StreamName) {
    put32(out, stream.owner.0);
    put32(out, stream.boot);
    put32(out, stream.number);
}

fn put_change(out: &mut Vec<u8>, change: Change) {
    let (kind, first, second) = match change {
        Change::Increment(member) => (1, member.node.0, member.incarnation.0),
        Change::Decrement(member) => (2, member.node.0, member.incarnation.0),
        Change::Multiply(factor) => (3, factor, 0),
        Change::Divide(factor) => (4, factor, 0),
        Change::Remove(node) => (5, node.0, 0),
        Change::Role { member, auxiliary } => {
            let kind = if auxiliary { 6 } else { 7 };
            (kind, member.node.0, member.incarnation.0)
        }
        Change::Rule(QuorumRule::Majority) => (8, 0, 0),
        Change::Rule(QuorumRule::Flexible { phase1, phase2 }) => (9, phase1, phase2),
        Change::Rule(QuorumRule::Grid { columns }) => (10, u32::from(columns), 0),
    };
    out.push(kind);
    put32(out, first);
    put32(out, second);
}

fn level(number: u32) -> Result<Level, Malformed> {
    let number = u16::try_from(number).map_err(|_| Malformed("no level is so high"))?;
    Ok(Level(number))
}

fn put32(out: &mut Vec<u8>, number: u32) {
    out.extend_from_slice(&number.to_le_bytes());
}

fn put64(out: &mut Vec<u8>, number: u64) {
    out.extend_from_slice(&number.to_le_bytes());
}

/// Decoder that reads fields from the front of a byte slice and checks every length.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FieldReader<'a> {
    rest: &'a [u8],
}

impl<'a> FieldReader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    pub(crate) fn take_bytes(&mut self, bytes: usize) -> Result<&'a [u8], Malformed> {
        let (head, rest) =
            self.rest.split_at_checked(bytes).ok_or(Malformed("record is cut short"))?;
        self.rest = rest;
        Ok(head)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (head, rest) = self.rest.split_first_chunk().ok_or(Malformed("record is cut short"))?;
        self.rest = rest;
        Ok(*head)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, Malformed> {
        Ok(u8::from_le_bytes(self.array()?))
    }

    pub(crate) fn u16(&mut self) -> Result<u16, Malformed> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    pub(crate) fn u32(&mut self) -> Result<u32, Malformed> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    pub(crate) fn u64(&mut self) -> Result<u64, Malformed> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    pub(crate) fn u128(&mut self) -> Result<u128, Malformed> {
        Ok(u128::from_le_bytes(self.array()?))
    }

    pub(crate) fn ballot(&mut self) -> Result<Ballot, Malformed> {
        Ok(Ballot { era: Era(self.u32()?), round: self.u32()?, node: NodeId(self.u32()?) })
    }

    fn slots(&mut self) -> Result<(SlotRange, Value, &'a [u8]), Malformed> {
        let range = SlotRange::new(Slot(self.u64()?), Slot(self.u64()?));
        if range.is_empty() {
            return Err(Malformed("record covers no slot"));
        }
        let value = self.value()?;
        let bytes = self.u32()?;
        let bytes =
            self.take_bytes(usize::try_from(bytes).map_err(|_| Malformed("record too long"))?)?;
        Ok((range, value, bytes))
    }

    fn value(&mut self) -> Result<Value, Malformed> {
        Ok(match self.u8()? {
            0 => Value::NoOp,
            1 => Value::Batch(BatchName {
                origin: NodeId(self.u32()?),
                boot: self.u32()?,
                counter: self.u64()?,
                length: self.u32()?,
                checksum: self.u32()?,
            }),
            2 => Value::Content { stream: self.stream()?, offset: self.u64()? },
            3 => Value::CloseStream(self.stream()?),
            4 => Value::RegisterSession {
                origin: NodeId(self.u32()?),
                boot: self.u32()?,
                number: self.u64()?,
            },
            5 => Value::ExpireSession { session: self.u64()? },
            6 => Value::Reconfigure { era: Era(self.u32()?), change: self.change()? },
            7 => Value::AllocateNode { nonce: self.u64()? },
            8 => Value::Now { ms: self.u64()? },
            9 => {
                Value::Raise { era: Era(self.u32()?), nodes: self.u32()?, to: level(self.u32()?)? }
            }
            _ => return Err(Malformed("unknown kind of value")),
        })
    }

    fn stream(&mut self) -> Result<StreamName, Malformed> {
        Ok(StreamName { owner: NodeId(self.u32()?), boot: self.u32()?, number: self.u32()? })
    }

    fn change(&mut self) -> Result<Change, Malformed> {
        let (kind, first, second) = (self.u8()?, self.u32()?, self.u32()?);
        let member = Member { node: NodeId(first), incarnation: Incarnation(second) };
        Ok(match kind {
            1 => Change::Increment(member),
            2 => Change::Decrement(member),
            3 => Change::Multiply(first),
            4 => Change::Divide(first),
            5 if second == 0 => Change::Remove(member.node),
            6 | 7 => Change::Role { member, auxiliary: kind == 6 },
            8 if first == 0 && second == 0 => Change::Rule(QuorumRule::Majority),
            9 => Change::Rule(QuorumRule::Flexible { phase1: first, phase2: second }),
            10 if second == 0 => Change::Rule(QuorumRule::Grid {
                columns: u8::try_from(first).map_err(|_| Malformed("unknown kind of change"))?,
            }),
            _ => return Err(Malformed("unknown kind of change")),
        })
    }
}

/// Iterator over the records in a log write. Ends after the first malformed one.
#[derive(Clone, Debug)]
pub struct Records<'a> {
    reader: FieldReader<'a>,
}

impl<'a> Records<'a> {
    pub fn new(body: &'a [u8]) -> Self {
        Self { reader: FieldReader::new(body) }
    }

    fn decode(&mut self) -> Result<StoredRecord<'a>, Malformed> {
        let reader = &mut self.reader;
        let kind = reader.u8()?;
        let (record, bytes) = match kind {
            ROUND => (Record::Round { ballot: reader.ballot()? }, &[][..]),
            PROMISE => (Record::Promise { ballot: reader.ballot()? }, &[][..]),
            VOTE | PLACED_VOTE => {
                let ballot = reader.ballot()?;
                let (range, value, bytes) = reader.slots()?;
                (Record::Vote { ballot, range, value }, bytes)
            }
            DECIDED | PLACED_DECIDED => {
                let (range, value, bytes) = reader.slots()?;
                (Record::Decided { range, value }, bytes)
            }
            _ => return Err(Malformed("unknown kind of record")),
        };
        Ok(StoredRecord { record, bytes, is_placed: matches!(kind, PLACED_VOTE | PLACED_DECIDED) })
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Result<StoredRecord<'a>, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.reader.is_empty() {
            return None;
        }
        let item = self.decode();
        if item.is_err() {
            self.reader = FieldReader::new(&[]);
        }
        Some(item)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(crate) fn every_value() -> Vec<Value> {
        let member = Member { node: NodeId(3), incarnation: Incarnation(2) };
        let stream = StreamName { owner: NodeId(2), boot: 4, number: 6 };
        let name =
            BatchName { origin: NodeId(1), boot: 2, counter: u64::MAX, length: 4, checksum: 5 };
        let mut values = vec![
            Value::NoOp,
            Value::Batch(name),
            Value::Content { stream, offset: 77 },
            Value::CloseStream(stream),
            Value::RegisterSession { origin: NodeId(9), boot: 1, number: 12 },
            Value::ExpireSession { session: 5 },
            Value::AllocateNode { nonce: 0xdead_beef },
            Value::Now { ms: 1_700_000_000_000 },
            Value::Raise { era: Era(7), nodes: 0xfeed_5eed, to: Level(9) },
        ];
        for change in [
            Change::Increment(member),
            Change::Decrement(member),
            Change::Multiply(2),
            Change::Divide(3),
            Change::Remove(NodeId(8)),
            Change::Role { member: Member::first(3), auxiliary: true },
            Change::Role { member: Member::first(3), auxiliary: false },
            Change::Rule(QuorumRule::Majority),
            Change::Rule(QuorumRule::Flexible { phase1: 4, phase2: 2 }),
            Change::Rule(QuorumRule::Grid { columns: 3 }),
        ] {
            values.push(Value::Reconfigure { era: Era(7), change });
        }
        values
    }

    #[test]
    fn every_record_round_trips() {
        let ballot = Ballot { era: Era(1), round: 2, node: NodeId(3) };
        let range = SlotRange::new(Slot(5), Slot(9));
        let mut records = vec![Record::Round { ballot }, Record::Promise { ballot }];
        for value in every_value() {
            records.push(Record::Vote { ballot, range, value });
            records.push(Record::Decided { range, value });
        }
        let mut body = Vec::new();
        let mut expected = Vec::new();
        for record in &records {
            let bytes: &[u8] = if record_has_slots(record) { b"bytes" } else { b"" };
            let before = body.len();
            let placed = body.len() % 2 == 1 && record_has_slots(record);
            encode(record, placed, u32::try_from(bytes.len()).unwrap(), &mut body);
            expected.push(placed);
            assert!(body.len() - before <= RECORD_HEAD_BYTES_MAX);
            body.extend_from_slice(bytes);
        }
        let back: Vec<_> = Records::new(&body).map(Result::unwrap).collect();
        assert_eq!(back.iter().map(|stored| stored.record).collect::<Vec<_>>(), records);
        assert!(expected.contains(&true) && expected.contains(&false));
        assert_eq!(back.iter().map(|stored| stored.is_placed).collect::<Vec<_>>(), expected);
        assert!(back.iter().all(|stored| stored.slots().is_none() || stored.bytes == b"bytes"));
    }

    fn record_has_slots(record: &Record) -> bool {
        matches!(record, Record::Vote { .. } | Record::Decided { .. })
    }

    #[test]
    fn a_record_cut_short_anywhere_is_refused() {
        for value in every_value() {
            let mut body = Vec::new();
            encode(&Record::Decided { range: SlotRange::one(Slot(1)), value }, false, 3, &mut body);
            body.extend_from_slice(b"abc");
            for cut in 1..body.len() {
                assert!(Records::new(&body[..cut]).any(|item| item.is_err()), "cut at {cut}");
            }
        }
    }
}
