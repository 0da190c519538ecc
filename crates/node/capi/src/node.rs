//! A node in this process: started in the background, asked, stopped.

use std::{
    sync::{
        Arc, Mutex, PoisonError, RwLock,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use quorate::{Embedded, NotDone, Sequenced, SessionId};
use quorate_admin::view::NodeView;

use crate::{
    attach::server::Server,
    bell::Bell,
    border::block_signals,
    error::{Code, Failed},
    options::Options,
    source::{Cursor, Done, Outcome, Read, Source, forgotten},
    values::{
        command::{Command, Held, Reply},
        machine::{STORE, Values},
        shared::Shared,
    },
};

/// How far a node is.
enum State {
    Starting,
    Up(Embedded),
    /// It did not start, or was closed.
    Down(Failed),
}

/// A node, and the values that it holds.
pub struct Node {
    options: Options,
    shared: Arc<Shared>,
    state: RwLock<State>,
    /// Rings when the state changes.
    changed: Arc<Bell>,
    give_up: Arc<AtomicBool>,
    start: Mutex<Option<JoinHandle<()>>>,
    server: Mutex<Option<Server>>,
}

impl Node {
    /// Begins to start a node; `bell` rings for whoever reads values.
    pub fn start(options: Options, bell: &Arc<Bell>) -> Result<Arc<Self>, Failed> {
        let give_up = Arc::new(AtomicBool::new(false));
        let builder = options.builder()?.give_up_when(Arc::clone(&give_up));
        let shared = Arc::new(Shared::default());
        shared.listen(bell);
        let node = Arc::new(Self {
            options,
            shared,
            state: RwLock::new(State::Starting),
            changed: Arc::clone(bell),
            give_up,
            start: Mutex::new(None),
            server: Mutex::new(None),
        });
        let own = Arc::clone(&node);
        let start = thread::Builder::new().name("quorate-start".to_owned());
        let start = start
            .spawn(move || {
                // The threads of the node inherit this.
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

    /// The node runs: says from where values are read, and lets programs attach.
    fn begin(self: &Arc<Self>, up: Embedded) -> Result<Embedded, Failed> {
        let stopped = || Failed::new(Code::Stopped, "the node ended while it started");
        let status = up.status().map_err(|_| stopped())?;
        // What is applied is heard of by commits alone: a status is older than they are.
        self.shared.read_from(status.decided_to.0);
        if let Some(listen) = &self.options.listen {
            let server = Server::listen(listen, status.cluster, status.member.node.0, self)?;
            *self.server.lock().unwrap_or_else(PoisonError::into_inner) = Some(server);
        }
        Ok(up)
    }

    fn set(&self, started: Result<Embedded, Failed>) {
        let state = started.map_or_else(State::Down, State::Up);
        *self.state.write().unwrap_or_else(PoisonError::into_inner) = state;
        self.changed.ring();
    }

    /// What this node was started with.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// The values that it holds.
    pub fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Does something with the running node.
    fn with<T>(&self, ask: impl FnOnce(&Embedded) -> Result<T, NotDone>) -> Result<T, Failed> {
        match &*self.state.read().unwrap_or_else(PoisonError::into_inner) {
            State::Up(up) => ask(up).map_err(Failed::from),
            State::Starting => Err(starting()),
            State::Down(why) => Err(why.clone()),
        }
    }

    fn command(&self, value: &[u8]) -> Result<Vec<u8>, Failed> {
        let most = self.options.largest_value();
        if value.len() > most {
            let detail = format!("the value has {} bytes, and may have {most}", value.len());
            return Err(Failed::new(Code::Size, detail)
                .hint("raise value-max and held-max on all nodes, or send it in parts"));
        }
        let command = Command::Append {
            held_max: self.options.held_bytes_max,
            when_full: self.options.when_full,
            value,
        };
        Ok(command.encode())
    }

    /// A session for [`Node::append_once`]. Blocks.
    pub fn register(&self) -> Result<SessionId, Failed> {
        self.with(|replica| replica.register())
    }

    /// Appends a value once, however often it is asked for under this number; `done` hears the failure as it is.
    pub fn append_once(
        &self,
        at: Sequenced,
        value: &[u8],
        done: impl FnOnce(Result<Outcome, NotDone>) + Send + 'static,
    ) -> Result<(), Failed> {
        let command = self.command(value)?;
        self.with(|up| {
            up.submit_once(at, command, |reply| {
                done(reply.map(|reply| outcome(&reply)))
            })
        })
    }

    /// Where programs attach.
    pub fn attach_address(&self) -> Option<String> {
        let server = self.server.lock().unwrap_or_else(PoisonError::into_inner);
        server.as_ref().map(|server| server.address().to_string())
    }
}

fn starting() -> Failed {
    Failed::new(Code::Unavailable, "the node is still starting")
        .hint("at the first start of a cluster it waits for the node with the lowest id")
}

/// What a reply says to who asked.
fn outcome(reply: &[u8]) -> Outcome {
    match Reply::decode(reply) {
        Some(Reply::Appended { slot }) => Ok(slot),
        Some(Reply::Trimmed { first }) => Ok(first),
        Some(Reply::Full { first, held }) => {
            let detail = format!("{held} bytes are held, from slot {first} on");
            Err(Failed::new(Code::Full, detail)
                .hint("trim what every replica has delivered, or raise held-max"))
        }
        Some(Reply::Malformed) | None => Err(Failed::new(
            Code::Refused,
            "the cluster does not know this command: another version?",
        )),
    }
}

impl Source for Arc<Node> {
    fn append(&self, value: &[u8], done: Done) -> Result<(), Failed> {
        let command = self.command(value)?;
        self.with(|up| {
            up.submit(command, |reply| {
                done(
                    reply
                        .map_err(Failed::from)
                        .and_then(|reply| outcome(&reply)),
                );
            })
        })
    }

    fn trim(&self, below: u64, done: Done) -> Result<(), Failed> {
        let command = Command::Trim { below }.encode();
        self.with(|up| {
            up.submit(command, |reply| {
                done(
                    reply
                        .map_err(Failed::from)
                        .and_then(|reply| outcome(&reply)),
                );
            })
        })
    }

    fn sync(&self, done: Done) -> Result<(), Failed> {
        self.with(|up| {
            up.submit_query([], |answer| {
                let unknown = || Failed::new(Code::Unknown, "an answer that makes no sense");
                let held = answer.map_err(Failed::from);
                done(held.and_then(|held| {
                    Held::decode(&held)
                        .map(|held| held.next)
                        .ok_or_else(unknown)
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

    fn read(&self, cursor: &mut Cursor) -> Read {
        match &*self.state.read().unwrap_or_else(PoisonError::into_inner) {
            State::Up(_) => match self.shared.read(cursor) {
                Read::Ahead if self.shared.has_ended() => Read::Ended(
                    Failed::new(Code::Stopped, "the node has stopped by itself")
                        .hint("quorate_close says why"),
                ),
                read => read,
            },
            State::Starting => Read::Ahead,
            State::Down(why) => Read::Ended(why.clone()),
        }
    }

    fn peek(&self, slot: u64) -> Result<Read, Failed> {
        Ok(self.read(&mut Cursor::At(slot)))
    }

    fn taken(&self, _: u64) {}

    fn ready(&self, wait: Duration) -> Result<(), Failed> {
        let until = Instant::now() + wait;
        loop {
            // It is not hushed: whoever polls the descriptor is to see the change, too.
            let seen = self.changed.rung();
            match self.with(|_| Ok(())) {
                Err(failed) if failed.code == Code::Unavailable => {}
                // While it reads back what it knew, it may be unable to answer.
                Ok(()) if !self.shared.is_replayed() && !self.shared.has_ended() => {}
                settled => return settled,
            }
            if !self.changed.wait(seen, Some(until)) {
                return Err(Failed {
                    code: Code::Timeout,
                    ..starting()
                });
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

    fn value_bytes_max(&self) -> usize {
        self.options.largest_value()
    }

    fn close(&self) -> Result<(), Failed> {
        self.give_up.store(true, Ordering::Release);
        let start = self
            .start
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(start) = start {
            let _ = start.join();
        }
        let server = self
            .server
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        drop(server);
        let down = State::Down(Failed::new(Code::Stopped, "the handle is closed"));
        let state = {
            let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
            std::mem::replace(&mut *state, down)
        };
        let ended = match state {
            State::Up(up) => up.stop().map_err(Failed::from),
            State::Starting | State::Down(_) => Ok(()),
        };
        self.changed.ring();
        ended
    }
}
