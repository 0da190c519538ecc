//! A node embedded in this process, which starts in the background.

use std::{
    sync::{
        Arc, Mutex, PoisonError, RwLock,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use quorate::{Embedded, Local, NotDone, Sequenced, SessionId, stderr};
use quorate_admin::view::NodeView;

use crate::{
    attach::server::Server,
    bell::Bell,
    border::block_signals,
    error::{Code, Failed},
    options::Options,
    source::{self, Cursor, Done, Outcome, Read, Source, forgotten},
    submits::{Bundle, Ends, Submits},
    values::{
        command::{Command, Held, Reply, Values as Bundled},
        machine::{STORE, Values},
        shared::Shared,
    },
};

/// Maximum time to wait, when a node ends, for the thread that forwards standard error.
const LAST_WORDS: Duration = Duration::from_secs(1);

enum State {
    Starting,
    Up(Embedded),
    /// The node failed to start or was closed.
    Down(Failed),
}

/// A node in this process and the values that it retains.
pub struct Node {
    options: Arc<Options>,
    shared: Arc<Shared>,
    state: RwLock<State>,
    /// Bell that rings when the state changes or there are new values.
    changed: Arc<Bell>,
    submits: Arc<Submits>,
    give_up: Arc<AtomicBool>,
    start: Mutex<Option<JoinHandle<()>>>,
    server: Mutex<Option<Server>>,
}

impl Node {
    /// Starts a node in the background. The node takes the values gathered in `submits`, and `bell`
    /// rings for readers of values.
    pub fn start(
        options: Options,
        bell: &Arc<Bell>,
        submits: &Arc<Submits>,
    ) -> Result<Arc<Self>, Failed> {
        let give_up = Arc::new(AtomicBool::new(false));
        let builder = options.builder()?.give_up_when(Arc::clone(&give_up));
        let shared = Arc::new(Shared::default());
        shared.listen(bell);
        let node = Arc::new(Self {
            options: Arc::new(options),
            shared,
            state: RwLock::new(State::Starting),
            changed: Arc::clone(bell),
            submits: Arc::clone(submits),
            give_up,
            start: Mutex::new(None),
            server: Mutex::new(None),
        });
        let own = Arc::clone(&node);
        let start = thread::Builder::new().name("quorate-start".to_owned());
        let start = start
            .spawn(move || {
                // The threads of the node inherit the signal mask.
                block_signals();
                let values = Arc::clone(&own.shared);
                let started = builder.start(move || Values::new(values));
                let started = started.map_err(|error| own.not_started(error));
                own.set(started.and_then(|up| own.begin(up)));
            })
            .map_err(|error| Failed::new(Code::Unavailable, format!("start a thread: {error}")))?;
        *node.start.lock().unwrap_or_else(PoisonError::into_inner) = Some(start);
        Ok(node)
    }

    fn not_started(&self, error: quorate::Error) -> Failed {
        let failed = Failed::from(error);
        if self.options.start_empty && failed.code != Code::Stopped {
            return failed.hint(
                "start-empty or trash-files begins a new cluster: stop all nodes of the old one, then start them; \
                 this node's files are unchanged",
            );
        }
        failed
    }

    /// Called once the node runs. Sets the position from which values can be read, and starts to
    /// accept attaching programs.
    fn begin(self: &Arc<Self>, up: Embedded) -> Result<Embedded, Failed> {
        let stopped = || Failed::new(Code::Stopped, "the node ended while it started");
        let status = up.status().map_err(|_| stopped())?;
        // Applied positions are reported only by commits, so the status is never ahead of them.
        self.shared.read_from(status.decided_to.0);
        if let Some(listen) = &self.options.listen {
            let server = Server::listen(listen, status.cluster, status.member.node.0, self)?;
            *self.server.lock().unwrap_or_else(PoisonError::into_inner) = Some(server);
        }
        Ok(up)
    }

    fn set(&self, started: Result<Embedded, Failed>) {
        let state = started.map_or_else(State::Down, State::Up);
        {
            let mut now = self.state.write().unwrap_or_else(PoisonError::into_inner);
            match &state {
                State::Down(why) => drop(self.submits.close(why)),
                State::Starting | State::Up(_) => self.submits.admit(),
            }
            *now = state;
        }
        self.changed.ring();
    }

    /// Returns the options with which the node was started.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Returns the values that the node retains.
    pub fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Calls a closure with the running node. Fails if the node does not run.
    fn with<T>(&self, ask: impl FnOnce(&Embedded) -> Result<T, NotDone>) -> Result<T, Failed> {
        match &*self.state.read().unwrap_or_else(PoisonError::into_inner) {
            State::Up(up) => ask(up).map_err(Failed::from),
            State::Starting => Err(starting()),
            State::Down(why) => Err(why.clone()),
        }
    }

    /// Registers a session for [`Node::append_once`]. Blocks until the outcome is known.
    pub fn register(&self) -> Result<SessionId, Failed> {
        self.with(|replica| replica.register())
    }

    /// Appends values exactly once, however often this sequence number is used. `done` gets a
    /// failure unchanged.
    pub fn append_once(
        &self,
        at: Sequenced,
        values: Bundled<'_>,
        done: impl FnOnce(Result<Ends, NotDone>) + Send + 'static,
    ) -> Result<(), Failed> {
        let command = bundle(&self.options, values);
        self.with(|up| up.submit_once(at, command, |reply| done(reply.map(|reply| ends(&reply)))))
    }

    /// Makes the node take a gathered bundle on its own thread, so that it includes all values
    /// gathered until then.
    fn pull(local: &Local, options: &Arc<Options>, submits: &Arc<Submits>, bell: &Arc<Bell>) {
        let taken = Arc::new(Mutex::new(None::<Bundle>));
        let make = {
            let (taken, local) = (Arc::clone(&taken), local.clone());
            let (options, submits, bell) =
                (Arc::clone(options), Arc::clone(submits), Arc::clone(bell));
            move |_| {
                // Each notification takes one bundle, and only this closure takes bundles, so there
                // is one unless the node has ended.
                let Some((first, more)) = submits.take() else {
                    return Vec::new();
                };
                if more {
                    Self::pull(&local, &options, &submits, &bell);
                }
                let command = Bundled::parse(&first.values, usize::MAX)
                    .map_or_else(Vec::new, |values| bundle(&options, values));
                *taken.lock().unwrap_or_else(PoisonError::into_inner) = Some(first);
                command
            }
        };
        let (own, rings) = (Arc::clone(submits), Arc::clone(bell));
        let done = move |reply: Result<Vec<u8>, NotDone>| {
            let bundle = taken.lock().unwrap_or_else(PoisonError::into_inner).take();
            let ends = match reply {
                Ok(reply) => ends(&reply),
                Err(why) => Failed::from(why).into(),
            };
            let anything = match bundle {
                Some(bundle) => own.end(bundle, ends),
                // The node ended before it took the values, so they have no slot.
                None => own.refuse(&Failed::new(Code::Stopped, "the node has stopped")),
            };
            if anything {
                rings.ring();
            }
        };
        if let Err(why) = local.submit_at(make, done)
            && submits.refuse(&why.into())
        {
            bell.ring();
        }
    }

    /// Returns the address on which programs can attach, if the node listens.
    pub fn attach_address(&self) -> Option<String> {
        let server = self.server.lock().unwrap_or_else(PoisonError::into_inner);
        server.as_ref().map(|server| server.address().to_string())
    }
}

/// Returns the error for calls while the node is starting.
pub fn starting() -> Failed {
    Failed::new(Code::Unavailable, "the node is still starting")
        .hint("at the first start of a cluster it waits for the node with the lowest id")
}

/// Encodes the command that appends the values of a bundle.
fn bundle(options: &Options, values: Bundled<'_>) -> Vec<u8> {
    let command =
        Command::Bundle { held_max: options.held_bytes_max, when_full: options.when_full, values };
    command.encode()
}

fn full(first: u64, held: u64) -> Failed {
    let detail = format!("{held} bytes are held, from slot {first} on");
    Failed::new(Code::Full, detail).hint("trim what every replica has delivered, or raise held-max")
}

fn not_understood() -> Failed {
    Failed::new(Code::Refused, "the cluster does not know this command: another version?")
}

/// Decodes the reply to a bundle.
fn ends(reply: &[u8]) -> Ends {
    match Reply::decode(reply) {
        Some(Reply::Bundled { slot, count, first, held }) => Ends {
            slot,
            count: usize::try_from(count).unwrap_or(usize::MAX),
            otherwise: Some(full(first, held)),
        },
        _ => not_understood().into(),
    }
}

/// Decodes the reply to a trim.
fn outcome(reply: &[u8]) -> Outcome {
    match Reply::decode(reply) {
        Some(Reply::Trimmed { first }) => Ok(first),
        _ => Err(not_understood()),
    }
}

impl Source for Arc<Node> {
    fn gathered(&self) {
        let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
        // In all other states no values are gathered, or they have been refused.
        if let State::Up(up) = &*state {
            Node::pull(up.local(), &self.options, &self.submits, &self.changed);
        }
    }

    fn trim(&self, below: u64, done: Done) -> Result<(), Failed> {
        let command = Command::Trim { below }.encode();
        self.with(|up| {
            up.submit(command, |reply| {
                done(reply.map_err(Failed::from).and_then(|reply| outcome(&reply)));
            })
        })
    }

    fn sync(&self, done: Done) -> Result<(), Failed> {
        self.with(|up| {
            up.submit_query([], |answer| {
                let unknown = || Failed::new(Code::Unknown, "an answer that makes no sense");
                let held = answer.map_err(Failed::from);
                done(held.and_then(|held| {
                    Held::decode(&held).map(|held| held.next).ok_or_else(unknown)
                }));
            })
        })
    }

    fn seek(&self, cursor: Cursor) -> Result<Cursor, Failed> {
        let cursor = self.shared.seek(cursor);
        match (cursor, self.shared.read(&mut { cursor })) {
            (Cursor::At(slot), Read::Forgotten(first)) => Err(forgotten(slot, first)),
            _ => Ok(cursor),
        }
    }

    fn read(&self, cursor: &mut Cursor, to: &mut source::Values) -> Option<Read> {
        match &*self.state.read().unwrap_or_else(PoisonError::into_inner) {
            State::Up(_) => match self.shared.read_some(cursor, to) {
                Some(Read::Ahead) if self.shared.has_ended() => Some(Read::Ended(
                    Failed::new(Code::Stopped, "the node has stopped by itself")
                        .hint("quorate_close says why"),
                )),
                read => read,
            },
            State::Starting => Some(Read::Ahead),
            State::Down(why) => Some(Read::Ended(why.clone())),
        }
    }

    fn peek(&self, slot: u64) -> Result<Read, Failed> {
        match &*self.state.read().unwrap_or_else(PoisonError::into_inner) {
            State::Up(_) => Ok(self.shared.read(&mut Cursor::At(slot))),
            State::Starting => Ok(Read::Ahead),
            State::Down(why) => Ok(Read::Ended(why.clone())),
        }
    }

    fn taken(&self, _: u64) {}

    fn ready(&self, wait: Duration) -> Result<(), Failed> {
        let until = Instant::now() + wait;
        loop {
            // The bell is not hushed, because a program that polls the descriptor must also notice
            // the change.
            let seen = self.changed.rung();
            match self.with(|_| Ok(())) {
                Err(failed) if failed.code == Code::Unavailable => {}
                // While it replays its log, the node may be unable to answer.
                Ok(()) if !self.shared.is_replayed() && !self.shared.has_ended() => {}
                settled => return settled,
            }
            if !self.changed.wait(seen, Some(until)) {
                return Err(Failed { code: Code::Timeout, ..starting() });
            }
        }
    }

    fn status(&self, _: Duration) -> Result<String, Failed> {
        let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
        let up = match &*state {
            State::Up(up) => up,
            State::Starting => return Ok(r#"{"state":"starting"}"#.to_owned()),
            State::Down(why) => return Err(why.clone()),
        };
        let status = up.status().map_err(|why| {
            Failed::new(Code::Stopped, format!("the node does not answer: {why}"))
        })?;
        let mut view = serde_json::to_value(NodeView::new(&status, STORE))
            .map_err(|error| Failed::new(Code::Panicked, error.to_string()))?;
        let held = self.shared.held();
        view["state"] = "up".into();
        view["listen"] = self.attach_address().into();
        view["values"] = serde_json::json!({
            "first": held.first,
            "next": held.next,
            "bytes": held.bytes,
            "bytes_max": self.options.held_bytes_max,
            "replayed": self.shared.is_replayed(),
        });
        Ok(view.to_string())
    }

    fn close(&self) -> Result<(), Failed> {
        self.give_up.store(true, Ordering::Release);
        let start = self.start.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(start) = start {
            let _ = start.join();
        }
        let server = self.server.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(server);
        let closed = Failed::new(Code::Stopped, "the handle is closed");
        let state = {
            let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
            self.submits.close(&closed);
            std::mem::replace(&mut *state, State::Down(closed))
        };
        let ended = match state {
            State::Up(up) => {
                let ended = up.stop().map_err(Failed::from);
                stderr::drain(LAST_WORDS);
                ended
            }
            State::Starting | State::Down(_) => Ok(()),
        };
        self.changed.ring();
        ended
    }
}
