//! Request order of a connection. Replies are sent in the order of the requests, and a read is
//! executed between the writes before and after it.
//!
//! Writes are sent to the replica as they arrive. Adjacent reads share one confirmation and form a
//! *run*, unless a write is next to them. A read next to a write is sent *in order* with the writes
//! and executed between them without waiting. WATCH and reads of all data wait for earlier writes,
//! and later writes wait for them. A read never joins a run that was requested before it arrived:
//! it might miss writes that another client completed in between.

use std::{collections::VecDeque, ops::Range};

use quorate_replica::front::{ConnectionId, Failure, Requests, Sequenced, State as Moment, Tag};

use super::{
    asked::{Freshness, Query, Read, Write, WriteKind},
    buffers::fresh,
    channels::{Names, Subscriptions},
    refusals::{FULL, failure_text},
    returning::Returning,
    roster::ClientSlot,
    shared::{Shared, Target},
    tally::{Stamp, Tally},
    transaction::{Watching, without_absent_versions},
};
use crate::{
    command::SubscriptionKind,
    commands::{
        transactions::{ABSENT_LEVEL, decode_versions, encode_exec},
        visits::may_be_long,
    },
    encode::{Decoder, Encoder},
    op::Op,
    resp::reply::{Reply, Version, render},
};

/// Maximum capacity in bytes of the output buffer of an idle connection.
const IDLE_OUTPUT_BYTES: usize = 16 * 1024;
/// Number of requests for which an idle connection keeps memory.
const IDLE_PLACES: usize = 64;
/// Number of unsent bytes above which even accepted reads are refused.
pub(super) const OUTPUT_BYTES_HARD: usize = 64 * 1024 * 1024;

/// Sends a write to the replica. If `lasting`, the reply waits until the write is on stable storage
/// at a quorum.
pub(super) fn ask(
    requests: &mut dyn Requests,
    tag: Tag,
    (at, lasting): (Option<Sequenced>, bool),
    command: &[u8],
) -> Result<(), Failure> {
    let mut bounded = Vec::new();
    let command = if may_be_long(command) && requests.level() >= ABSENT_LEVEL {
        bounded.push(Op::Bounded as u8);
        bounded.extend_from_slice(command);
        bounded.as_slice()
    } else {
        command
    };
    match at {
        _ if lasting => requests.write_lasting(tag, at, command),
        Some(at) => requests.write_once(tag, at, command),
        None => requests.write(tag, command),
    }
}

/// Function that executes a query and appends the answer to a buffer.
pub(super) type RunQuery<'a> = dyn FnMut(&[u8], &mut Vec<u8>) -> Result<(), Failure> + 'a;

/// Progress of a request.
#[derive(Debug)]
enum State {
    /// The rendered reply waits for earlier replies.
    Done(Vec<u8>),
    Writing(Tag),
    /// The client is blocked, or the reply depends on another client's blocked request.
    Parked,
    /// The write waits for earlier reads.
    Held(Write),
    /// The read waits for earlier writes, or belongs to a run in flight.
    Reading(Read),
    /// The read was sent in order, to be executed between the writes before and after it.
    InOrder(Tag, Read),
}

#[derive(Debug)]
struct Place {
    state: State,
    stamp: Stamp,
    version: Version,
    /// True if the client has turned off the reply.
    silent: bool,
    bytes: usize,
    returning: bool,
}

/// Reads among the requests `from..to` that share one confirmation.
#[derive(Debug)]
struct Run {
    tag: Tag,
    from: u64,
    to: u64,
    reads: usize,
}

/// A connection's unanswered requests in order, with unsent replies.
#[derive(Debug, Default)]
pub(super) struct Order {
    pub(super) output: Vec<u8>,
    pub(super) stamp: Stamp,
    /// True if the client has turned off the reply to the current request.
    pub(super) silent: bool,
    /// True if the current request, if it is a write, is answered only once it is on stable storage
    /// at a quorum.
    pub(super) lasting: bool,
    seat: ClientSlot,
    places: VecDeque<Place>,
    /// Messages, each with a number: it follows the replies to all requests below that number.
    notices: VecDeque<(u64, Vec<u8>)>,
    /// Number of the first unanswered request.
    first: u64,
    /// Number below which every request has been sent or answered.
    cursor: u64,
    /// Number of writes in flight.
    open_writes: usize,
    /// Number of in-order reads in flight.
    open_in_order: usize,
    /// Number above all writes that were sent.
    sent_below: u64,
    /// Number of unsent writes.
    held: usize,
    /// Number of reads in runs in flight.
    open_reads: usize,
    runs: VecDeque<Run>,
    /// Total size in bytes of unanswered requests.
    pub(super) open_bytes: usize,
    /// Total size in bytes of replies and messages that wait for earlier replies.
    done_bytes: usize,
    /// Total size in bytes of buffered reads and unsent writes.
    kept_bytes: usize,
    /// Bytes charged to the shared memory limit.
    counted: usize,
    /// Writes in flight that may have large replies.
    pub(super) returning: Returning,
}

impl Order {
    pub(super) fn new(seat: ClientSlot) -> Self {
        Self { seat, ..Self::default() }
    }

    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Returns the number of bytes of unsent replies.
    pub(super) const fn buffered(&self) -> usize {
        self.output.len() + self.done_bytes
    }

    pub(super) const fn counted(&self) -> usize {
        self.counted
    }

    pub(super) fn recount(&mut self, shared: &mut Shared) {
        let places = self.places.capacity() * size_of::<Place>();
        // Includes unused capacity left by a burst.
        let output = self.output.len().max(self.output.capacity() / 5 * 4);
        let held = output + self.done_bytes + self.kept_bytes + places;
        shared.recount(&mut self.counted, held);
    }

    /// Releases the memory of a burst once its output is sent.
    pub(super) fn sent(&mut self) {
        let length = self.output.len();
        if length <= self.output.capacity() / 4 {
            self.output.shrink_to(IDLE_OUTPUT_BYTES.max(length + length / 4));
        }
        if self.places.is_empty() {
            self.places.shrink_to(IDLE_PLACES);
        }
    }

    pub(super) fn open_tags(&self) -> VecDeque<Tag> {
        let writes = self.places.iter().filter_map(|place| match place.state {
            State::Writing(tag) | State::InOrder(tag, _) => Some(tag),
            State::Done(_) | State::Parked | State::Held(_) | State::Reading(_) => None,
        });
        writes.chain(self.runs.iter().map(|run| run.tag)).collect()
    }

    /// Returns the number of the next request.
    pub(super) fn end(&self) -> u64 {
        self.first + self.places.len() as u64
    }

    fn place(&mut self, number: u64) -> Option<&mut Place> {
        self.places.get_mut(usize::try_from(number.checked_sub(self.first)?).ok()?)
    }

    /// Returns whether a request is the first unanswered one.
    pub(super) const fn is_next(&self, number: u64) -> bool {
        number == self.first
    }

    /// Returns whether a request is unanswered.
    pub(super) fn is_open(&mut self, number: u64) -> bool {
        let place = self.place(number);
        place.is_some_and(|place| !matches!(place.state, State::Done(_)))
    }

    /// Adds a request together with its reply.
    pub(super) fn push_answer(&mut self, neutral: &[u8], version: Version) {
        if self.silent {
            return;
        }
        if self.places.is_empty() {
            self.make_room(neutral.len());
            render(neutral, version, &mut self.output);
            return;
        }
        let mut rendered = Vec::with_capacity(neutral.len());
        render(neutral, version, &mut rendered);
        self.done_bytes += rendered.len();
        if self.cursor == self.end() {
            self.cursor += 1;
        }
        self.push(State::Done(rendered), version, 0, false);
    }

    /// Sends a message after the replies to all requests below `before`, or to all requests.
    pub(super) fn push_notice(&mut self, neutral: &[u8], version: Version, before: Option<u64>) {
        let before = before.unwrap_or_else(|| self.end());
        if before <= self.first {
            return self.push_message(neutral, version);
        }
        let mut rendered = Vec::with_capacity(neutral.len());
        render(neutral, version, &mut rendered);
        self.done_bytes += rendered.len();
        self.notices.push_back((before, rendered));
    }

    /// Adds a read made by the connection itself, without reply or statistics.
    pub(super) fn push_own_read(&mut self, read: Read, version: Version) {
        let asked = (std::mem::take(&mut self.stamp), std::mem::replace(&mut self.silent, true));
        self.push_read(read, version);
        (self.stamp, self.silent) = asked;
    }

    /// Sends a message at once, outside the order of requests.
    pub(super) fn push_message(&mut self, neutral: &[u8], version: Version) {
        self.make_room(neutral.len());
        render(neutral, version, &mut self.output);
    }

    pub(super) fn drop_output(&mut self) {
        self.output = Vec::new();
    }

    /// Adds a request whose reply depends on another client.
    pub(super) fn push_parked(&mut self, version: Version) {
        if self.cursor == self.end() {
            self.cursor += 1;
        }
        self.push(State::Parked, version, 0, false);
    }

    /// Returns the subscriptions once all requests are answered, given the current ones.
    pub(super) fn will_listen(&self, of: SubscriptionKind, mut names: Names) -> Names {
        for place in &self.places {
            if let State::Reading(read) | State::InOrder(_, read) = &place.state
                && let Query::Listen(space, listen) = read.what
                && space == of
            {
                match listen {
                    true => names.insert(read.query.as_slice().into()),
                    false => names.remove(read.query.as_slice()),
                };
            }
        }
        names
    }

    pub(super) fn push_read(&mut self, read: Read, version: Version) {
        let bytes = read.query.len();
        self.kept_bytes += bytes;
        self.push(State::Reading(read), version, bytes, false);
    }

    pub(super) fn push_write(&mut self, write: Write, returning: bool, version: Version) {
        let bytes = write.command.len();
        self.held += 1;
        self.kept_bytes += bytes;
        let write = Write { lasting: self.lasting, ..write };
        self.push(State::Held(write), version, bytes, returning);
    }

    fn push(&mut self, state: State, version: Version, bytes: usize, returning: bool) {
        self.open_bytes += bytes;
        if returning {
            self.returning.opens();
        }
        self.places.push_back(Place {
            state,
            stamp: self.stamp,
            version,
            silent: self.silent,
            bytes,
            returning,
        });
    }

    pub(super) fn has_unsent(&self) -> bool {
        self.cursor < self.end()
    }

    /// Returns whether a write could be sent at once.
    pub(super) fn may_write(&self) -> bool {
        !self.has_unsent() && self.open_reads == 0
    }

    /// Sends a write without buffering it. This is the fast path.
    pub(super) fn write_now(
        &mut self,
        connection: ConnectionId,
        command: &[u8],
        returning: bool,
        version: Version,
        shared: &mut Shared,
        requests: &mut dyn Requests,
    ) {
        let number = self.end();
        let tag = shared.tag(connection, Target::Place(number));
        match ask(requests, tag, (None, self.lasting), command) {
            Ok(()) => {
                self.push(State::Writing(tag), version, command.len(), returning);
                self.cursor = number + 1;
                self.sent_below = number + 1;
                self.open_writes += 1;
            }
            Err(failure) => {
                shared.tags.take(tag);
                shared.fresh_reply().error(&failure_text(failure));
                shared.tally.answers(self.stamp, &shared.reply);
                self.push_answer(&shared.reply, version);
            }
        }
    }

    /// Completes a request, and sends every reply that no longer waits for an earlier one.
    fn finish(&mut self, number: u64, neutral: &[u8], tally: &mut Tally) {
        let at_front = number == self.first;
        let Some(place) = self.place(number) else {
            return;
        };
        let stamp = place.stamp;
        let slow_ms = tally.finishes(stamp, neutral);
        let (bytes, returning, version) = (place.bytes, place.returning, place.version);
        let silent = place.silent;
        if !at_front {
            let mut rendered = Vec::new();
            if !silent {
                rendered.reserve_exact(neutral.len());
                render(neutral, version, &mut rendered);
            }
            let length = rendered.len();
            place.state = State::Done(rendered);
            (place.bytes, place.returning) = (0, false);
            self.done_bytes += length;
        }
        self.open_bytes -= bytes;
        if returning {
            self.returning.closes(neutral.len());
        }
        if at_front {
            if !silent {
                self.make_room(neutral.len());
                render(neutral, version, &mut self.output);
            }
            self.pop();
            self.flush();
        }
        if slow_ms.is_some() || tally.slow.has_notes() {
            tally.notes(self.seat, number, stamp, slow_ms);
        }
    }

    /// Grows a large output buffer by a quarter, because doubling would waste memory.
    fn make_room(&mut self, bytes: usize) {
        const LARGE: usize = 16 * 1024;
        let length = self.output.len();
        if length > LARGE && self.output.capacity() - length < bytes {
            self.output.reserve_exact(bytes.max(length / 4));
        }
    }

    fn pop(&mut self) {
        self.places.pop_front();
        self.first += 1;
        self.cursor = self.cursor.max(self.first);
        let first = self.first;
        while let Some((_, notice)) = self.notices.pop_front_if(|(before, _)| *before <= first) {
            self.make_room(notice.len());
            self.output.extend_from_slice(&notice);
            self.done_bytes -= notice.len();
        }
    }

    /// Moves completed replies from the front to the output.
    fn flush(&mut self) {
        while let Some(Place { state: State::Done(reply), .. }) = self.places.front_mut() {
            let reply = std::mem::take(reply);
            self.make_room(reply.len());
            self.output.extend_from_slice(&reply);
            self.done_bytes -= reply.len();
            self.pop();
        }
    }

    fn fail(&mut self, number: u64, failure: Failure, shared: &mut Shared) {
        if let Some(Place { state: State::Reading(read) | State::InOrder(_, read), .. }) =
            self.place(number)
        {
            let bytes = std::mem::take(&mut read.query).len();
            self.kept_bytes -= bytes;
        }
        shared.fresh_reply().error(&failure_text(failure));
        self.finish(number, &shared.reply, &mut shared.tally);
    }

    /// Executes an in-order read on the state between the writes before and after it.
    pub(super) fn read_now(
        &mut self,
        number: u64,
        own: &mut ConnectionParts<'_>,
        shared: &mut Shared,
        state: &dyn Moment,
    ) {
        self.answer(number, own, shared, &mut |query, reply| state.query(query, reply));
    }

    pub(super) const fn read_in_order(&mut self) {
        self.open_in_order -= 1;
    }

    pub(super) fn written(&mut self, number: u64, reply: &[u8], tally: &mut Tally) {
        self.open_writes -= 1;
        self.finish(number, reply, tally);
    }

    /// Marks an executed write as blocked: its client waits.
    pub(super) fn park(&mut self, number: u64) {
        self.open_writes -= 1;
        if let Some(place) = self.place(number) {
            place.state = State::Parked;
        }
    }

    pub(super) fn unpark(&mut self, number: u64, reply: &[u8], tally: &mut Tally) {
        if let Some(place) = self.place(number) {
            place.stamp.begins_again(tally.now_ms);
        }
        self.finish(number, reply, tally);
    }

    /// Handles a write or in-order read that was not executed, or whose outcome is unknown.
    pub(super) fn place_failed(
        &mut self,
        number: u64,
        failure: Failure,
        own: &mut ConnectionParts<'_>,
        shared: &mut Shared,
        requests: &mut dyn Requests,
    ) {
        match self.place(number).map(|place| &place.state) {
            Some(State::InOrder(_, read)) => {
                let stale = read.fresh == Freshness::Stale;
                self.open_in_order -= 1;
                if stale && self.sent_below <= number {
                    // The writes before it failed too, so this node's state cannot contain a later
                    // one.
                    return self.query(number, own, shared, requests);
                }
            }
            _ => self.open_writes -= 1,
        }
        self.fail(number, failure, shared);
    }

    /// Answers a run of reads whose freshness is confirmed.
    pub(super) fn readable(
        &mut self,
        tag: Tag,
        own: &mut ConnectionParts<'_>,
        shared: &mut Shared,
        requests: &mut dyn Requests,
    ) {
        let Some(run) = self.take_run(tag) else {
            return;
        };
        for number in run.from..run.to {
            let answered = self.answer(number, own, shared, &mut |query, reply| {
                requests.answer(tag, query, reply)
            });
            if !answered {
                return self.ask_again(number, run.to, own, shared, requests);
            }
        }
    }

    /// Requests the rest of a run again: its confirmation expired while the first read was executed
    /// ([read-4]).
    fn ask_again(
        &mut self,
        from: u64,
        to: u64,
        own: &mut ConnectionParts<'_>,
        shared: &mut Shared,
        requests: &mut dyn Requests,
    ) {
        let reading = |place: Option<&mut Place>| {
            place.is_some_and(|place| matches!(place.state, State::Reading(_)))
        };
        let reads = (from..to).filter(|number| reading(self.place(*number)));
        let reads = reads.count();
        self.open_reads += reads;
        self.issue(from..to, reads, own, shared, requests);
    }

    /// Sends all requests that can be sent now. `write_next` means that an unqueued write follows.
    pub(super) fn advance(
        &mut self,
        write_next: bool,
        own: &mut ConnectionParts<'_>,
        shared: &mut Shared,
        requests: &mut dyn Requests,
    ) {
        loop {
            let (from, mut reads) = (self.cursor, 0);
            while let Some(step) = self.next_step(write_next, shared.tally.now_ms) {
                let number = self.cursor;
                self.cursor += 1;
                match step {
                    Step::Nothing => {}
                    Step::Write(write) => {
                        self.send(number, write, own, shared, requests);
                    }
                    Step::Gather => {
                        reads += 1;
                        self.open_reads += 1;
                    }
                    Step::Query => self.query(number, own, shared, requests),
                    Step::InOrder => self.ask_in_order(own.id, number, shared, requests),
                }
            }
            let run = from..self.cursor;
            if reads == 0 || self.issue(run, reads, own, shared, requests) {
                return;
            }
        }
    }

    /// Returns the next step for the request at the cursor, if it can be taken now.
    fn next_step(&mut self, write_next: bool, now_ms: u64) -> Option<Step> {
        let in_runs = self.open_reads > 0;
        let in_log = self.open_writes + self.open_in_order > 0;
        // Of several reads after a write, only those that arrive before the write completes are
        // sent in order.
        let among_writes = self.open_writes > 0 || self.held > 0 || write_next;
        let cursor = self.cursor;
        let Place { state, stamp, .. } = self.place(cursor)?;
        let step = match state {
            State::Done(_) | State::Writing(_) | State::Parked | State::InOrder(..) => {
                return Some(Step::Nothing);
            }
            State::Held(write) => (!in_runs).then(|| {
                let command = std::mem::take(&mut write.command);
                Step::Write(Write { command, ..*write })
            }),
            State::Reading(read) if read.fresh == Freshness::Stale && !in_log => Some(Step::Query),
            State::Reading(read) if read.alone || !among_writes => {
                (!in_log).then_some(Step::Gather)
            }
            // A read of a run in flight may execute later than a read that is sent in order now.
            State::Reading(_) => (!in_runs).then_some(Step::InOrder),
        };
        if step.is_some() {
            stamp.leaves(now_ms);
        }
        step
    }

    fn ask_in_order(
        &mut self,
        connection: ConnectionId,
        number: u64,
        shared: &mut Shared,
        requests: &mut dyn Requests,
    ) {
        let tag = shared.tag(connection, Target::Place(number));
        if let Err(failure) = requests.read_in_order(tag) {
            shared.tags.take(tag);
            return self.fail(number, failure, shared);
        }
        self.open_in_order += 1;
        if let Some(place) = self.place(number)
            && let State::Reading(read) = &mut place.state
        {
            let query = std::mem::take(&mut read.query);
            let read = Read { query, ..*read };
            place.state = State::InOrder(tag, read);
        }
    }

    /// Requests a run of reads. Returns `false` if it was refused; later requests may then be sent.
    fn issue(
        &mut self,
        run: Range<u64>,
        reads: usize,
        own: &mut ConnectionParts<'_>,
        shared: &mut Shared,
        requests: &mut dyn Requests,
    ) -> bool {
        let tag = shared.tag(own.id, Target::Run);
        let fresh = self.strictest(run.clone());
        self.runs.push_back(Run { tag, from: run.start, to: run.end, reads });
        let taken = match fresh {
            Some(most_ms) => requests.read_within(tag, most_ms),
            None => requests.read(tag),
        };
        match taken {
            Ok(()) => true,
            Err(failure) => {
                shared.tags.take(tag);
                self.run_failed(tag, failure, own, shared);
                false
            }
        }
    }

    /// Returns the smallest staleness bound in a run, or `None` if one of its reads has none.
    fn strictest(&mut self, run: Range<u64>) -> Option<u64> {
        let mut most_ms = None;
        for number in run {
            let Some(Place { state: State::Reading(read), .. }) = self.place(number) else {
                continue;
            };
            most_ms = match read.fresh {
                Freshness::Within(ms) => Some(most_ms.map_or(ms, |most: u64| most.min(ms))),
                Freshness::Linearizable | Freshness::Stale => return None,
            };
        }
        most_ms
    }

    fn send(
        &mut self,
        number: u64,
        write: Write,
        own: &mut ConnectionParts<'_>,
        shared: &mut Shared,
        requests: &mut dyn Requests,
    ) {
        self.held -= 1;
        self.kept_bytes -= write.command.len();
        let tag = shared.tag(own.id, Target::Place(number));
        let sent = match write.how {
            WriteKind::Plain(at) => ask(requests, tag, (at, write.lasting), &write.command),
            WriteKind::Register => requests.register(tag),
            WriteKind::Exec { epoch, count, at } => {
                let Some(mut watched) = own.watching.take(epoch) else {
                    shared.tags.take(tag);
                    let text = "EXECABORT Transaction discarded because WATCH failed.";
                    shared.fresh_reply().error(text);
                    self.finish(number, &shared.reply, &mut shared.tally);
                    return;
                };
                if requests.level() < ABSENT_LEVEL {
                    without_absent_versions(&mut watched);
                }
                let mut command = Vec::with_capacity(write.command.len() + 64);
                let out = &mut Encoder(&mut command);
                encode_exec(watched.iter(), count, &write.command, out);
                ask(requests, tag, (at, write.lasting), &command)
            }
        };
        match sent {
            Ok(()) => {
                self.open_writes += 1;
                self.sent_below = number + 1;
                if let Some(place) = self.place(number) {
                    place.state = State::Writing(tag);
                }
            }
            Err(failure) => {
                shared.tags.take(tag);
                self.fail(number, failure, shared);
            }
        }
    }

    /// Answers a read from this node's current state.
    fn query(
        &mut self,
        number: u64,
        own: &mut ConnectionParts<'_>,
        shared: &mut Shared,
        requests: &mut dyn Requests,
    ) {
        self.answer(number, own, shared, &mut |query, reply| requests.query(query, reply));
    }

    /// Answers a read. Returns `false` if it must be requested again.
    fn answer(
        &mut self,
        number: u64,
        own: &mut ConnectionParts<'_>,
        shared: &mut Shared,
        ask: &mut RunQuery<'_>,
    ) -> bool {
        self.recount(shared);
        let full = if self.buffered() > OUTPUT_BYTES_HARD {
            Some("BUSY not executed: too many replies wait for this client to read them")
        } else {
            shared.is_full(0).then_some(FULL)
        };
        let Some(place) = self.place(number) else {
            return true;
        };
        let (State::Reading(read) | State::InOrder(_, read)) = &mut place.state else {
            return true;
        };
        let (query, what) = (std::mem::take(&mut read.query), read.what);
        self.kept_bytes -= query.len();
        let mut reply = std::mem::take(&mut shared.reply);
        fresh(&mut reply);
        let r = &mut Reply(&mut reply);
        let refused = match (full, what) {
            (Some(text), _) => Some(text.into()),
            (None, Query::Listen(of, listen)) => {
                let channels = &mut shared.channels;
                own.subscriptions.change(own.id, (of, listen), &query, channels, r);
                if let Some(guest) = shared.roster.guest(self.seat) {
                    guest.listens = own.subscriptions.counts();
                }
                None
            }
            (None, _) => match ask(&query, r.0) {
                Err(Failure::Overtaken) => {
                    shared.reply = reply;
                    self.put_back(number, query);
                    return false;
                }
                asked => asked.err().map(failure_text),
            },
        };
        if let Some(text) = &refused {
            r.error(text);
        }
        if let Query::Watch(epoch) = what {
            watch(own.watching, epoch, &query, refused.is_some(), r.0);
        }
        shared.reply = reply;
        self.finish(number, &shared.reply, &mut shared.tally);
        shared.reuse(query);
        true
    }

    fn put_back(&mut self, number: u64, query: Vec<u8>) {
        self.kept_bytes += query.len();
        if let Some(Place { state: State::Reading(read) | State::InOrder(_, read), .. }) =
            self.place(number)
        {
            read.query = query;
        }
    }

    fn take_run(&mut self, tag: Tag) -> Option<Run> {
        let index = self.runs.iter().position(|run| run.tag == tag)?;
        let run = self.runs.remove(index)?;
        self.open_reads -= run.reads;
        Some(run)
    }

    pub(super) fn run_failed(
        &mut self,
        tag: Tag,
        failure: Failure,
        own: &mut ConnectionParts<'_>,
        shared: &mut Shared,
    ) {
        let Some(run) = self.take_run(tag) else {
            return;
        };
        for number in run.from..run.to {
            let Some(Place { state: State::Reading(read), .. }) = self.place(number) else {
                continue;
            };
            if let Query::Watch(epoch) = read.what {
                own.watching.failed(epoch);
            }
            self.fail(number, failure, shared);
        }
    }
}

/// Records the versions for WATCH, and replaces the answer with the client's reply.
fn watch(watching: &mut Watching, epoch: u64, query: &[u8], refused: bool, reply: &mut Vec<u8>) {
    let mut keys = Decoder(query);
    let versions = if refused { None } else { decode_versions(Decoder(reply)).ok() };
    match (keys.byte(), keys.list(), versions) {
        (Ok(op), Ok(keys), Some(versions))
            if op == Op::Versions as u8 && keys.len() == versions.len() =>
        {
            for (key, version) in keys.zip(versions) {
                watching.saw(epoch, key, version);
            }
            reply.clear();
            Reply(reply).ok();
        }
        _ => {
            watching.failed(epoch);
            if !refused {
                reply.clear();
                Reply(reply).error("ERR the versions of the keys could not be read");
            }
        }
    }
}

enum Step {
    Nothing,
    Write(Write),
    Gather,
    Query,
    InOrder,
}

/// Parts of a connection that the methods of [`Order`] borrow.
pub(super) struct ConnectionParts<'a> {
    pub(super) id: ConnectionId,
    pub(super) watching: &'a mut Watching,
    pub(super) subscriptions: &'a mut Subscriptions,
}
