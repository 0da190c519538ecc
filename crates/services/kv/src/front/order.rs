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
    asked::{AnswerUse, Freshness, Read, Write, WriteKind},
    buffers::clear_buffer,
    channels::{Names, Subscriptions},
    refusals::{MEMORY_IS_FULL, failure_text},
    returning::LargeReplyLimit,
    roster::ClientSlot,
    shared::{Shared, Target},
    tally::{CommandStatistics, RequestStamp},
    transaction::{WatchedKeys, without_absent_versions},
};
use crate::{
    command::SubscriptionKind,
    commands::{
        transactions::{ABSENT_LEVEL, decode_versions, encode_exec},
        visits::may_be_long,
    },
    encode::{Decoder, Encoder},
    op::{Op, Split},
    resp::reply::{Reply, Version, render},
};

/// Maximum capacity in bytes of the output buffer of an idle connection.
const IDLE_OUTPUT_BYTES: usize = 16 * 1024;
/// Number of requests for which an idle connection keeps memory.
const IDLE_REQUESTS: usize = 64;
/// Number of unsent bytes above which even accepted reads are refused.
pub(super) const OUTPUT_BYTES_HARD: usize = 64 * 1024 * 1024;

/// Sends a write to the replica. If `lasting`, the reply waits until the write is on stable storage
/// at a quorum.
pub(super) fn send_write(
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
    Answered(Vec<u8>),
    WriteInFlight(Tag),
    /// The client is blocked, or the reply depends on another client's blocked request.
    Blocked,
    /// The write waits for earlier reads.
    UnsentWrite(Write),
    /// The read waits for earlier writes, or belongs to a run in flight.
    PendingRead(Read),
    /// The read was sent in order, to be executed between the writes before and after it.
    InOrderRead(Tag, Read),
}

#[derive(Debug)]
struct OrderedRequest {
    state: State,
    stamp: RequestStamp,
    version: Version,
    /// True if the client has turned off the reply.
    is_silent: bool,
    bytes: usize,
    may_have_large_reply: bool,
}

/// Reads among the requests `from..to` that share one confirmation.
#[derive(Debug)]
struct ReadRun {
    tag: Tag,
    from: u64,
    to: u64,
    read_count: usize,
}

/// A connection's unanswered requests in order, with unsent replies.
#[derive(Debug, Default)]
pub(super) struct RequestOrder {
    pub(super) output: Vec<u8>,
    pub(super) stamp: RequestStamp,
    /// True if the client has turned off the reply to the current request.
    pub(super) is_silent: bool,
    /// True if the current request, if it is a write, is answered only once it is on stable storage
    /// at a quorum.
    pub(super) awaits_durability: bool,
    client_slot: ClientSlot,
    requests: VecDeque<OrderedRequest>,
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
    unsent_writes: usize,
    /// Number of reads in runs in flight.
    open_reads: usize,
    runs: VecDeque<ReadRun>,
    /// Total size in bytes of unanswered requests.
    pub(super) open_bytes: usize,
    /// Total size in bytes of replies and messages that wait for earlier replies.
    waiting_reply_bytes: usize,
    /// Total size in bytes of buffered reads and unsent writes.
    queued_bytes: usize,
    /// Bytes charged to the shared memory limit.
    charged_bytes: usize,
    /// Writes in flight that may have large replies.
    pub(super) large_replies: LargeReplyLimit,
}

impl RequestOrder {
    pub(super) fn new(client_slot: ClientSlot) -> Self {
        Self { client_slot, ..Self::default() }
    }

    pub(super) fn len(&self) -> usize {
        self.requests.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// Returns the number of bytes of unsent replies.
    pub(super) const fn unsent_bytes(&self) -> usize {
        self.output.len() + self.waiting_reply_bytes
    }

    pub(super) const fn charged_bytes(&self) -> usize {
        self.charged_bytes
    }

    pub(super) fn update_charged_bytes(&mut self, shared: &mut Shared) {
        let places = self.requests.capacity() * size_of::<OrderedRequest>();
        // Includes unused capacity left by a burst.
        let output = self.output.len().max(self.output.capacity() / 5 * 4);
        let held = output + self.waiting_reply_bytes + self.queued_bytes + places;
        shared.update_charge(&mut self.charged_bytes, held);
    }

    /// Releases the memory of a burst once its output is sent.
    pub(super) fn release_burst_memory(&mut self) {
        let length = self.output.len();
        if length <= self.output.capacity() / 4 {
            self.output.shrink_to(IDLE_OUTPUT_BYTES.max(length + length / 4));
        }
        if self.requests.is_empty() {
            self.requests.shrink_to(IDLE_REQUESTS);
        }
    }

    pub(super) fn open_tags(&self) -> VecDeque<Tag> {
        let writes = self.requests.iter().filter_map(|place| match place.state {
            State::WriteInFlight(tag) | State::InOrderRead(tag, _) => Some(tag),
            State::Answered(_) | State::Blocked | State::UnsentWrite(_) | State::PendingRead(_) => {
                None
            }
        });
        writes.chain(self.runs.iter().map(|run| run.tag)).collect()
    }

    /// Returns the number of the next request.
    pub(super) fn end(&self) -> u64 {
        self.first + self.requests.len() as u64
    }

    fn request_mut(&mut self, number: u64) -> Option<&mut OrderedRequest> {
        self.requests.get_mut(usize::try_from(number.checked_sub(self.first)?).ok()?)
    }

    /// Returns whether a request is the first unanswered one.
    pub(super) const fn is_next(&self, number: u64) -> bool {
        number == self.first
    }

    /// Returns whether a request is unanswered.
    pub(super) fn is_open(&mut self, number: u64) -> bool {
        let place = self.request_mut(number);
        place.is_some_and(|place| !matches!(place.state, State::Answered(_)))
    }

    /// Adds a request together with its reply.
    pub(super) fn push_answer(&mut self, neutral: &[u8], version: Version) {
        if self.is_silent {
            return;
        }
        if self.requests.is_empty() {
            self.grow_output(neutral.len());
            render(neutral, version, &mut self.output);
            return;
        }
        let mut rendered = Vec::with_capacity(neutral.len());
        render(neutral, version, &mut rendered);
        self.waiting_reply_bytes += rendered.len();
        if self.cursor == self.end() {
            self.cursor += 1;
        }
        self.push(State::Answered(rendered), version, 0, false);
    }

    /// Sends a message after the replies to all requests below `before`, or to all requests.
    pub(super) fn push_notice(&mut self, neutral: &[u8], version: Version, before: Option<u64>) {
        let before = before.unwrap_or_else(|| self.end());
        if before <= self.first {
            return self.push_message(neutral, version);
        }
        let mut rendered = Vec::with_capacity(neutral.len());
        render(neutral, version, &mut rendered);
        self.waiting_reply_bytes += rendered.len();
        self.notices.push_back((before, rendered));
    }

    /// Adds a read made by the connection itself, without reply or statistics.
    pub(super) fn push_own_read(&mut self, read: Read, version: Version) {
        let asked = (std::mem::take(&mut self.stamp), std::mem::replace(&mut self.is_silent, true));
        self.push_read(read, version);
        (self.stamp, self.is_silent) = asked;
    }

    /// Sends a message at once, outside the order of requests.
    pub(super) fn push_message(&mut self, neutral: &[u8], version: Version) {
        self.grow_output(neutral.len());
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
        self.push(State::Blocked, version, 0, false);
    }

    /// Returns the subscriptions once all requests are answered, given the current ones.
    pub(super) fn future_subscriptions(&self, of: SubscriptionKind, mut names: Names) -> Names {
        for place in &self.requests {
            if let State::PendingRead(read) | State::InOrderRead(_, read) = &place.state
                && let AnswerUse::Subscribe(space, listen) = read.answer_use
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
        self.queued_bytes += bytes;
        self.push(State::PendingRead(read), version, bytes, false);
    }

    pub(super) fn push_write(&mut self, write: Write, returning: bool, version: Version) {
        let bytes = write.command.len();
        self.unsent_writes += 1;
        self.queued_bytes += bytes;
        let write = Write { awaits_durability: self.awaits_durability, ..write };
        self.push(State::UnsentWrite(write), version, bytes, returning);
    }

    fn push(&mut self, state: State, version: Version, bytes: usize, returning: bool) {
        self.open_bytes += bytes;
        if returning {
            self.large_replies.begin_write();
        }
        self.requests.push_back(OrderedRequest {
            state,
            stamp: self.stamp,
            version,
            is_silent: self.is_silent,
            bytes,
            may_have_large_reply: returning,
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
        let tag = shared.allocate_tag(connection, Target::Request(number));
        match send_write(requests, tag, (None, self.awaits_durability), command) {
            Ok(()) => {
                self.push(State::WriteInFlight(tag), version, command.len(), returning);
                self.cursor = number + 1;
                self.sent_below = number + 1;
                self.open_writes += 1;
            }
            Err(failure) => {
                shared.tags.release(tag);
                shared.fresh_reply().error(&failure_text(failure));
                shared.tally.count_direct_answer(self.stamp, &shared.reply);
                self.push_answer(&shared.reply, version);
            }
        }
    }

    /// Completes a request, and sends every reply that no longer waits for an earlier one.
    fn complete_request(&mut self, number: u64, neutral: &[u8], tally: &mut CommandStatistics) {
        let at_front = number == self.first;
        let Some(place) = self.request_mut(number) else {
            return;
        };
        let stamp = place.stamp;
        let slow_ms = tally.count_reply(stamp, neutral);
        let (bytes, returning, version) = (place.bytes, place.may_have_large_reply, place.version);
        let silent = place.is_silent;
        if !at_front {
            let mut rendered = Vec::new();
            if !silent {
                rendered.reserve_exact(neutral.len());
                render(neutral, version, &mut rendered);
            }
            let length = rendered.len();
            place.state = State::Answered(rendered);
            (place.bytes, place.may_have_large_reply) = (0, false);
            self.waiting_reply_bytes += length;
        }
        self.open_bytes -= bytes;
        if returning {
            self.large_replies.end_write(neutral.len());
        }
        if at_front {
            if !silent {
                self.grow_output(neutral.len());
                render(neutral, version, &mut self.output);
            }
            self.pop();
            self.flush();
        }
        if slow_ms.is_some() || tally.slow.has_notes() {
            tally.log_if_slow(self.client_slot, number, stamp, slow_ms);
        }
    }

    /// Grows a large output buffer by a quarter, because doubling would waste memory.
    fn grow_output(&mut self, bytes: usize) {
        const LARGE_BUFFER_BYTES: usize = 16 * 1024;
        let length = self.output.len();
        if length > LARGE_BUFFER_BYTES && self.output.capacity() - length < bytes {
            self.output.reserve_exact(bytes.max(length / 4));
        }
    }

    fn pop(&mut self) {
        self.requests.pop_front();
        self.first += 1;
        self.cursor = self.cursor.max(self.first);
        let first = self.first;
        while let Some((_, notice)) = self.notices.pop_front_if(|(before, _)| *before <= first) {
            self.grow_output(notice.len());
            self.output.extend_from_slice(&notice);
            self.waiting_reply_bytes -= notice.len();
        }
    }

    /// Moves completed replies from the front to the output.
    fn flush(&mut self) {
        while let Some(OrderedRequest { state: State::Answered(reply), .. }) =
            self.requests.front_mut()
        {
            let reply = std::mem::take(reply);
            self.grow_output(reply.len());
            self.output.extend_from_slice(&reply);
            self.waiting_reply_bytes -= reply.len();
            self.pop();
        }
    }

    fn fail_request(&mut self, number: u64, failure: Failure, shared: &mut Shared) {
        if let Some(OrderedRequest {
            state: State::PendingRead(read) | State::InOrderRead(_, read),
            ..
        }) = self.request_mut(number)
        {
            let bytes = std::mem::take(&mut read.query).len();
            self.queued_bytes -= bytes;
        }
        shared.fresh_reply().error(&failure_text(failure));
        self.complete_request(number, &shared.reply, &mut shared.tally);
    }

    /// Executes an in-order read on the state between the writes before and after it.
    pub(super) fn read_now(
        &mut self,
        number: u64,
        own: &mut ConnectionParts<'_>,
        shared: &mut Shared,
        state: &dyn Moment,
    ) {
        self.answer_read(number, own, shared, &mut |query, reply| state.query(query, reply));
    }

    pub(super) const fn count_in_order_read(&mut self) {
        self.open_in_order -= 1;
    }

    pub(super) fn complete_write(
        &mut self,
        number: u64,
        reply: &[u8],
        tally: &mut CommandStatistics,
    ) {
        self.open_writes -= 1;
        self.complete_request(number, reply, tally);
    }

    /// Marks an executed write as blocked: its client waits.
    pub(super) fn mark_blocked(&mut self, number: u64) {
        self.open_writes -= 1;
        if let Some(place) = self.request_mut(number) {
            place.state = State::Blocked;
        }
    }

    pub(super) fn complete_blocked(
        &mut self,
        number: u64,
        reply: &[u8],
        tally: &mut CommandStatistics,
    ) {
        if let Some(place) = self.request_mut(number) {
            place.stamp.restart_clock(tally.now_ms);
        }
        self.complete_request(number, reply, tally);
    }

    /// Handles a write or in-order read that was not executed, or whose outcome is unknown.
    pub(super) fn handle_failed_request(
        &mut self,
        number: u64,
        failure: Failure,
        own: &mut ConnectionParts<'_>,
        shared: &mut Shared,
        requests: &mut dyn Requests,
    ) {
        match self.request_mut(number).map(|place| &place.state) {
            Some(State::InOrderRead(_, read)) => {
                let stale = read.freshness == Freshness::Stale;
                self.open_in_order -= 1;
                if stale && self.sent_below <= number {
                    // The writes before it failed too, so this node's state cannot contain a later
                    // one.
                    return self.query(number, own, shared, requests);
                }
            }
            _ => self.open_writes -= 1,
        }
        self.fail_request(number, failure, shared);
    }

    /// Answers a run of reads whose freshness is confirmed.
    pub(super) fn answer_reads(
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
            let answered = self.answer_read(number, own, shared, &mut |query, reply| {
                requests.run_query(tag, query, reply)
            });
            if !answered {
                return self.repeat_run_request(number, run.to, own, shared, requests);
            }
        }
    }

    /// Requests the rest of a run again: its confirmation expired while the first read was executed
    /// ([read-4]).
    fn repeat_run_request(
        &mut self,
        from: u64,
        to: u64,
        own: &mut ConnectionParts<'_>,
        shared: &mut Shared,
        requests: &mut dyn Requests,
    ) {
        let reading = |place: Option<&mut OrderedRequest>| {
            place.is_some_and(|place| matches!(place.state, State::PendingRead(_)))
        };
        let reads = (from..to).filter(|number| reading(self.request_mut(*number)));
        let reads = reads.count();
        self.open_reads += reads;
        self.request_reads(from..to, reads, own, shared, requests);
    }

    /// Sends all requests that can be sent now. `write_next` means that an unqueued write follows.
    pub(super) fn send_ready_requests(
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
                    OrderStep::Nothing => {}
                    OrderStep::Write(write) => {
                        self.send(number, write, own, shared, requests);
                    }
                    OrderStep::Gather => {
                        reads += 1;
                        self.open_reads += 1;
                    }
                    OrderStep::Query => self.query(number, own, shared, requests),
                    OrderStep::InOrder => self.send_in_order_read(own.id, number, shared, requests),
                }
            }
            let run = from..self.cursor;
            if reads == 0 || self.request_reads(run, reads, own, shared, requests) {
                return;
            }
        }
    }

    /// Returns the next step for the request at the cursor, if it can be taken now.
    fn next_step(&mut self, write_next: bool, now_ms: u64) -> Option<OrderStep> {
        let in_runs = self.open_reads > 0;
        let in_log = self.open_writes + self.open_in_order > 0;
        // Of several reads after a write, only those that arrive before the write completes are
        // sent in order.
        let among_writes = self.open_writes > 0 || self.unsent_writes > 0 || write_next;
        let cursor = self.cursor;
        let OrderedRequest { state, stamp, .. } = self.request_mut(cursor)?;
        let step = match state {
            State::Answered(_)
            | State::WriteInFlight(_)
            | State::Blocked
            | State::InOrderRead(..) => {
                return Some(OrderStep::Nothing);
            }
            State::UnsentWrite(write) => (!in_runs).then(|| {
                let command = std::mem::take(&mut write.command);
                OrderStep::Write(Write { command, ..*write })
            }),
            State::PendingRead(read) if read.freshness == Freshness::Stale && !in_log => {
                Some(OrderStep::Query)
            }
            State::PendingRead(read) if read.after_all_writes || !among_writes => {
                (!in_log).then_some(OrderStep::Gather)
            }
            // A read of a run in flight may execute later than a read that is sent in order now.
            State::PendingRead(_) => (!in_runs).then_some(OrderStep::InOrder),
        };
        if step.is_some() {
            stamp.record_wait(now_ms);
        }
        step
    }

    fn send_in_order_read(
        &mut self,
        connection: ConnectionId,
        number: u64,
        shared: &mut Shared,
        requests: &mut dyn Requests,
    ) {
        let tag = shared.allocate_tag(connection, Target::Request(number));
        if let Err(failure) = requests.queue_read(tag) {
            shared.tags.release(tag);
            return self.fail_request(number, failure, shared);
        }
        self.open_in_order += 1;
        if let Some(place) = self.request_mut(number)
            && let State::PendingRead(read) = &mut place.state
        {
            let query = std::mem::take(&mut read.query);
            let read = Read { query, ..*read };
            place.state = State::InOrderRead(tag, read);
        }
    }

    /// Requests a run of reads. Returns `false` if it was refused; later requests may then be sent.
    fn request_reads(
        &mut self,
        run: Range<u64>,
        reads: usize,
        own: &mut ConnectionParts<'_>,
        shared: &mut Shared,
        requests: &mut dyn Requests,
    ) -> bool {
        let tag = shared.allocate_tag(own.id, Target::ReadRun);
        let fresh = self.smallest_staleness_bound(run.clone());
        self.runs.push_back(ReadRun { tag, from: run.start, to: run.end, read_count: reads });
        let taken = match fresh {
            Some(most_ms) => requests.read_within(tag, most_ms),
            None => requests.read(tag),
        };
        match taken {
            Ok(()) => true,
            Err(failure) => {
                shared.tags.release(tag);
                self.run_failed(tag, failure, own, shared);
                false
            }
        }
    }

    /// Returns the smallest staleness bound in a run, or `None` if one of its reads has none.
    fn smallest_staleness_bound(&mut self, run: Range<u64>) -> Option<u64> {
        let mut most_ms = None;
        for number in run {
            let Some(OrderedRequest { state: State::PendingRead(read), .. }) =
                self.request_mut(number)
            else {
                continue;
            };
            most_ms = match read.freshness {
                Freshness::WithinMs(ms) => Some(most_ms.map_or(ms, |most: u64| most.min(ms))),
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
        self.unsent_writes -= 1;
        self.queued_bytes -= write.command.len();
        let tag = shared.allocate_tag(own.id, Target::Request(number));
        let sent = match write.kind {
            WriteKind::Plain(at) => {
                send_write(requests, tag, (at, write.awaits_durability), &write.command)
            }
            WriteKind::Register => requests.register(tag),
            WriteKind::Exec { epoch, count, session_number: at } => {
                let Some(mut watched) = own.watching.take_watched(epoch) else {
                    shared.tags.release(tag);
                    let text = "EXECABORT Transaction discarded because WATCH failed.";
                    shared.fresh_reply().error(text);
                    self.complete_request(number, &shared.reply, &mut shared.tally);
                    return;
                };
                if requests.level() < ABSENT_LEVEL {
                    without_absent_versions(&mut watched);
                }
                let mut command = Vec::with_capacity(write.command.len() + 64);
                let out = &mut Encoder(&mut command);
                encode_exec(&watched, count, &write.command, out);
                send_write(requests, tag, (at, write.awaits_durability), &command)
            }
        };
        match sent {
            Ok(()) => {
                self.open_writes += 1;
                self.sent_below = number + 1;
                if let Some(place) = self.request_mut(number) {
                    place.state = State::WriteInFlight(tag);
                }
            }
            Err(failure) => {
                shared.tags.release(tag);
                self.fail_request(number, failure, shared);
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
        self.answer_read(number, own, shared, &mut |query, reply| requests.query(query, reply));
    }

    /// Answers a read. Returns `false` if it must be requested again.
    fn answer_read(
        &mut self,
        number: u64,
        own: &mut ConnectionParts<'_>,
        shared: &mut Shared,
        ask: &mut RunQuery<'_>,
    ) -> bool {
        self.update_charged_bytes(shared);
        let full = if self.unsent_bytes() > OUTPUT_BYTES_HARD {
            Some("BUSY not executed: too many replies wait for this client to read them")
        } else {
            shared.is_full(0).then_some(MEMORY_IS_FULL)
        };
        let Some(place) = self.request_mut(number) else {
            return true;
        };
        let (State::PendingRead(read) | State::InOrderRead(_, read)) = &mut place.state else {
            return true;
        };
        let (query, what) = (std::mem::take(&mut read.query), read.answer_use);
        self.queued_bytes -= query.len();
        let mut reply = std::mem::take(&mut shared.reply);
        clear_buffer(&mut reply);
        let r = &mut Reply(&mut reply);
        let refused = match (full, what) {
            (Some(text), _) => Some(text.into()),
            (None, AnswerUse::Subscribe(of, listen)) => {
                let channels = &mut shared.channels;
                own.subscriptions.apply_change(own.id, (of, listen), &query, channels, r);
                if let Some(guest) = shared.clients.entry_mut(self.client_slot) {
                    guest.subscription_counts = own.subscriptions.name_counts();
                }
                None
            }
            (None, _) => match ask(&query, r.0) {
                Err(Failure::Overtaken) => {
                    shared.reply = reply;
                    self.restore_query(number, query);
                    return false;
                }
                asked => asked.err().map(failure_text),
            },
        };
        if let Some(text) = &refused {
            r.error(text);
        }
        if let AnswerUse::Watch(epoch) = what {
            watch(own.watching, epoch, &query, refused.is_some(), r.0);
        }
        shared.reply = reply;
        self.complete_request(number, &shared.reply, &mut shared.tally);
        shared.retain_buffer(query);
        true
    }

    fn restore_query(&mut self, number: u64, query: Vec<u8>) {
        self.queued_bytes += query.len();
        if let Some(OrderedRequest {
            state: State::PendingRead(read) | State::InOrderRead(_, read),
            ..
        }) = self.request_mut(number)
        {
            read.query = query;
        }
    }

    fn take_run(&mut self, tag: Tag) -> Option<ReadRun> {
        let index = self.runs.iter().position(|run| run.tag == tag)?;
        let run = self.runs.remove(index)?;
        self.open_reads -= run.read_count;
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
            let Some(OrderedRequest { state: State::PendingRead(read), .. }) =
                self.request_mut(number)
            else {
                continue;
            };
            if let AnswerUse::Watch(epoch) = read.answer_use {
                own.watching.record_failed_watch(epoch);
            }
            self.fail_request(number, failure, shared);
        }
    }
}

/// Records the versions for WATCH, and replaces the answer with the client's reply.
fn watch(watching: &mut WatchedKeys, epoch: u64, query: &[u8], refused: bool, reply: &mut Vec<u8>) {
    let asked = Op::split(query).filter(|split| split.op == Op::Versions);
    let asked =
        asked.and_then(|Split { mut from, database, .. }| Some((database, from.list().ok()?)));
    let versions = if refused { None } else { decode_versions(Decoder(reply)).ok() };
    match (asked, versions) {
        (Some((database, keys)), Some(versions)) if keys.len() == versions.len() => {
            for (key, version) in keys.zip(versions) {
                watching.record_version(epoch, (database, key), version);
            }
            reply.clear();
            Reply(reply).ok();
        }
        _ => {
            watching.record_failed_watch(epoch);
            if !refused {
                reply.clear();
                Reply(reply).error("ERR the versions of the keys could not be read");
            }
        }
    }
}

enum OrderStep {
    Nothing,
    Write(Write),
    Gather,
    Query,
    InOrder,
}

/// Parts of a connection that the methods of [`RequestOrder`] borrow.
pub(super) struct ConnectionParts<'a> {
    pub(super) id: ConnectionId,
    pub(super) watching: &'a mut WatchedKeys,
    pub(super) subscriptions: &'a mut Subscriptions,
}
