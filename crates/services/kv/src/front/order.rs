//! The order of a connection: replies in the order of requests, reads between the writes around
//! them.
//!
//! Each request has a place. Writes go to the replica as they come. A read without a write before
//! or behind it shares a confirmation with its neighbours: a *run*. A read that has one goes out
//! *in order* with the writes, and runs between them, so that nothing waits. WATCH and what reads
//! everything wait for earlier writes, and writes for them. A read never joins a run that was asked
//! for before the read arrived: what another client completed in between might be missing.

use std::{collections::VecDeque, ops::Range};

use quorate_replica::front::{ConnectionId, Failure, Requests, Sequenced, State as Moment, Tag};

use super::{
    asked::{Freshness, How, Query, Read, Write},
    buffers::fresh,
    channels::{Names, Subscriptions},
    refusals::{FULL, failure_text},
    returning::Returning,
    roster::Seat,
    shared::{Shared, Target},
    tally::{Stamp, Tally},
    transaction::{Watching, without_absent_versions},
};
use crate::{
    command::Listening,
    commands::{
        transactions::{ABSENT_LEVEL, decode_versions, encode_exec},
        visits::may_be_long,
    },
    encode::{Decoder, Encoder},
    op::Op,
    resp::reply::{Reply, Version, render},
};

/// An idle connection keeps no more memory than this for its output.
const IDLE_OUTPUT_BYTES: usize = 16 * 1024;
/// An idle connection keeps memory for no more places than this.
const IDLE_PLACES: usize = 64;
/// Above this many bytes of waiting replies, reads already taken are refused.
pub(super) const OUTPUT_BYTES_HARD: usize = 64 * 1024 * 1024;

/// Asks for a write, perhaps at a place in a session; whether its reply waits until it is on stable
/// storage at a quorum.
fn ask(
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

/// Asks the service: query, and where its answer goes.
type Ask<'a> = dyn FnMut(&[u8], &mut Vec<u8>) -> Result<(), Failure> + 'a;

/// Progress of a request.
#[derive(Debug)]
enum State {
    /// Rendered; waits for earlier replies.
    Done(Vec<u8>),
    /// Sent.
    Writing(Tag),
    /// The client waits in line, or for what becomes of one that does.
    Parked,
    /// Waits for earlier reads.
    Held(Write),
    /// Waits for earlier writes, or for its run.
    Reading(Read),
    /// Sent: it runs between the commands around it.
    InOrder(Tag, Read),
}

/// A request and its state.
#[derive(Debug)]
struct Place {
    state: State,
    stamp: Stamp,
    version: Version,
    /// Nothing is said of it: its client has asked for that.
    silent: bool,
    bytes: usize,
    returning: bool,
}

/// Reads that wait for one tag: those among the places `from..to`.
#[derive(Debug)]
struct Run {
    tag: Tag,
    from: u64,
    to: u64,
    reads: usize,
}

/// The requests of a connection that are not answered, and the replies that are not sent.
#[derive(Debug, Default)]
pub(super) struct Order {
    pub(super) output: Vec<u8>,
    /// Stamp of the request that is being taken.
    pub(super) stamp: Stamp,
    /// Its reply is suppressed.
    pub(super) silent: bool,
    /// Its reply, if it is a write, waits until it is on stable storage at a quorum.
    pub(super) lasting: bool,
    seat: Seat,
    places: VecDeque<Place>,
    /// Number of the first place.
    first: u64,
    /// All places below have been sent or are done.
    cursor: u64,
    /// Writes in flight.
    open_writes: usize,
    /// Reads in flight between those writes.
    open_in_order: usize,
    /// Places of all writes that were sent are below.
    sent_below: u64,
    /// Writes that are not sent.
    held: usize,
    /// Reads in runs.
    open_reads: usize,
    runs: VecDeque<Run>,
    /// Bytes of requests that are not done.
    pub(super) open_bytes: usize,
    /// Bytes of replies that wait for earlier ones.
    done_bytes: usize,
    /// Bytes of requests that are kept here: reads, and writes that are not sent.
    kept_bytes: usize,
    /// Memory that is counted.
    counted: usize,
    /// Writes in flight whose replies may be large.
    pub(super) returning: Returning,
}

impl Order {
    pub(super) fn new(seat: Seat) -> Self {
        Self { seat, ..Self::default() }
    }

    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Bytes of replies.
    pub(super) const fn buffered(&self) -> usize {
        self.output.len() + self.done_bytes
    }

    pub(super) const fn counted(&self) -> usize {
        self.counted
    }

    pub(super) fn recount(&mut self, shared: &mut Shared) {
        let places = self.places.capacity() * size_of::<Place>();
        // What is queued counts, and memory that a burst has left over.
        let output = self.output.len().max(self.output.capacity() / 5 * 4);
        let held = output + self.done_bytes + self.kept_bytes + places;
        shared.recount(&mut self.counted, held);
    }

    /// Gives back the memory of a burst after its output was sent.
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

    /// Number of the next place.
    pub(super) fn end(&self) -> u64 {
        self.first + self.places.len() as u64
    }

    fn place(&mut self, number: u64) -> Option<&mut Place> {
        self.places.get_mut(usize::try_from(number.checked_sub(self.first)?).ok()?)
    }

    /// Returns whether this request has a place and is not answered.
    pub(super) fn is_open(&mut self, number: u64) -> bool {
        let place = self.place(number);
        place.is_some_and(|place| !matches!(place.state, State::Done(_)))
    }

    /// Pushes a reply that needs no other node.
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

    /// Adds a read on the connection's own account: it has no reply and is not counted.
    pub(super) fn push_own_read(&mut self, read: Read, version: Version) {
        let asked = (std::mem::take(&mut self.stamp), std::mem::replace(&mut self.silent, true));
        self.push_read(read, version);
        (self.stamp, self.silent) = asked;
    }

    /// Queues what no request has asked for.
    pub(super) fn push_message(&mut self, neutral: &[u8], version: Version) {
        self.make_room(neutral.len());
        render(neutral, version, &mut self.output);
    }

    /// Gives up all that is queued.
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

    /// Returns the subscriptions of the connection once all its requests are answered, given the
    /// present ones.
    pub(super) fn will_listen(&self, of: Listening, mut names: Names) -> Names {
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

    /// Returns whether a request arrived that has not been sent.
    pub(super) fn has_unsent(&self) -> bool {
        self.cursor < self.end()
    }

    /// Returns whether a write that arrived now could be sent at once.
    pub(super) fn may_write(&self) -> bool {
        !self.has_unsent() && self.open_reads == 0
    }

    /// Sends a write on the short path of most writes: no copy of the command is kept.
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
                shared.fresh_reply().error(failure_text(failure));
                shared.tally.answers(self.stamp, &shared.reply);
                self.push_answer(&shared.reply, version);
            }
        }
    }

    /// Gives a request its reply, and sends what no longer waits for it.
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

    /// Grows a large output by quarters: twice as much would be memory that no reply needs.
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
    }

    /// Moves finished replies from the front of the line into the output.
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
        shared.fresh_reply().error(failure_text(failure));
        self.finish(number, &shared.reply, &mut shared.tally);
    }

    /// Runs a read in order, in the state between the writes around it.
    pub(super) fn read_now(
        &mut self,
        number: u64,
        own: &mut Own<'_>,
        shared: &mut Shared,
        state: &dyn Moment,
    ) {
        self.answer(number, own, shared, &mut |query, reply| state.query(query, reply));
    }

    /// Marks a read in order as run, after the writes before it.
    pub(super) const fn read_in_order(&mut self) {
        self.open_in_order -= 1;
    }

    /// Handles an executed write.
    pub(super) fn written(&mut self, number: u64, reply: &[u8], tally: &mut Tally) {
        self.open_writes -= 1;
        self.finish(number, reply, tally);
    }

    /// Handles an executed write whose client now waits in line.
    pub(super) fn park(&mut self, number: u64) {
        self.open_writes -= 1;
        if let Some(place) = self.place(number) {
            place.state = State::Parked;
        }
    }

    /// Ends the wait of a place.
    pub(super) fn unpark(&mut self, number: u64, reply: &[u8], tally: &mut Tally) {
        if let Some(place) = self.place(number) {
            place.stamp.begins_again(tally.now_ms);
        }
        self.finish(number, reply, tally);
    }

    /// Handles a write, or a read in order, that was not executed, or not known to be.
    pub(super) fn place_failed(
        &mut self,
        number: u64,
        failure: Failure,
        own: &mut Own<'_>,
        shared: &mut Shared,
        requests: &mut dyn Requests,
    ) {
        match self.place(number).map(|place| &place.state) {
            Some(State::InOrder(_, read)) => {
                let stale = read.fresh == Freshness::Stale;
                self.open_in_order -= 1;
                if stale && self.sent_below <= number {
                    // The writes before it have failed as well, and there are none behind it that
                    // the state of this node could show.
                    return self.query(number, own, shared, requests);
                }
            }
            _ => self.open_writes -= 1,
        }
        self.fail(number, failure, shared);
    }

    /// Answers a run of reads.
    pub(super) fn readable(
        &mut self,
        tag: Tag,
        own: &mut Own<'_>,
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

    /// Issues reads again: the permission under which they ran was over when the first of them had
    /// read ([read-4]).
    fn ask_again(
        &mut self,
        from: u64,
        to: u64,
        own: &mut Own<'_>,
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

    /// Sends what may be sent. `write_next`: a write follows that has no place yet.
    pub(super) fn advance(
        &mut self,
        write_next: bool,
        own: &mut Own<'_>,
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

    /// Returns the next step of the place at the cursor, if it may have it now.
    fn next_step(&mut self, write_next: bool, now_ms: u64) -> Option<Step> {
        let in_runs = self.open_reads > 0;
        let in_log = self.open_writes + self.open_in_order > 0;
        // Of a stream of reads behind one write the first go out in order; those that come when
        // that write is done have no more need to.
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
            // What is in a run may run later than what goes out in order now.
            State::Reading(_) => (!in_runs).then_some(Step::InOrder),
        };
        if step.is_some() {
            stamp.leaves(now_ms);
        }
        step
    }

    /// Asks for one read between the writes around it.
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

    /// Asks for a run of reads; false if it was refused and others may have their turn.
    fn issue(
        &mut self,
        run: Range<u64>,
        reads: usize,
        own: &mut Own<'_>,
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

    /// Returns the strictest bound on staleness of all reads of a run; `None` if one of them may
    /// not be stale.
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
        own: &mut Own<'_>,
        shared: &mut Shared,
        requests: &mut dyn Requests,
    ) {
        self.held -= 1;
        self.kept_bytes -= write.command.len();
        let tag = shared.tag(own.id, Target::Place(number));
        let sent = match write.how {
            How::Plain(at) => ask(requests, tag, (at, write.lasting), &write.command),
            How::Register => requests.register(tag),
            How::Exec { epoch, count, at } => {
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

    /// Answers a read from the state as it stands.
    fn query(
        &mut self,
        number: u64,
        own: &mut Own<'_>,
        shared: &mut Shared,
        requests: &mut dyn Requests,
    ) {
        self.answer(number, own, shared, &mut |query, reply| requests.query(query, reply));
    }

    /// Answers a read; `false` if it has to be asked for again.
    fn answer(
        &mut self,
        number: u64,
        own: &mut Own<'_>,
        shared: &mut Shared,
        ask: &mut Ask<'_>,
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
            (Some(text), _) => Some(text),
            (None, Query::Listen(of, listen)) => {
                let channels = &mut shared.channels;
                own.subscriptions.change(own.id, (of, listen), &query, channels, r);
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
        if let Some(text) = refused {
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

    /// Puts back a read that was not answered, with its query.
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

    /// Handles the failure of a run of reads.
    pub(super) fn run_failed(
        &mut self,
        tag: Tag,
        failure: Failure,
        own: &mut Own<'_>,
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

/// Remembers what a WATCH saw; its reply takes the place of the versions.
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

/// Next step of a place.
enum Step {
    Nothing,
    Write(Write),
    Gather,
    Query,
    InOrder,
}

/// Parts of a connection outside its order.
pub(super) struct Own<'a> {
    pub(super) id: ConnectionId,
    pub(super) watching: &'a mut Watching,
    pub(super) subscriptions: &'a mut Subscriptions,
}
