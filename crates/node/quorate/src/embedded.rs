//! A replica inside a program: built, asked, stopped.

use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{SyncSender, sync_channel},
    },
    thread::{self, JoinHandle},
};

use quorate_core::{node_id::NodeId, record::Class};
use quorate_net::{
    Asks, Handle, Listeners, NotPut, Reactor, Unanswered, Wake, asks, device::Kind as Device,
    plane::Wanted as Place,
};
use quorate_node::streams::{Doors, StreamFront};
use quorate_replica::{
    front::{Failure, Sequenced, SessionId},
    service::StateMachine,
    status::{Addresses, Status},
};
use quorate_tls::Protection;

use crate::{
    discard::Discarded,
    error::{Error, STOPPED},
    folder::{Folder, Settling},
    local::{Answer, Ask, Done, LocalFront, WAITING_MAX, Wanted},
    node::{self, Opening, Starter},
    settings::Settings,
};

/// Starts a replica of your service in this process.
///
/// ```no_run
/// # use quorate::{Builder, CommandId, StateMachine};
/// # struct Counter(u64);
/// # impl StateMachine for Counter {
/// #     fn apply(&mut self, _: CommandId, _: &[u8], _: &mut Vec<u8>) {}
/// #     fn query(&self, _: &[u8], _: u64, _: &mut Vec<u8>) {}
/// # }
/// let replica = Builder::new("data/1").start(|| Counter(0))?;
/// let reply = replica.execute(b"add 1")?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Builder {
    settings: Settings,
    peer: Option<String>,
    streams: Option<String>,
    device: (Device, Place),
    start_empty: bool,
    give_up: Arc<AtomicBool>,
}

impl Builder {
    /// A replica with this data folder; a cluster of one unless more is said.
    pub fn new(data: impl Into<PathBuf>) -> Self {
        Self {
            settings: Settings::new(data),
            peer: None,
            streams: None,
            device: (Device::Off, Place::default()),
            start_empty: false,
            give_up: Arc::default(),
        }
    }

    /// Which node this is.
    #[must_use]
    pub fn node(mut self, node: u32) -> Self {
        self.settings.node = Some(NodeId(node));
        self
    }

    /// All members: id, and address for peers as `HOST:PORT`. The same on every node.
    #[must_use]
    pub fn cluster<A: Into<String>>(mut self, members: impl IntoIterator<Item = (u32, A)>) -> Self {
        let member = |(node, address): (u32, A)| (NodeId(node), address.into());
        self.settings.cluster = members.into_iter().map(member).collect();
        self
    }

    /// Forgets what the folder holds: this is a new node, of a new cluster that all its members begin at once. While
    /// members of the old cluster run, the start is refused, and the folder stays what it was.
    #[must_use]
    pub fn start_empty(mut self, start_empty: bool) -> Self {
        self.start_empty = start_empty;
        self
    }

    /// Where to listen for peers, if not at this node's address in the cluster.
    #[must_use]
    pub fn peer(mut self, address: impl Into<String>) -> Self {
        self.peer = Some(address.into());
        self
    }

    /// Where clients of byte streams connect. Without this, none can.
    #[must_use]
    pub fn streams(mut self, address: impl Into<String>) -> Self {
        self.streams = Some(address.into());
        self
    }

    /// What votes, gives out slots and counts for this node while it can (`docs/operate/devices.md`). `place` names its
    /// interface, and says whether the network is trusted, which it must be beyond loopback.
    #[must_use]
    pub fn device(mut self, kind: Device, place: Place) -> Self {
        self.device = (kind, place);
        self
    }

    /// When something counts as done, for the whole group and its life; durable by default.
    #[must_use]
    pub fn durability(mut self, class: Class) -> Self {
        self.settings.class = Some(class);
        self
    }

    /// A start that still waits for its founder or for room ends once this is set, with the code [`STOPPED`].
    #[must_use]
    pub fn give_up_when(mut self, set: Arc<AtomicBool>) -> Self {
        self.give_up = set;
        self
    }

    /// What keeps strangers away: certificates, or somebody's word that the network is trusted. Without either, the node
    /// listens on loopback only.
    #[must_use]
    pub fn protection(mut self, protection: Protection) -> Self {
        self.settings.protection = protection;
        self
    }

    /// Everything else.
    #[must_use]
    pub fn settings(mut self, change: impl FnOnce(&mut Settings)) -> Self {
        change(&mut self.settings);
        self
    }

    /// Opens the folder, joins the cluster and starts the node's thread, on which the service is
    /// made and stays. Waits for the founder at the first start of a cluster.
    pub fn start<S: StateMachine + 'static>(
        self,
        service: impl FnOnce() -> S + Send + 'static,
    ) -> Result<Embedded, Error> {
        let (started, start) = sync_channel(1);
        let (asks, asked) =
            asks(WAITING_MAX).map_err(|error| Error::io("make an eventfd", &error))?;
        let wake = Arc::clone(asked.wake());
        let front = Doors::new(LocalFront::new(asked), StreamFront::default());
        let thread = thread::Builder::new().name("quorate".to_owned());
        let thread = thread
            .spawn(move || match self.run(service, front, wake, &started) {
                Ok(()) => Ok(()),
                Err(error) => {
                    // Either the caller still waits for the start, or it hears of it at the stop.
                    let _ = started.try_send(Err(error.clone()));
                    Err(error)
                }
            })
            .map_err(|error| Error::io("start a thread", &error))?;
        let gone = |_| Err(Error::new("stopped", "the node ended while it started"));
        let handle = start.recv().unwrap_or_else(gone)?;
        Ok(Embedded {
            handle,
            asks,
            thread: Some(thread),
        })
    }

    fn run<S: StateMachine>(
        self,
        service: impl FnOnce() -> S,
        front: Doors<LocalFront, StreamFront>,
        wake: Arc<Wake>,
        started: &SyncSender<Result<Handle, Error>>,
    ) -> Result<(), Error> {
        let Self {
            settings,
            peer,
            streams,
            device: (device, place),
            start_empty,
            give_up,
        } = self;
        let discarded = start_empty.then(|| Discarded::take(&settings.data));
        let discarded = discarded.transpose()?;
        let folder = Folder::open(&settings)?;
        let listed = folder.listed_address(&settings);
        let peer = peer.or_else(|| listed.clone());
        // A cluster of one has no peers to wait for.
        let mut listeners = Listeners::bind_peers(
            peer.as_deref().unwrap_or("127.0.0.1:0"),
            settings.protection.clone(),
        )?;
        let refused = |refused| Error::new("device", format!("{refused}"));
        listeners.bind_device(&device, &place).map_err(refused)?;
        if let Some(streams) = streams {
            listeners.bind_streams(&streams)?;
        }
        let peer = listed.unwrap_or_else(|| listeners.peer_address().to_string());
        let stream = listeners.stream_address();
        let addresses = Addresses {
            peer,
            stream: stream.map_or_else(String::new, |address| address.to_string()),
            ..Addresses::default()
        };
        let starting = listeners.answer_while_starting(folder.node(), folder.cluster());
        let starting = starting.map_err(|error| Error::io("start a thread", &error))?;
        let stop = &|| give_up.load(Ordering::Acquire);
        let waiting = &mut |why: &str| tracing::info!(why, "waiting");
        let join = &mut |_| {
            let what = "an embedded node cannot join a cluster by itself: run 'quorate start --join' first";
            Err(Error::new("bad_configuration", what))
        };
        let settling = Settling {
            peer: &addresses.peer,
            stop,
            waiting,
            join,
        };
        let Some(identity) = folder.settle(&settings, settling)? else {
            return Err(Error::new(
                STOPPED,
                "stopped before the cluster was founded",
            ));
        };
        if let Some(discarded) = discarded {
            discarded.settled()?;
        }
        starting.belongs_to(identity.founding().cluster);
        let tell = &mut |opening: Opening<'_>| match opening {
            Opening::Disk(reason) => tracing::info!(reason, "disk"),
            Opening::Waiting(why) => tracing::info!(why, "waiting"),
            Opening::ReadingLog(_) => {}
        };
        let starter = Starter { tell, stop };
        let service = service();
        let (host, net) = node::open(&settings, identity, addresses, service, front, starter)?;
        drop(starting);
        let failed = |error| Error::io("the reactor failed", &error);
        let (reactor, handle) =
            Reactor::new(net, listeners, host.woken_by(wake)).map_err(failed)?;
        let _ = started.try_send(Ok(handle));
        Ok(reactor.run().map_err(failed)?.finish()?)
    }
}

/// A running replica. Any number of threads may ask it at once.
#[derive(Debug)]
pub struct Embedded {
    handle: Handle,
    asks: Asks<Ask>,
    thread: Option<JoinHandle<Result<(), Error>>>,
}

impl std::fmt::Debug for Ask {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Ask")
    }
}

impl Embedded {
    /// Orders this command and executes it on every node, once; the service's reply. Blocks.
    pub fn execute(&self, command: impl Into<Vec<u8>>) -> Result<Vec<u8>, NotDone> {
        self.ask(Wanted::Execute(command.into()))
    }

    /// Asks the service; sees everything that was done before, by anybody. Blocks.
    pub fn query(&self, query: impl Into<Vec<u8>>) -> Result<Vec<u8>, NotDone> {
        self.ask(Wanted::Query(query.into()))
    }

    /// Asks the service as this node has it: at once, perhaps stale.
    pub fn query_local(&self, query: impl Into<Vec<u8>>) -> Result<Vec<u8>, NotDone> {
        self.ask(Wanted::QueryLocal(query.into()))
    }

    /// As [`Embedded::execute`], without waiting: `done` hears how it ended, once, on the node's thread, which
    /// it must neither keep waiting nor end by a panic. If the queue is full or the node is gone, that is said
    /// here, and `done` hears nothing.
    pub fn submit(
        &self,
        command: impl Into<Vec<u8>>,
        done: impl FnOnce(Result<Vec<u8>, NotDone>) + Send + 'static,
    ) -> Result<(), NotDone> {
        self.put(Wanted::Execute(command.into()), done)
    }

    /// The same, once in a session, however often and through whichever node it is sent ([session-2]).
    pub fn submit_once(
        &self,
        at: Sequenced,
        command: impl Into<Vec<u8>>,
        done: impl FnOnce(Result<Vec<u8>, NotDone>) + Send + 'static,
    ) -> Result<(), NotDone> {
        self.put(Wanted::ExecuteOnce(at, command.into()), done)
    }

    /// As [`Embedded::query`], without waiting; `done` as for [`Embedded::submit`].
    pub fn submit_query(
        &self,
        query: impl Into<Vec<u8>>,
        done: impl FnOnce(Result<Vec<u8>, NotDone>) + Send + 'static,
    ) -> Result<(), NotDone> {
        self.put(Wanted::Query(query.into()), done)
    }

    /// Registers a session for [`Embedded::submit_once`]. Blocks.
    pub fn register(&self) -> Result<SessionId, NotDone> {
        match self.wait(Wanted::Register)? {
            Done::Session(session) => Ok(session),
            Done::Reply(_) => Err(NotDone(Failure::Unknown)),
        }
    }

    fn put(
        &self,
        wanted: Wanted,
        done: impl FnOnce(Result<Vec<u8>, NotDone>) + Send + 'static,
    ) -> Result<(), NotDone> {
        let answer = Answer::new(|result| done(result.map(reply).map_err(NotDone)));
        let (ask, failure) = match self.asks.try_put(Ask { wanted, answer }) {
            Ok(()) => return Ok(()),
            Err(NotPut::Full(ask)) => (ask, Failure::Busy),
            Err(NotPut::Gone(ask)) => (ask, Failure::Stopping),
        };
        ask.answer.withdraw();
        Err(NotDone(failure))
    }

    fn ask(&self, wanted: Wanted) -> Result<Vec<u8>, NotDone> {
        self.wait(wanted).map(reply)
    }

    fn wait(&self, wanted: Wanted) -> Result<Done, NotDone> {
        let (tell, told) = sync_channel(1);
        // A caller that gave up does not concern us.
        let answer = Answer::new(move |result| drop(tell.try_send(result)));
        if !self.asks.put(Ask { wanted, answer }) {
            return Err(NotDone(Failure::Stopping));
        }
        // Whether it was executed is not known once the node is gone with it.
        told.recv()
            .unwrap_or(Err(Failure::Unknown))
            .map_err(NotDone)
    }

    /// What this node is.
    pub fn status(&self) -> Result<Status, Unanswered> {
        self.handle.status()
    }

    /// More questions: metrics, transfer of leadership.
    pub fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Finishes what was accepted and stops.
    pub fn stop(mut self) -> Result<(), Error> {
        self.end()
    }

    fn end(&mut self) -> Result<(), Error> {
        self.handle.stop();
        match self.thread.take().map(JoinHandle::join) {
            None => Ok(()),
            Some(Ok(result)) => result,
            Some(Err(_)) => Err(Error::new(
                "panicked",
                "the node found itself wrong and stopped",
            )),
        }
    }
}

impl Drop for Embedded {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            tracing::error!(%error, "the node did not stop cleanly");
        }
    }
}

fn reply(done: Done) -> Vec<u8> {
    match done {
        Done::Reply(reply) => reply,
        Done::Session(_) => Vec::new(),
    }
}

/// Why there is no reply. [`Failure::Unknown`] means that it may have been executed, and
/// [`Failure::NoSession`] the same of a number that was sent before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotDone(pub Failure);

impl std::fmt::Display for NotDone {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self.0 {
            Failure::Busy => "queues are full; not executed, try again",
            Failure::NoQuorum => "no leader was found in time; not executed",
            Failure::TooBig => "the command is too big; not executed",
            Failure::Stopping => "the node is stopping; not executed",
            Failure::Unavailable => "this node's service cannot work at the moment; not executed",
            Failure::Unknown => "it may have been executed, or may yet be",
            Failure::NoSession => {
                "unknown session; not executed now, perhaps when it was sent before"
            }
            Failure::ReplyForgotten => "executed before, its reply is forgotten",
            Failure::SessionFull => "too many commands open in the session; not executed",
            Failure::Stale => "this node is not known to be as fresh as that; not executed",
            Failure::Overtaken => "the leader's lease ended meanwhile; not executed, ask again",
        })
    }
}

impl std::error::Error for NotDone {}
