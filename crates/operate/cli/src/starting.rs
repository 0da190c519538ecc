//! The last stage of a node's start: opens its log, runs its reactor, and reports that it is ready.

use std::{process, sync::Arc, thread};

use quorate::{NodeHost, NodeId, OpeningStep, Passwords, Protection, Starter, StateMachine};
use quorate_admin::server::{self, Admin};
use quorate_kv::store::lsm;
use quorate_net::{Handle, Listeners, Reactor, Wake, plane::KeyFile};
use quorate_node::{
    Identity, LockedFolder,
    streams::{CombinedFront, StreamFront},
};
use quorate_replica::{front::Front, status::Addresses};

use crate::{
    certificates,
    config::Store,
    joining,
    manager::ServiceManager,
    output::{Exit, Problem, print_line, progress},
    plane_keys,
    stop::StopRequest,
};

/// A function that stops the reactor.
pub(crate) type EndReactor = Box<dyn Fn() + Send>;

/// A node that has its identity but is not running yet.
pub(crate) struct StartingNode {
    pub(crate) settings: quorate::Settings,
    pub(crate) identity: Identity<LockedFolder>,
    pub(crate) addresses: Addresses,
    pub(crate) store: Store,
    pub(crate) listeners: Listeners,
    /// Server at the peer address, until the reactor replaces it.
    pub(crate) peer_server: quorate_net::StartupResponder,
    pub(crate) admin: Admin,
    pub(crate) stop: StopRequest<EndReactor>,
    pub(crate) announcement: AddressAnnouncement,
    pub(crate) manager: ServiceManager,
    /// Admin addresses of the cluster that the node joins.
    pub(crate) join_addresses: Vec<String>,
    /// Keys that authenticate datagrams, if a key file is given.
    pub(crate) key_file: Option<KeyFile>,
}

impl StartingNode {
    /// Reports that the store is being opened. Returns the number of files that it may open.
    pub(crate) fn report_opening_store(&self) -> usize {
        self.admin.set_starting("opening the store");
        self.manager.report_activity("opening the store");
        self.manager.report_progress();
        self.settings.descriptors.store_files_max
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
        let announce = &mut self.announcement;
        admin.set_starting("opening the log");
        manager.report_activity("opening the log");
        manager.report_progress();
        let tell = &mut |opening: OpeningStep<'_>| match opening {
            OpeningStep::Disk(why) => progress(why),
            OpeningStep::ReadingLog(reading) => {
                admin.set_reading(reading);
                manager.report_reading(reading);
            }
            OpeningStep::Waiting(why) => {
                announce.announce();
                admin.set_starting(why);
                manager.report_activity(why);
                progress(why);
            }
        };
        let stop = &|| {
            manager.report_progress();
            self.stop.is_stop_requested()
        };
        let passwords = start_passwords()?;
        let wakes = wake.into_iter().chain([Arc::clone(passwords.wake())]);
        let streams = StreamFront::default().with_checker(Box::new(passwords));
        let front = CombinedFront::new(front, streams);
        let opened = quorate::open(
            &self.settings,
            self.identity,
            self.addresses,
            service,
            front,
            Starter { report_step: tell, stop },
        );
        let (host, net) = match opened {
            Err(error) if error.code == quorate::STOPPED_CODE => return Ok(Exit::Done),
            opened => opened?,
        };
        log_start(host.identity(), self.store);
        let (node, joins) = (host.identity().founding().node, host.identity().joining_role());
        end_on_panic();
        drop(self.peer_server);
        let host = wakes.fold(host, NodeHost::with_wake_source);
        let (reactor, handle) = Reactor::new(net, self.listeners, host)
            .map_err(|error| Problem::io_error("start the reactor", &error))?;
        let serves = serve(handle.clone())?;
        self.admin.set_running(handle.clone(), self.store.name());
        if let Some(role) = joins {
            joining::follow_promotion(handle.clone(), node, role, self.join_addresses)
                .map_err(|error| Problem::io_error("start a thread", &error))?;
        }
        if let Some(keys) = self.key_file {
            plane_keys::reload_in_background(handle.clone(), keys)
                .map_err(|error| Problem::io_error("start a thread", &error))?;
        }
        if let Protection::Tls(trust) = self.settings.protection {
            certificates::reload_in_background(trust)
                .map_err(|error| Problem::io_error("start a thread", &error))?;
        }
        let followed = self.manager.follow_reactor(handle.clone());
        followed.map_err(|error| Problem::io_error("start a thread", &error))?;
        self.stop.set_stopper(Box::new(move || handle.stop()));
        self.announcement.announce();
        let host =
            reactor.run().map_err(|error| Problem::io_error("the reactor failed", &error))?;
        drop(serves);
        host.finish_clean_stop().map_err(quorate::Error::from)?;
        tracing::info!("stopped");
        Ok(Exit::Done)
    }
}

/// Starts a password checker. Each frontend has its own, so that password guessing at one frontend
/// does not delay logins at another.
pub(crate) fn start_passwords() -> Result<Passwords, Problem> {
    Passwords::start().map_err(|error| Problem::io_error("start a thread for passwords", &error))
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
pub(crate) struct AddressAnnouncement {
    node: Option<NodeId>,
    address_line: Option<String>,
    manager: ServiceManager,
}

impl AddressAnnouncement {
    pub(crate) fn new(
        node: Option<NodeId>,
        listeners: &Listeners,
        admin: &Admin,
        manager: ServiceManager,
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
        Self { node, address_line: Some(places), manager }
    }

    pub(crate) fn set_node_id(&mut self, node: NodeId) {
        self.node = Some(node);
    }

    pub(crate) fn announce(&mut self) {
        if let Some(node) = self.node
            && let Some(places) = self.address_line.take()
        {
            let line = format!("ready node={node} {places}");
            let manager = self.manager.clone();
            // A full pipe must not block the node.
            let say = move || {
                print_line(&line);
                manager.report_ready();
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
        if !server::is_admin_thread() && !lsm::gets_over_panics_here() {
            process::exit(Exit::Failed as i32);
        }
    }));
}
