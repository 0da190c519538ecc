//! Commands that write elements under a key.

use crate::rdb::types::{Element, Pending, StreamState};

/// Command with its arguments.
pub(super) type Command = Vec<Vec<u8>>;

/// Bytes that an argument needs next to its content.
const ARGUMENT_OVERHEAD_BYTES: usize = 16;
/// Bytes of the commands of an element next to its own words.
const COMMAND_OVERHEAD_BYTES: usize = 256;

/// Visits that the claims of one transaction take at most: half of what a transaction may take,
/// since the cluster's bytes of a stream are estimated.
const CLAIM_VISITS_MAX: u64 = 1 << 19;
/// Visits of claiming one entry.
const VISITS_PER_CLAIMED_ENTRY: u64 = 34;
/// Bytes of a stream that count as read by one claim, and bytes read by one visit.
const CLAIM_BYTES_MAX: u64 = 24 << 20;
const BYTES_PER_VISIT: u64 = 1024;
/// Size of the entries of one claim, which ends early beyond 16 MiB.
const CLAIMED_ENTRY_BYTES_MAX: u64 = 8 << 20;
/// Bytes of the rows of a pending entry, and of an entry next to its words, at most.
const ROW_OVERHEAD_BYTES: u64 = 128;

/// Commands that write the elements of one key, in order. Elements of one command are gathered.
#[derive(Debug, Default)]
pub(super) struct KeyCommands {
    commands: Vec<Command>,
    bytes: usize,
    /// Set if the last command takes further elements.
    takes_more: bool,
    /// Group of a stream whose consumers follow.
    group: Vec<u8>,
    consumer: Vec<u8>,
    has_entries: bool,
    /// Bytes of the stream, and of its largest entry.
    stream_bytes: u64,
    largest_entry_bytes: u64,
    /// Visits of the claims.
    claim_visits: u64,
    claim: Option<OpenClaim>,
}

/// Claim in the last command, which takes further entries of the same consumer.
#[derive(Clone, Copy, Debug)]
struct OpenClaim {
    delivered_ms: u64,
    delivery_count: u64,
    id_count: u64,
}

fn to_digits(number: impl ToString) -> Vec<u8> {
    number.to_string().into_bytes()
}

/// Returns the size of the commands that write an element, not counting names given before it.
pub(super) fn command_size(element: &Element<'_>) -> usize {
    let words =
        |words: &[&[u8]]| words.iter().map(|word| word.len() + ARGUMENT_OVERHEAD_BYTES).sum();
    let own: usize = match element {
        Element::Value(word) | Element::Item(word) | Element::Member(word) => words(&[word]),
        Element::Scored(word, _) | Element::Group(word, ..) | Element::Consumer(word) => {
            words(&[word])
        }
        Element::Field(field, value, _) => words(&[field, field, value]),
        Element::Entry(_, fields) => {
            fields.iter().map(|part| part.len() + ARGUMENT_OVERHEAD_BYTES).sum()
        }
        Element::State(_) | Element::Pending(_) => 0,
    };
    own + COMMAND_OVERHEAD_BYTES
}

impl KeyCommands {
    pub(super) fn is_empty(&self) -> bool {
        self.commands.is_empty()
    }

    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns whether an element can be added without exceeding `bytes_max`. The first one always
    /// can.
    pub(super) fn has_room(&self, element: &Element<'_>, bytes_max: usize) -> bool {
        let names = match element {
            Element::Consumer(_) => self.group.len(),
            Element::Pending(_) => self.group.len() + self.consumer.len(),
            _ => 0,
        };
        self.is_empty()
            || (self.bytes + command_size(element) + names <= bytes_max
                && self.claim_visits + self.element_visits(element) <= CLAIM_VISITS_MAX)
    }

    /// Returns the visits of a transaction that are due to an element, if they matter.
    fn element_visits(&self, element: &Element<'_>) -> u64 {
        match element {
            Element::Pending(pending) if self.can_claim_too(pending) => VISITS_PER_CLAIMED_ENTRY,
            Element::Pending(_) => {
                VISITS_PER_CLAIMED_ENTRY + self.stream_bytes.min(CLAIM_BYTES_MAX) / BYTES_PER_VISIT
            }
            _ => 0,
        }
    }

    /// Returns whether the last command can claim an entry too.
    fn can_claim_too(&self, pending: &Pending) -> bool {
        self.claim.is_some_and(|claim| {
            (claim.delivered_ms, claim.delivery_count) == (pending.delivered_ms, pending.deliveries)
                && (claim.id_count + 1) * self.largest_entry_bytes <= CLAIMED_ENTRY_BYTES_MAX
        })
    }

    /// Takes the commands out. Later elements begin new ones.
    pub(super) fn take_commands(&mut self) -> Vec<Command> {
        (self.bytes, self.takes_more, self.claim_visits, self.claim) = (0, false, 0, None);
        std::mem::take(&mut self.commands)
    }

    fn push<const N: usize>(&mut self, words: [&[u8]; N]) {
        (self.takes_more, self.claim) = (false, None);
        self.bytes += words.iter().map(|word| word.len() + ARGUMENT_OVERHEAD_BYTES).sum::<usize>();
        self.commands.push(words.iter().map(|word| word.to_vec()).collect());
    }

    /// Adds arguments to the last command, which is `name` of the key.
    fn extend_or_begin<const N: usize>(&mut self, name: &[u8], key: &[u8], arguments: [&[u8]; N]) {
        if !self.takes_more {
            self.push([name, key]);
            self.takes_more = true;
        }
        self.bytes +=
            arguments.iter().map(|word| word.len() + ARGUMENT_OVERHEAD_BYTES).sum::<usize>();
        if let Some(last) = self.commands.last_mut() {
            last.extend(arguments.iter().map(|word| word.to_vec()));
        }
    }

    /// Adds an element of `key`. A string's value is not for here.
    pub(super) fn add_element(&mut self, key: &[u8], element: &Element<'_>) {
        match element {
            Element::Value(_) => {}
            Element::Item(item) => self.extend_or_begin(b"RPUSH", key, [item]),
            Element::Member(member) => self.extend_or_begin(b"SADD", key, [member]),
            Element::Scored(member, score) => {
                self.extend_or_begin(b"ZADD", key, [&score_text(*score), member]);
            }
            Element::Field(field, value, None) => {
                self.extend_or_begin(b"HSET", key, [field, value])
            }
            Element::Field(field, value, Some(ms)) => {
                self.push([b"HSET", key, field, value]);
                self.push([b"HPEXPIREAT", key, &to_digits(ms), b"FIELDS", b"1", field]);
            }
            Element::Entry(id, fields) => {
                self.push([b"XADD", key, &to_digits(id)]);
                let bytes =
                    fields.iter().map(|part| part.len() + ARGUMENT_OVERHEAD_BYTES).sum::<usize>();
                self.bytes += bytes;
                let row = bytes as u64 + ROW_OVERHEAD_BYTES;
                self.stream_bytes += row;
                self.largest_entry_bytes = self.largest_entry_bytes.max(row);
                if let Some(last) = self.commands.last_mut() {
                    last.extend(fields.iter().cloned());
                }
                self.has_entries = true;
            }
            Element::State(state) => self.add_state(key, *state),
            Element::Group(name, last, read) => {
                self.group = name.to_vec();
                let read = read.map_or_else(|| b"-1".to_vec(), to_digits);
                let last = to_digits(last);
                self.push([b"XGROUP", b"CREATE", key, name, &last, b"ENTRIESREAD", &read]);
            }
            Element::Consumer(name) => {
                self.consumer = name.to_vec();
                let group = self.group.clone();
                self.push([b"XGROUP", b"CREATECONSUMER", key, &group, name]);
            }
            Element::Pending(pending) => self.add_pending(key, *pending),
        }
    }

    fn add_state(&mut self, key: &[u8], state: StreamState) {
        const GROUP: &[u8] = b"quorate:import";
        if !self.has_entries {
            // Only a group creates a stream without entries.
            self.push([b"XGROUP", b"CREATE", key, GROUP, b"0", b"MKSTREAM"]);
            self.push([b"XGROUP", b"DESTROY", key, GROUP]);
        }
        let last = to_digits(state.last_id);
        match state.counters {
            None => self.push([b"XSETID", key, &last]),
            Some((deleted, added)) => {
                let (deleted, added) = (to_digits(deleted), to_digits(added));
                self.push([
                    b"XSETID",
                    key,
                    &last,
                    b"ENTRIESADDED",
                    &added,
                    b"MAXDELETEDID",
                    &deleted,
                ]);
            }
        }
    }

    fn add_pending(&mut self, key: &[u8], pending: Pending) {
        const TAIL: usize = 6;
        self.claim_visits += self.element_visits(&Element::Pending(pending));
        self.stream_bytes += ROW_OVERHEAD_BYTES;
        let Pending { id, delivered_ms, deliveries } = pending;
        if self.can_claim_too(&pending)
            && let (Some(claim), Some(last)) = (&mut self.claim, self.commands.last_mut())
        {
            let id = to_digits(id);
            claim.id_count += 1;
            self.bytes += id.len() + ARGUMENT_OVERHEAD_BYTES;
            last.insert(last.len() - TAIL, id);
            return;
        }
        let (group, consumer) = (self.group.clone(), self.consumer.clone());
        let (id, time, count) = (to_digits(id), to_digits(delivered_ms), to_digits(deliveries));
        let head: [&[u8]; 6] = [b"XCLAIM", key, &group, &consumer, b"0", &id];
        let tail: [&[u8]; TAIL] = [b"TIME", &time, b"RETRYCOUNT", &count, b"FORCE", b"JUSTID"];
        let mut words: [&[u8]; 12] = [b""; 12];
        words[..6].copy_from_slice(&head);
        words[6..].copy_from_slice(&tail);
        self.push(words);
        self.claim = Some(OpenClaim { delivered_ms, delivery_count: deliveries, id_count: 1 });
    }
}

/// Formats a score so that the same double is read back.
fn score_text(score: f64) -> Vec<u8> {
    match score {
        f64::INFINITY => b"+inf".to_vec(),
        f64::NEG_INFINITY => b"-inf".to_vec(),
        _ => format!("{score:e}").into_bytes(),
    }
}

/// Reply that says what became of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ExpectedReply {
    /// Anything but an error.
    NoError,
    /// 0 if the key that an earlier transaction began is gone.
    KeyKept,
    /// Nil, 0 or "no such key" if the key was not written.
    KeyWritten,
    /// The claimed ids of this number. Pending entries deleted from the stream are missing.
    ClaimedIds(usize),
}

/// Returns the command that writes a string.
pub(super) fn string_command(
    name: &[u8],
    value: &[u8],
    expires_ms: Option<u64>,
    replaces: bool,
) -> (Command, ExpectedReply) {
    let mut words = vec![b"SET".to_vec(), name.to_vec(), value.to_vec()];
    if !replaces {
        words.push(b"NX".to_vec());
    }
    if let Some(ms) = expires_ms {
        words.extend([b"PXAT".to_vec(), to_digits(ms)]);
    }
    (words, ExpectedReply::KeyWritten)
}

/// Returns what the reply to a command of [`KeyCommands`] is expected to be.
pub(super) fn expected_reply(command: &Command) -> ExpectedReply {
    match command.first().map(Vec::as_slice) {
        // The other words are the command's name, key, group, consumer, idle time, and six options.
        Some(b"XCLAIM") => ExpectedReply::ClaimedIds(command.len().saturating_sub(11)),
        _ => ExpectedReply::NoError,
    }
}

/// Returns the commands that move a complete collection from `temporary` to its name. `is_expiring`
/// is set if the temporary key expires.
pub(super) fn publish_commands(
    temporary: &[u8],
    name: &[u8],
    expires_ms: Option<u64>,
    (replaces, is_expiring): (bool, bool),
) -> Vec<(Command, ExpectedReply)> {
    let words = |words: &[&[u8]]| words.iter().map(|word| word.to_vec()).collect::<Command>();
    let mut commands = Vec::new();
    match expires_ms {
        Some(ms) => commands
            .push((words(&[b"PEXPIREAT", temporary, &to_digits(ms)]), ExpectedReply::NoError)),
        None if is_expiring => {
            commands.push((words(&[b"PERSIST", temporary]), ExpectedReply::NoError))
        }
        None => {}
    }
    if replaces {
        commands.push((words(&[b"RENAME", temporary, name]), ExpectedReply::KeyWritten));
    } else {
        commands.push((words(&[b"RENAMENX", temporary, name]), ExpectedReply::KeyWritten));
        commands.push((words(&[b"DEL", temporary]), ExpectedReply::NoError));
    }
    commands
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rdb::types::EntryId;

    fn text(commands: &[Command]) -> Vec<String> {
        let word = |word: &Vec<u8>| String::from_utf8_lossy(word).into_owned();
        commands.iter().map(|words| words.iter().map(word).collect::<Vec<_>>().join(" ")).collect()
    }

    #[test]
    fn elements_share_a_command_up_to_a_chunk() {
        let mut gathered = KeyCommands::default();
        gathered.add_element(b"t", &Element::Item(b"a"));
        gathered.add_element(b"t", &Element::Item(b"b"));
        assert_eq!(text(&gathered.take_commands()), ["RPUSH t a b"]);
        gathered.add_element(b"t", &Element::Item(b"c"));
        assert!(gathered.bytes() > 0 && !gathered.is_empty());
        assert_eq!(text(&gathered.take_commands()), ["RPUSH t c"]);
        gathered.add_element(b"t", &Element::Scored(b"m", 0.1 + 0.2));
        gathered.add_element(b"t", &Element::Scored(b"n", f64::NEG_INFINITY));
        assert_eq!(text(&gathered.take_commands()), ["ZADD t 3.0000000000000004e-1 m -inf n"]);
    }

    #[test]
    fn a_field_that_expires_has_a_command_of_its_own() {
        let mut gathered = KeyCommands::default();
        for expires_ms in [None, Some(7), None] {
            gathered.add_element(b"t", &Element::Field(b"f", b"v", expires_ms));
        }
        let expected = ["HSET t f v", "HSET t f v", "HPEXPIREAT t 7 FIELDS 1 f", "HSET t f v"];
        assert_eq!(text(&gathered.take_commands()), expected);
    }

    #[test]
    fn a_stream_without_entries_is_made_by_a_group() {
        let id = |ms| EntryId { ms, sequence: 0 };
        let mut gathered = KeyCommands::default();
        let counters = Some((id(3), 9));
        gathered.add_element(
            b"t",
            &Element::State(StreamState { length: 0, last_id: id(4), counters }),
        );
        gathered.add_element(b"t", &Element::Group(b"g", id(2), None));
        gathered.add_element(b"t", &Element::Consumer(b"c"));
        let pending = Pending { id: id(1), delivered_ms: 5, deliveries: 2 };
        gathered.add_element(b"t", &Element::Pending(pending));
        let expected = [
            "XGROUP CREATE t quorate:import 0 MKSTREAM",
            "XGROUP DESTROY t quorate:import",
            "XSETID t 4-0 ENTRIESADDED 9 MAXDELETEDID 3-0",
            "XGROUP CREATE t g 2-0 ENTRIESREAD -1",
            "XGROUP CREATECONSUMER t g c",
            "XCLAIM t g c 0 1-0 TIME 5 RETRYCOUNT 2 FORCE JUSTID",
        ];
        assert_eq!(text(&gathered.take_commands()), expected);
    }

    #[test]
    fn claims_are_joined_while_they_agree_and_fit() {
        let pending = |ms, deliveries| {
            let id = EntryId { ms, sequence: 0 };
            Element::Pending(Pending { id, delivered_ms: 5, deliveries })
        };
        let mut gathered = KeyCommands::default();
        gathered.add_element(b"t", &Element::Consumer(b"c"));
        for (ms, deliveries) in [(1, 2), (2, 2), (3, 9)] {
            gathered.add_element(b"t", &pending(ms, deliveries));
        }
        let expected = [
            "XGROUP CREATECONSUMER t  c",
            "XCLAIM t  c 0 1-0 2-0 TIME 5 RETRYCOUNT 2 FORCE JUSTID",
            "XCLAIM t  c 0 3-0 TIME 5 RETRYCOUNT 9 FORCE JUSTID",
        ];
        let commands = gathered.take_commands();
        assert_eq!(text(&commands), expected);
        assert_eq!(expected_reply(&commands[1]), ExpectedReply::ClaimedIds(2));
        // A claim of a stream of 24 MiB takes 24 610 visits, and 21 of them half a transaction.
        let entry = vec![vec![0; 1 << 20]];
        for ms in 0..24 {
            gathered.add_element(b"t", &Element::Entry(EntryId { ms, sequence: 0 }, &entry));
        }
        gathered.take_commands();
        let mut count = 0;
        while gathered.has_room(&pending(count, count), usize::MAX) {
            gathered.add_element(b"t", &pending(count, count));
            count += 1;
        }
        assert_eq!(count, 21);
        // Entries of 1 MiB are claimed seven at a time, since a claim ends early beyond 16 MiB.
        gathered.take_commands();
        (0..8).for_each(|ms| gathered.add_element(b"t", &pending(ms, 1)));
        let ids = gathered.take_commands().iter().map(expected_reply).collect::<Vec<_>>();
        assert_eq!(ids, [ExpectedReply::ClaimedIds(7), ExpectedReply::ClaimedIds(1)]);
    }

    #[test]
    fn a_key_that_exists_is_kept_unless_it_is_replaced() {
        let commands = |replaces, is_expiring| {
            let all = publish_commands(b"t", b"k", None, (replaces, is_expiring));
            text(&all.into_iter().map(|(command, _)| command).collect::<Vec<_>>())
        };
        assert_eq!(commands(false, true), ["PERSIST t", "RENAMENX t k", "DEL t"]);
        assert_eq!(commands(true, false), ["RENAME t k"]);
        assert_eq!(text(&[string_command(b"k", b"v", Some(5), false).0]), ["SET k v NX PXAT 5"]);
        assert_eq!(text(&[string_command(b"k", b"v", None, true).0]), ["SET k v"]);
    }
}
