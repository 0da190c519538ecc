//! A node embedded in this process, which starts in the background.

use std::{
    sync::{
        Arc, Mutex, PoisonError, RwLock,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use quorate::{Embedded, Local, RequestError, Sequenced, SessionId, stderr};
use quorate_admin::view::NodeView;

use crate::{
    attach::server::Server,
    bell::Bell,
    border::block_signals,
    error::{Code, Failed},
    options::Options,
    source::{self, Cursor, DoneCallback, Outcome, ReadResult, Source, trimmed_error},
    submits::{Bundle, BundleOutcome, SubmitQueue},
    values::{
        command::{Command, Reply, RetainedRange, Values as Bundled},
        machine::{SERVICE_NAME, ValuesMachine},
        shared::SharedValues,
    },
};

/// Maximum time to wait, when a node ends, for the thread that forwards standard error.
const STDERR_DRAIN_TIMEOUT: Duration = Duration::from_secs(1);

enum State {
    Starting,
    Running(Embedded),
    /// The node failed to start or was closed.
    Stopped(Failed),
}

/// A node in this process and the values that it retains.
pub struct Node {
    options: Arc<Options>,
    retained: Arc<SharedValues>,
    state: RwLock<State>,
    /// Bell that rings when the state changes or there are new values.
    changed_bell: Arc<Bell>,
    submits: Arc<SubmitQueue>,
    is_giving_up: Arc<AtomicBool>,
    start: Mutex<Option<JoinHandle<()>>>,
    attach_server: Mutex<Option<Server>>,
}

impl Node {
    /// Starts a node in the background. The node takes the values gathered in `submits`, and `bell`
    /// rings for readers of values.
    pub fn start(
        options: Options,
        bell: &Arc<Bell>,
        submits: &Arc<SubmitQueue>,
    ) -> Result<Arc<Self>, Failed> {
        let give_up = Arc::new(AtomicBool::new(false));
        let builder = options.node_builder()?.abort_start_when(Arc::clone(&give_up));
        let shared = Arc::new(SharedValues::default());
        shared.add_listener(bell);
        let node = Arc::new(Self {
            options: Arc::new(options),
            retained: shared,
            state: RwLock::new(State::Starting),
            changed_bell: Arc::clone(bell),
            submits: Arc::clone(submits),
            is_giving_up: give_up,
            start: Mutex::new(None),
            attach_server: Mutex::new(None),
        });
        let own = Arc::clone(&node);
        let start = thread::Builder::new().name("quorate-start".to_owned());
        let start = start
            .spawn(move || {
                // The threads of the node inherit the signal mask.
                block_signals();
                let values = Arc::clone(&own.retained);
                let started = builder.start(move || ValuesMachine::new(values));
                let started = started.map_err(|error| own.start_error(error));
                own.set(started.and_then(|up| own.on_started(up)));
            })
            .map_err(|error| Failed::new(Code::Unavailable, format!("start a thread: {error}")))?;
        *node.start.lock().unwrap_or_else(PoisonError::into_inner) = Some(start);
        Ok(node)
    }

    fn start_error(&self, error: quorate::Error) -> Failed {
        let failed = Failed::from(error);
        if self.options.start_empty && failed.code != Code::Stopped {
            return failed.with_hint(
                "start-empty or trash-files begins a new cluster: stop all nodes of the old one, then start them; \
                 this node's files are unchanged",
            );
        }
        failed
    }

    /// Called once the node runs. Sets the position from which values can be read, and starts to
    /// accept attaching programs.
    fn on_started(self: &Arc<Self>, up: Embedded) -> Result<Embedded, Failed> {
        let stopped = || Failed::new(Code::Stopped, "the node ended while it started");
        let status = up.status().map_err(|_| stopped())?;
        // Applied positions are reported only by commits, so the status is never ahead of them.
        self.retained.set_readable_after(status.decided_to.0);
        if let Some(listen) = &self.options.listen_address {
            let server = Server::listen(listen, status.cluster, status.member.node.0, self)?;
            *self.attach_server.lock().unwrap_or_else(PoisonError::into_inner) = Some(server);
        }
        Ok(up)
    }

    fn set(&self, started: Result<Embedded, Failed>) {
        let state = started.map_or_else(State::Stopped, State::Running);
        {
            let mut now = self.state.write().unwrap_or_else(PoisonError::into_inner);
            match &state {
                State::Stopped(why) => drop(self.submits.close(why)),
                State::Starting | State::Running(_) => self.submits.start_accepting(),
            }
            *now = state;
        }
        self.changed_bell.ring();
    }

    /// Returns the options with which the node was started.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Returns the values that the node retains.
    pub fn retained(&self) -> &Arc<SharedValues> {
        &self.retained
    }

    /// Calls a closure with the running node. Fails if the node does not run.
    fn with_running<T>(
        &self,
        ask: impl FnOnce(&Embedded) -> Result<T, RequestError>,
    ) -> Result<T, Failed> {
        match &*self.state.read().unwrap_or_else(PoisonError::into_inner) {
            State::Running(up) => ask(up).map_err(Failed::from),
            State::Starting => Err(starting_error()),
            State::Stopped(why) => Err(why.clone()),
        }
    }

    /// Registers a session for [`Node::append_once`]. Blocks until the outcome is known.
    pub fn register_session(&self) -> Result<SessionId, Failed> {
        self.with_running(|replica| replica.register())
    }

    /// Appends values exactly once, however often this sequence number is used. `done` gets a
    /// failure unchanged.
    pub fn append_once(
        &self,
        at: Sequenced,
        values: Bundled<'_>,
        done: impl FnOnce(Result<BundleOutcome, RequestError>) + Send + 'static,
    ) -> Result<(), Failed> {
        let command = encode_bundle(&self.options, values);
        self.with_running(|up| {
            up.submit_once(at, command, |reply| {
                done(reply.map(|reply| decode_bundle_reply(&reply)))
            })
        })
    }

    /// Makes the node take a gathered bundle on its own thread, so that it includes all values
    /// gathered until then.
    fn take_gathered_bundle(
        local: &Local,
        options: &Arc<Options>,
        submits: &Arc<SubmitQueue>,
        bell: &Arc<Bell>,
    ) {
        let taken = Arc::new(Mutex::new(None::<Bundle>));
        let make = {
            let (taken, local) = (Arc::clone(&taken), local.clone());
            let (options, submits, bell) =
                (Arc::clone(options), Arc::clone(submits), Arc::clone(bell));
            move |_| {
                // Each notification takes one bundle, and only this closure takes bundles, so there
                // is one unless the node has ended.
                let Some((first, more)) = submits.take_bundle() else {
                    return Vec::new();
                };
                if more {
                    Self::take_gathered_bundle(&local, &options, &submits, &bell);
                }
                let command = Bundled::parse(&first.values, usize::MAX)
                    .map_or_else(Vec::new, |values| encode_bundle(&options, values));
                *taken.lock().unwrap_or_else(PoisonError::into_inner) = Some(first);
                command
            }
        };
        let (own, rings) = (Arc::clone(submits), Arc::clone(bell));
        let done = move |reply: Result<Vec<u8>, RequestError>| {
            let bundle = taken.lock().unwrap_or_else(PoisonError::into_inner).take();
            let ends = match reply {
                Ok(reply) => decode_bundle_reply(&reply),
                Err(why) => Failed::from(why).into(),
            };
            let anything = match bundle {
                Some(bundle) => own.complete_bundle(bundle, ends),
                // The node ended before it took the values, so they have no slot.
                None => own.fail_gathered(&Failed::new(Code::Stopped, "the node has stopped")),
            };
            if anything {
                rings.ring();
            }
        };
        if let Err(why) = local.submit_at(make, done)
            && submits.fail_gathered(&why.into())
        {
            bell.ring();
        }
    }

    /// Returns the address on which programs can attach, if the node listens.
    pub fn attach_address(&self) -> Option<String> {
        let server = self.attach_server.lock().unwrap_or_else(PoisonError::into_inner);
        server.as_ref().map(|server| server.address().to_string())
    }
}

/// Returns the error for calls while the node is starting.
pub fn starting_error() -> Failed {
    Failed::new(Code::Unavailable, "the node is still starting")
        .with_hint("at the first start of a cluster it waits for the node with the lowest id")
}

/// Encodes the command that appends the values of a bundle.
fn encode_bundle(options: &Options, values: Bundled<'_>) -> Vec<u8> {
    let command = Command::Bundle {
        retained_bytes_max: options.retained_bytes_max,
        when_full: options.when_full,
        values,
    };
    command.encode()
}

fn full_error(first: u64, held: u64) -> Failed {
    let detail = format!("{held} bytes are held, from slot {first} on");
    Failed::new(Code::Full, detail)
        .with_hint("trim what every replica has delivered, or raise held-max")
}

fn not_understood_error() -> Failed {
    Failed::new(Code::Refused, "the cluster does not know this command: another version?")
}

/// Decodes the reply to a bundle.
fn decode_bundle_reply(reply: &[u8]) -> BundleOutcome {
    match Reply::decode(reply) {
        Some(Reply::Bundled {
            first_slot: slot,
            appended_count: count,
            first_retained: first,
            retained_bytes: held,
        }) => BundleOutcome {
            first_slot: slot,
            appended_count: usize::try_from(count).unwrap_or(usize::MAX),
            rest_outcome: Some(full_error(first, held)),
        },
        _ => not_understood_error().into(),
    }
}

/// Decodes the reply to a trim.
fn decode_trim_reply(reply: &[u8]) -> Outcome {
    match Reply::decode(reply) {
        Some(Reply::Trimmed { first_retained: first }) => Ok(first),
        _ => Err(not_understood_error()),
    }
}

impl Source for Arc<Node> {
    fn on_values_gathered(&self) {
        let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
        // In all other states no values are gathered, or they have been refused.
        if let State::Running(up) = &*state {
            Node::take_gathered_bundle(
                up.local(),
                &self.options,
                &self.submits,
                &self.changed_bell,
            );
        }
    }

    fn trim(&self, below: u64, done: DoneCallback) -> Result<(), Failed> {
        let command = Command::Trim { below }.encode();
        self.with_running(|up| {
            up.submit(command, |reply| {
                done(reply.map_err(Failed::from).and_then(|reply| decode_trim_reply(&reply)));
            })
        })
    }

    fn sync(&self, done: DoneCallback) -> Result<(), Failed> {
        self.with_running(|up| {
            up.submit_query([], |answer| {
                let unknown = || Failed::new(Code::Unknown, "an answer that makes no sense");
                let held = answer.map_err(Failed::from);
                done(held.and_then(|held| {
                    RetainedRange::decode(&held).map(|held| held.next).ok_or_else(unknown)
                }));
            })
        })
    }

    fn set_cursor(&self, cursor: Cursor) -> Result<Cursor, Failed> {
        let cursor = self.retained.start_cursor(cursor);
        match (cursor, self.retained.read_next(&mut { cursor })) {
            (Cursor::At(slot), ReadResult::Trimmed(first)) => Err(trimmed_error(slot, first)),
            _ => Ok(cursor),
        }
    }

    fn read_values(&self, cursor: &mut Cursor, to: &mut source::Values) -> Option<ReadResult> {
        match &*self.state.read().unwrap_or_else(PoisonError::into_inner) {
            State::Running(_) => match self.retained.read_values(cursor, to) {
                Some(ReadResult::NotYetWritten) if self.retained.has_ended() => {
                    Some(ReadResult::SourceEnded(
                        Failed::new(Code::Stopped, "the node has stopped by itself")
                            .with_hint("quorate_close says why"),
                    ))
                }
                read => read,
            },
            State::Starting => Some(ReadResult::NotYetWritten),
            State::Stopped(why) => Some(ReadResult::SourceEnded(why.clone())),
        }
    }

    fn read_slot(&self, slot: u64) -> Result<ReadResult, Failed> {
        match &*self.state.read().unwrap_or_else(PoisonError::into_inner) {
            State::Running(_) => Ok(self.retained.read_next(&mut Cursor::At(slot))),
            State::Starting => Ok(ReadResult::NotYetWritten),
            State::Stopped(why) => Ok(ReadResult::SourceEnded(why.clone())),
        }
    }

    fn mark_taken(&self, _: u64) {}

    fn wait_until_ready(&self, wait: Duration) -> Result<(), Failed> {
        let until = Instant::now() + wait;
        loop {
            // The bell is not hushed, because a program that polls the descriptor must also notice
            // the change.
            let seen = self.changed_bell.ring_count();
            match self.with_running(|_| Ok(())) {
                Err(failed) if failed.code == Code::Unavailable => {}
                // While it replays its log, the node may be unable to answer.
                Ok(()) if !self.retained.is_replayed() && !self.retained.has_ended() => {}
                settled => return settled,
            }
            if !self.changed_bell.wait_for_ring(seen, Some(until)) {
                return Err(Failed { code: Code::Timeout, ..starting_error() });
            }
        }
    }

    fn status(&self, _: Duration) -> Result<String, Failed> {
        let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
        let up = match &*state {
            State::Running(up) => up,
            State::Starting => return Ok(r#"{"state":"starting"}"#.to_owned()),
            State::Stopped(why) => return Err(why.clone()),
        };
        let status = up.status().map_err(|why| {
            Failed::new(Code::Stopped, format!("the node does not answer: {why}"))
        })?;
        let mut view = serde_json::to_value(NodeView::new(&status, SERVICE_NAME))
            .map_err(|error| Failed::new(Code::Panicked, error.to_string()))?;
        let held = self.retained.retained_range();
        view["state"] = "up".into();
        view["listen"] = self.attach_address().into();
        view["values"] = serde_json::json!({
            "first": held.first_retained,
            "next": held.next,
            "bytes": held.bytes,
            "bytes_max": self.options.retained_bytes_max,
            "replayed": self.retained.is_replayed(),
        });
        Ok(view.to_string())
    }

    fn close(&self) -> Result<(), Failed> {
        self.is_giving_up.store(true, Ordering::Release);
        let start = self.start.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(start) = start {
            let _ = start.join();
        }
        let server = self.attach_server.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(server);
        let closed = Failed::new(Code::Stopped, "the handle is closed");
        let state = {
            let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
            self.submits.close(&closed);
            std::mem::replace(&mut *state, State::Stopped(closed))
        };
        let ended = match state {
            State::Running(up) => {
                let ended = up.stop().map_err(Failed::from);
                stderr::wait_until_written(STDERR_DRAIN_TIMEOUT);
                ended
            }
            State::Starting | State::Stopped(_) => Ok(()),
        };
        self.changed_bell.ring();
        ended
    }
}
