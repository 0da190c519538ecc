//! A replica embedded in a program: how to build, use and stop it.

use std::{
    ops::Deref,
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
    Handle, Listeners, Reactor, Unanswered, Wake, device::Kind as Device,
    plane::PlaneSettings as Place,
};
use quorate_node::streams::{CombinedFront, StreamFront};
use quorate_replica::{
    service::StateMachine,
    status::{Addresses, Status},
};
use quorate_tls::Protection;

use crate::{
    discard::DiscardedContents,
    error::{Error, STOPPED_CODE},
    folder::{SetupCallbacks, StartFolder},
    local::{Local, LocalFront, local_channel},
    node::{self, OpeningStep, Starter},
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
    client: String,
    device: (Device, Place),
    start_empty: bool,
    abort_flag: Arc<AtomicBool>,
}

impl Builder {
    /// Creates a builder for a replica with the data folder `data`. Unless configured otherwise, it
    /// is a cluster of one.
    pub fn new(data: impl Into<PathBuf>) -> Self {
        Self {
            settings: Settings::new(data),
            peer: None,
            streams: None,
            client: String::new(),
            device: (Device::Off, Place::default()),
            start_empty: false,
            abort_flag: Arc::default(),
        }
    }

    /// Sets the id of this node. It may be omitted once the folder belongs to a node.
    #[must_use]
    pub fn node(mut self, node: u32) -> Self {
        self.settings.node = Some(NodeId(node));
        self
    }

    /// Sets the ids of all members, with their peer addresses as `HOST:PORT`. The list must be the
    /// same on every node.
    #[must_use]
    pub fn cluster<A: Into<String>>(mut self, members: impl IntoIterator<Item = (u32, A)>) -> Self {
        let member = |(node, address): (u32, A)| (NodeId(node), address.into());
        self.settings.cluster = members.into_iter().map(member).collect();
        self
    }

    /// Discards the contents of the folder, so that this is a new node of a new cluster. All
    /// members must start at the same time. While members of the old cluster are running, the start
    /// is refused and the folder is left unchanged.
    #[must_use]
    pub fn start_empty(mut self, start_empty: bool) -> Self {
        self.start_empty = start_empty;
        self
    }

    /// Sets the address for peer connections. The default is this node's address in the cluster.
    #[must_use]
    pub fn peer(mut self, address: impl Into<String>) -> Self {
        self.peer = Some(address.into());
        self
    }

    /// Sets the address for byte stream clients. Without it, stream clients cannot connect.
    #[must_use]
    pub fn streams(mut self, address: impl Into<String>) -> Self {
        self.streams = Some(address.into());
        self
    }

    /// Sets the address at which the embedding program itself serves clients. The other members
    /// learn the address, and status shows it.
    #[must_use]
    pub fn client(mut self, address: impl Into<String>) -> Self {
        self.client = address.into();
        self
    }

    /// Sets the device that votes, assigns slots and counts votes for this node whenever it is
    /// available (`docs/operate/devices.md`). `place` names the device's interface and states
    /// whether the network is trusted. Beyond loopback the network must be trusted.
    #[must_use]
    pub fn device(mut self, kind: Device, place: Place) -> Self {
        self.device = (kind, place);
        self
    }

    /// Sets the durability class of the group. It can never be changed, and is durable by default.
    #[must_use]
    pub fn durability(mut self, class: Class) -> Self {
        self.settings.class = Some(class);
        self
    }

    /// Sets a flag that aborts the start while it waits for its founder or for disk space. The
    /// start then fails with the code [`STOPPED_CODE`].
    #[must_use]
    pub fn abort_start_when(mut self, set: Arc<AtomicBool>) -> Self {
        self.abort_flag = set;
        self
    }

    /// Sets the protection against unauthorized access: certificates, or a statement that the
    /// network is trusted. Without either, the node listens on loopback only.
    #[must_use]
    pub fn protection(mut self, protection: Protection) -> Self {
        self.settings.protection = protection;
        self
    }

    /// Changes any setting that has no method of its own.
    #[must_use]
    pub fn settings(mut self, change: impl FnOnce(&mut Settings)) -> Self {
        change(&mut self.settings);
        self
    }

    /// Opens the folder, joins the cluster and starts the node's thread, which creates and owns the
    /// service. Waits for the founder at the first start of a cluster.
    pub fn start<S: StateMachine + 'static>(
        self,
        service: impl FnOnce() -> S + Send + 'static,
    ) -> Result<Embedded, Error> {
        let (started, start) = sync_channel(1);
        let (local, front) = local_channel()?;
        let wake = Arc::clone(front.wake());
        let front = CombinedFront::new(front, StreamFront::default());
        let thread = thread::Builder::new().name("quorate".to_owned());
        let thread = thread
            .spawn(move || match self.run(service, front, wake, &started) {
                Ok(()) => Ok(()),
                Err(error) => {
                    // The caller either still waits for the start, or gets the error when it stops
                    // the replica.
                    let _ = started.try_send(Err(error.clone()));
                    Err(error)
                }
            })
            .map_err(|error| Error::from_io("start a thread", &error))?;
        let gone = |_| Err(Error::new("stopped", "the node ended while it started"));
        let handle = start.recv().unwrap_or_else(gone)?;
        Ok(Embedded { handle, local, thread: Some(thread) })
    }

    fn run<S: StateMachine>(
        self,
        service: impl FnOnce() -> S,
        front: CombinedFront<LocalFront, StreamFront>,
        wake: Arc<Wake>,
        started: &SyncSender<Result<Handle, Error>>,
    ) -> Result<(), Error> {
        let Self {
            settings,
            peer,
            streams,
            client,
            device: (device, place),
            start_empty,
            abort_flag: give_up,
        } = self;
        let discarded = start_empty.then(|| DiscardedContents::move_aside(&settings.data_folder));
        let discarded = discarded.transpose()?;
        let folder = StartFolder::open(&settings)?;
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
            client,
            stream: stream.map_or_else(String::new, |address| address.to_string()),
            ..Addresses::default()
        };
        let starting = listeners.answer_while_starting(folder.node(), folder.cluster());
        let starting = starting.map_err(|error| Error::from_io("start a thread", &error))?;
        let stop = &|| give_up.load(Ordering::Acquire);
        let waiting = &mut |why: &str| tracing::info!(why, "waiting");
        let join = &mut |_| {
            let what = "an embedded node cannot join a cluster by itself: run 'quorate start --join' first";
            Err(Error::new("bad_configuration", what))
        };
        let settling =
            SetupCallbacks { peer: &addresses.peer, stop, report_wait: waiting, request_id: join };
        let Some(identity) = folder.set_up(&settings, settling)? else {
            return Err(Error::new(STOPPED_CODE, "stopped before the cluster was founded"));
        };
        if let Some(discarded) = discarded {
            discarded.finish_discard()?;
        }
        starting.belongs_to(identity.founding().cluster);
        let tell = &mut |opening: OpeningStep<'_>| match opening {
            OpeningStep::Disk(reason) => tracing::info!(reason, "disk"),
            OpeningStep::Waiting(why) => tracing::info!(why, "waiting"),
            OpeningStep::ReadingLog(_) => {}
        };
        let starter = Starter { report_step: tell, stop };
        let service = service();
        let (host, net) = node::open(&settings, identity, addresses, service, front, starter)?;
        drop(starting);
        let failed = |error| Error::from_io("the reactor failed", &error);
        let (reactor, handle) =
            Reactor::new(net, listeners, host.with_wake_source(wake)).map_err(failed)?;
        let _ = started.try_send(Ok(handle));
        Ok(reactor.run().map_err(failed)?.finish_clean_stop()?)
    }
}

/// A running replica. Any number of threads may send requests concurrently (see [`Local`]).
#[derive(Debug)]
pub struct Embedded {
    handle: Handle,
    local: Local,
    thread: Option<JoinHandle<Result<(), Error>>>,
}

impl Deref for Embedded {
    type Target = Local;

    fn deref(&self) -> &Local {
        &self.local
    }
}

impl Embedded {
    /// Returns the handle for requests. Clones of it are usable from any thread, even after this
    /// value has moved.
    pub fn local(&self) -> &Local {
        &self.local
    }

    /// Returns the status of this node, such as its role and its progress.
    pub fn status(&self) -> Result<Status, Unanswered> {
        self.handle.status()
    }

    /// Returns the handle for other operations, such as metrics and transfer of leadership.
    pub fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Stops the node, after it has finished all accepted requests.
    pub fn stop(mut self) -> Result<(), Error> {
        self.stop_and_join()
    }

    fn stop_and_join(&mut self) -> Result<(), Error> {
        self.handle.stop();
        match self.thread.take().map(JoinHandle::join) {
            None => Ok(()),
            Some(Ok(result)) => result,
            Some(Err(_)) => Err(Error::new("panicked", "the node found itself wrong and stopped")),
        }
    }
}

impl Drop for Embedded {
    fn drop(&mut self) {
        if let Err(error) = self.stop_and_join() {
            tracing::error!(%error, "the node did not stop cleanly");
        }
    }
}
