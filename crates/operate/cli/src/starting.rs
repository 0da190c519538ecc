//! The last stage of a node's start: opens its log, runs its reactor, and reports that it is ready.

use std::{process, sync::Arc, thread};

use quorate::{NodeHost, NodeId, Opening, Passwords, Protection, Starter, StateMachine};
use quorate_admin::server::{self, Admin};
use quorate_kv::store::lsm;
use quorate_net::{Handle, Listeners, Reactor, Wake, plane::KeyFile};
use quorate_node::{
    Identity, LockedFolder,
    streams::{Doors, StreamFront},
};
use quorate_replica::{front::Front, status::Addresses};

use crate::{
    certificates,
    config::Store,
    joining,
    manager::Manager,
    output::{Exit, Problem, print, progress},
    plane_keys,
    stop::StopRequest,
};

/// A function that stops the reactor.
pub(crate) type EndReactor = Box<dyn Fn() + Send>;

/// A node that has its identity but is not running yet.
pub(crate) struct Starting {
    pub(crate) known: quorate::Settings,
    pub(crate) identity: Identity<LockedFolder>,
    pub(crate) addresses: Addresses,
    pub(crate) store: Store,
    pub(crate) listeners: Listeners,
    /// Server at the peer address, until the reactor replaces it.
    pub(crate) start_server: quorate_net::Starting,
    pub(crate) admin: Admin,
    pub(crate) stop: StopRequest<EndReactor>,
    pub(crate) announce: Announce,
    pub(crate) manager: Manager,
    /// Admin addresses of the cluster that the node joins.
    pub(crate) join: Vec<String>,
    /// Keys that authenticate datagrams, if a key file is given.
    pub(crate) keys: Option<KeyFile>,
}

impl Starting {
    /// Reports that the store is being opened. Returns the number of files that it may open.
    pub(crate) fn opens_store(&self) -> usize {
        self.admin.starting("opening the store");
        self.manager.does("opening the store");
        self.manager.report_progress();
        self.known.descriptors.store_files
    }

    /// Runs the node until it is stopped. `serve` may start a server outside of the reactor. The
    /// result of `serve` is dropped before the node ends.
    pub(crate) fn run<S: StateMachine, F: Front, Serves>(
        mut self,
        service: S,
        front: F,
        wake: Option<Arc<Wake>>,
        serve: impl FnOnce(Handle) -> Result<Serves, Problem>,
    ) -> Result<Exit, Problem> {
        let (admin, manager) = (&self.admin, &self.manager);
        let announce = &mut self.announce;
        admin.starting("opening the log");
        manager.does("opening the log");
        manager.report_progress();
        let tell = &mut |opening: Opening<'_>| match opening {
            Opening::Disk(why) => progress(why),
            Opening::ReadingLog(reading) => {
                admin.reading(reading);
                manager.report_reading(reading);
            }
            Opening::Waiting(why) => {
                announce.now();
                admin.starting(why);
                manager.does(why);
                progress(why);
            }
        };
        let stop = &|| {
            manager.report_progress();
            self.stop.is_stop_requested()
        };
        let passwords = passwords()?;
        let wakes = wake.into_iter().chain([Arc::clone(passwords.wake())]);
        let streams = StreamFront::default().with_checker(Box::new(passwords));
        let front = Doors::new(front, streams);
        let opened = quorate::open(
            &self.known,
            self.identity,
            self.addresses,
            service,
            front,
            Starter { tell, stop },
        );
        let (host, net) = match opened {
            Err(error) if error.code == quorate::STOPPED => return Ok(Exit::Done),
            opened => opened?,
        };
        log_start(host.identity(), self.store);
        let (node, joins) = (host.identity().founding().node, host.identity().joins());
        end_on_panic();
        drop(self.start_server);
        let host = wakes.fold(host, NodeHost::woken_by);
        let (reactor, handle) = Reactor::new(net, self.listeners, host)
            .map_err(|error| Problem::io("start the reactor", &error))?;
        let serves = serve(handle.clone())?;
        self.admin.set_running(handle.clone(), self.store.name());
        if let Some(role) = joins {
            joining::follow_promotion(handle.clone(), node, role, self.join)
                .map_err(|error| Problem::io("start a thread", &error))?;
        }
        if let Some(keys) = self.keys {
            plane_keys::reload_in_background(handle.clone(), keys)
                .map_err(|error| Problem::io("start a thread", &error))?;
        }
        if let Protection::Tls(trust) = self.known.protection {
            certificates::reload_in_background(trust)
                .map_err(|error| Problem::io("start a thread", &error))?;
        }
        let followed = self.manager.follow_reactor(handle.clone());
        followed.map_err(|error| Problem::io("start a thread", &error))?;
        self.stop.set_stopper(Box::new(move || handle.stop()));
        self.announce.now();
        let host = reactor.run().map_err(|error| Problem::io("the reactor failed", &error))?;
        drop(serves);
        host.finish().map_err(quorate::Error::from)?;
        tracing::info!("stopped");
        Ok(Exit::Done)
    }
}

/// Starts a password checker. Each frontend has its own, so that password guessing at one frontend
/// does not delay logins at another.
pub(crate) fn passwords() -> Result<Passwords, Problem> {
    Passwords::start().map_err(|error| Problem::io("start a thread for passwords", &error))
}

fn log_start(identity: &Identity<LockedFolder>, store: Store) {
    tracing::info!(
        node = %identity.member(),
        cluster = %format_args!("{:032x}", identity.founding().cluster),
        durability = identity.founding().class.name(),
        store = store.name(),
        boot = identity.boot(),
        "node started"
    );
}

/// Announcement of the node's addresses, to be printed and sent to the service manager once the
/// node has its id.
pub(crate) struct Announce {
    node: Option<NodeId>,
    places: Option<String>,
    manager: Manager,
}

impl Announce {
    pub(crate) fn new(
        node: Option<NodeId>,
        listeners: &Listeners,
        admin: &Admin,
        manager: Manager,
    ) -> Self {
        let client = listeners.client_address();
        let places = format!(
            "client={} peer={} admin={}",
            client.map_or_else(String::new, |address| address.to_string()),
            listeners.peer_address(),
            admin.address()
        );
        let stream = listeners.stream_address();
        let stream = stream.map_or_else(String::new, |stream| format!(" stream={stream}"));
        let raw = listeners.raw_stream_address();
        let raw = raw.map_or_else(String::new, |raw| format!(" stream-raw={raw}"));
        let places = format!("{places}{stream}{raw}");
        Self { node, places: Some(places), manager }
    }

    pub(crate) fn set_node_id(&mut self, node: NodeId) {
        self.node = Some(node);
    }

    pub(crate) fn now(&mut self) {
        if let Some(node) = self.node
            && let Some(places) = self.places.take()
        {
            let line = format!("ready node={node} {places}");
            let manager = self.manager.clone();
            // A full pipe must not block the node.
            let say = move || {
                print(&line);
                manager.ready();
            };
            if let Err(error) = thread::Builder::new().name("ready".to_owned()).spawn(say) {
                tracing::warn!("cannot print that the node is ready: {error}");
            }
        }
    }
}

/// Ends the process on a panic, except on threads that handle their panics. A replica that failed
/// an assertion must not continue, and other threads would wait for it indefinitely.
fn end_on_panic() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        report(info);
        if !server::is_this_thread() && !lsm::gets_over_panics_here() {
            process::exit(Exit::Failed as i32);
        }
    }));
}
