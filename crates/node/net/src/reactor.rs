//! The reactor: one thread that owns the sockets and the clock, and fixes the order of work in each
//! turn.

use std::{
    io,
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

use quorate_core::time::Time;
use quorate_replica::{Clock, front::ListenerKind, hops::Hop};

use crate::{
    clients::Clients,
    clock::StartTime,
    cx::{Cx, PeerCx},
    desk::WaitingCallers,
    device::{self, MemberFeed},
    gates::Gates,
    handle::{Handle, Metrics, Notification, ReactorMailbox},
    host::{Host, TurnTimes},
    identity::{Identity, PeerAddress},
    limits::Limits,
    listen::Listeners,
    plane::packets::PacketPlane,
    sources::{Events, Interest, Ready, Source, Sources},
    spin::SpinHistory,
    stats::Stats,
    tcp::peers::Peers,
    threads::Threads,
};

/// Settings of the reactor, constant while it runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    pub identity: Identity,
    /// Nodes of the group; may include this one.
    pub peers: Vec<PeerAddress>,
    pub limits: Limits,
    /// Random seed for retry jitter. Must differ between nodes and between starts.
    pub seed: u64,
}

/// The event loop around a [`Host`].
#[derive(Debug)]
pub struct Reactor<H> {
    host: H,
    sources: Sources,
    gates: Gates,
    peers: Peers,
    clients: Clients,
    waiting_callers: WaitingCallers,
    mailbox: Arc<ReactorMailbox>,
    stats: Stats,
    started_at: StartTime,
    spin_history: SpinHistory,
    /// Latest time at which the host must be polled again.
    host_wake_at: Option<Time>,
    device: Option<MemberFeed>,
    /// Maximum time in milliseconds for accepted work to finish once a stop has been requested.
    stop_ms: u64,
    /// Time at which the reactor stops even with unfinished work, once a stop has been requested.
    stop_deadline: Option<Time>,
    _end: EndGuard,
}

/// Guard that fails the requests of waiting threads when dropped, however the reactor ends.
#[derive(Debug)]
struct EndGuard(Arc<ReactorMailbox>);

impl Drop for EndGuard {
    fn drop(&mut self) {
        self.0.close_mailbox();
    }
}

impl<H: Host> Reactor<H> {
    /// Creates a reactor from the listeners and the host. It does nothing before [`Self::run`].
    pub fn new(
        settings: Settings,
        mut listeners: Listeners,
        mut host: H,
    ) -> io::Result<(Self, Handle)> {
        let Settings { identity, peers, limits, seed } = settings;
        let started = StartTime::now();
        host.set_clock(Clock::new(move || started.elapsed()));
        let mut sources = Sources::new()?;
        let shared = ReactorMailbox::new(limits.waiting_requests_max)?;
        sources.add(shared.wake(), Source::Mail, Interest::READ)?;
        for fd in host.wake_fds() {
            sources.add(fd, Source::Host, Interest::READ)?;
        }
        device::remove_orphaned_devices(identity.cluster);
        let device = match listeners.take_device() {
            Some(bound) => {
                let started = bound.start(&identity, shared.clone())?;
                sources.add(&*started.wakeup, Source::Host, Interest::READ)?;
                host.set_device_source(started.fallback_source);
                Some(started.member_feed)
            }
            None => None,
        };
        let trust = listeners.trust().cloned();
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        let threads = Threads::new(limits.io_threads.thread_count(cpus))?;
        sources.add(threads.wake(), Source::Threads, Interest::READ)?;
        let datagrams = listeners.take_datagrams();
        let packets = datagrams
            .map(|datagrams| PacketPlane::new(datagrams, &identity, seed, &mut sources))
            .transpose()?;
        let reactor = Self {
            host,
            gates: Gates::new(listeners, limits.clone(), &mut sources)?,
            peers: Peers::new(
                identity,
                &peers,
                limits.clone(),
                shared.clone(),
                packets,
                trust.clone(),
                seed,
            ),
            waiting_callers: WaitingCallers::new(limits.waiting_requests_max),
            spin_history: SpinHistory::new(limits.spin),
            device,
            stop_ms: limits.stop_timeout_ms,
            clients: Clients::new(limits, trust, threads),
            sources,
            stats: Stats::default(),
            started_at: started,
            host_wake_at: Some(Time(0)),
            stop_deadline: None,
            _end: EndGuard(shared.clone()),
            mailbox: shared.clone(),
        };
        Ok((reactor, Handle::new(shared)))
    }

    /// Runs turns until a stop is requested and all accepted work is done. Returns the host.
    pub fn run(mut self) -> io::Result<H> {
        let mut events = Events::new();
        while self.turn(&mut events)? {}
        Ok(self.host)
    }

    /// Runs one turn. Returns `false` after the last one. The order follows the design (§5):
    /// received data, the protocol, sends, the log write, output to clients.
    fn turn(&mut self, events: &mut Events) -> io::Result<bool> {
        let began = self.wait_for_events(events)?;
        let now = self.clock();
        self.clients.record_turn(now.time, now.time.since_us(began));
        if let Some(hops) = self.host.hops() {
            hops.stamp(Hop::Wakeup, None);
        }
        self.stats.turns += 1;
        for event in &events.ready {
            self.on_ready(*event, now)?;
        }
        self.with_clients(now, Clients::on_threads);
        self.with_peers(now, Peers::run_timers);
        self.with_clients(now, Clients::run_timers);
        self.gates.reopen(now.time, self.clients.is_full(), &self.sources)?;
        self.with_clients(now, Clients::feed_clients);
        self.host.poll(&mut now.turn(&mut self.peers));
        self.with_peers(now, Peers::adopt_table);
        if let Some(device) = &mut self.device {
            device.set_members(self.peers.literal_addresses());
        }
        let sent = |reactor: &Self| {
            let stats = &reactor.peers.stats;
            stats.peer_bytes_out + stats.datagrams_out
        };
        self.stamp_if_increased(Hop::Sending, sent, |reactor| {
            reactor.with_peers(now, Peers::flush);
        });
        self.host.submit_records(now);
        self.stats.submits += 1;
        let replied = |reactor: &Self| reactor.clients.stats.client_bytes_out;
        self.stamp_if_increased(Hop::Replying, replied, |reactor| {
            reactor.with_clients(now, Clients::flush);
        });
        self.with_clients(now, Clients::close_largest);
        self.host_wake_at = self.host.end_turn(self.time());
        self.answer_questions();
        Ok(!self.is_finished(now))
    }

    /// Calls `run`. If this increased `counted`, stamps the trace point with the time before the
    /// call, because the data left before the call ended.
    fn stamp_if_increased(
        &mut self,
        hop: Hop,
        counted: impl Fn(&Self) -> u64,
        run: impl FnOnce(&mut Self),
    ) {
        let (began, before) = (self.host.hops().map(|hops| hops.now_ns()), counted(self));
        run(self);
        if let Some(at_ns) = began
            && counted(self) > before
            && let Some(hops) = self.host.hops()
        {
            hops.stamp_at(at_ns, hop, None);
        }
    }

    /// Waits for events, and returns the time at which the wait began. Polls as long as polling is
    /// likely to pay off, then sleeps.
    fn wait_for_events(&mut self, events: &mut Events) -> io::Result<Time> {
        let began = self.time();
        let patience_us = self.wait_limit_us(began);
        let spin_us = self.spin_history.spin_time_us(began);
        let spin_us = patience_us.map_or(spin_us, |us| us.min(spin_us));
        self.stats.spins += u64::from(spin_us > 0);
        let mut now = began;
        while now.since_us(began) < spin_us {
            self.stats.calls_wait += 1;
            self.sources.wait(Some(0), events)?;
            if !events.ready.is_empty() || self.clients.threads.has_work() {
                self.stats.spins_ended += 1;
                self.spin_history.record_wait(began, now, false);
                return Ok(began);
            }
            rustix::thread::sched_yield();
            let before = std::mem::replace(&mut now, self.time());
            if self.spin_history.record_yield(now, now.since_us(before)) {
                break;
            }
        }
        let mut left_us = patience_us.map(|us| us.saturating_sub(now.since_us(began)));
        if !self.clients.threads.may_sleep() {
            left_us = Some(0);
        }
        self.stats.calls_wait += 1;
        self.sources.wait(left_us, events)?;
        self.clients.threads.mark_awake();
        if patience_us != Some(0) {
            self.spin_history.record_wait(began, self.time(), true);
        }
        Ok(began)
    }

    fn with_peers<T>(
        &mut self,
        now: TurnTimes,
        act: impl FnOnce(&mut Peers, &mut PeerCx<'_>) -> T,
    ) -> T {
        let mut cx = Cx { now, host: &mut self.host as _, sources: &mut self.sources };
        act(&mut self.peers, &mut cx)
    }

    fn with_clients<T>(
        &mut self,
        now: TurnTimes,
        act: impl FnOnce(&mut Clients, &mut Cx<'_, H>) -> T,
    ) -> T {
        let mut cx = Cx { now, host: &mut self.host, sources: &mut self.sources };
        act(&mut self.clients, &mut cx)
    }

    fn time(&self) -> Time {
        self.started_at.elapsed()
    }

    fn clock(&self) -> TurnTimes {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        TurnTimes {
            time: self.time(),
            wall_ms: u64::try_from(wall.as_millis()).unwrap_or(u64::MAX),
        }
    }

    /// Returns the maximum time to wait for events, in microseconds; `None` for no limit.
    fn wait_limit_us(&self, now: Time) -> Option<u64> {
        // The end of this turn may have created work for the next.
        let place_free = self.gates.are_clients_full() && !self.clients.is_full();
        if place_free || self.peers.has_unsent() || self.clients.has_resumable_clients(&self.host) {
            return Some(0);
        }
        let times = [
            self.host_wake_at,
            self.peers.next_timer_at(),
            self.clients.next_timer_at(),
            self.gates.next_reopen_at(),
            self.stop_deadline,
        ];
        let next = times.into_iter().flatten().min()?;
        Some(next.since_us(now))
    }

    fn on_ready(&mut self, ready: Ready, now: TurnTimes) -> io::Result<()> {
        // The source may have been removed by an earlier event of this turn.
        let Some(source) = self.sources.source_of(ready) else {
            return Ok(());
        };
        match source {
            Source::Mail => self.on_mail(now),
            // `Host::poll` runs in every turn.
            Source::Host => {}
            Source::Threads => self.clients.threads.wake().drain(),
            Source::PeerListener => return self.accept_peers(now),
            Source::ClientListener
            | Source::ClientSocket
            | Source::StreamListener
            | Source::RawListener => return self.accept_clients(source, now),
            Source::Link(link) => self.with_peers(now, |peers, cx| peers.on_ready(link, ready, cx)),
            Source::Datagrams(hears) => {
                let read_write = (ready.is_readable || ready.is_broken, ready.is_writable);
                self.with_peers(now, |peers, cx| peers.on_datagrams(hears, read_write, cx));
            }
            Source::Client(id) => {
                self.with_clients(now, |clients, cx| clients.on_ready(id, ready, cx));
            }
            Source::UnauthenticatedClient(id) => {
                self.with_clients(now, |clients, cx| {
                    clients.on_unauthenticated_ready(id, ready, cx)
                });
            }
        }
        Ok(())
    }

    fn on_mail(&mut self, now: TurnTimes) {
        let mail = self.mailbox.take_mail();
        for news in mail.notifications {
            match news {
                Notification::Resolved(resolved) => self.peers.on_resolved(resolved, now),
                Notification::Keys(file) => self.peers.adopt_key_file(&file, now),
            }
        }
        for command in mail.questions {
            self.waiting_callers.handle_command(command, now, &mut self.host);
        }
        if mail.stop && self.stop_deadline.is_none() {
            self.begin_stop(now);
        }
    }

    fn answer_questions(&mut self) {
        let time = self.time();
        let Self {
            waiting_callers: desk, host, peers, stats, clients, spin_history: spinning, ..
        } = self;
        desk.answer_questions(
            host,
            |mut status| {
                status.notices.extend(peers.notices(time));
                status.choices.extend(peers.why_plane());
                status.choices.extend(spinning.describe_choice(time));
                status.choices.extend(clients.describe_use());
                for peer in &mut status.peers {
                    peer.plane = peers.peer_plane(peer.member.node);
                }
                status
            },
            |mut text| {
                let stats = stats.plus(&peers.stats).plus(&clients.all_stats());
                stats.render(&mut text);
                peers.datagram_metrics(&mut text);
                Metrics { stats, text }
            },
        );
    }

    fn accept_peers(&mut self, now: TurnTimes) -> io::Result<()> {
        let Self { gates, peers, host, sources, stats, .. } = self;
        let accepted = peers.accept(gates.peer_listener(), &mut Cx { now, host, sources });
        if gates.on_peers_accepted(accepted, now.time, sources)? {
            stats.accept_pauses += 1;
        }
        Ok(())
    }

    fn accept_clients(&mut self, which: Source, now: TurnTimes) -> io::Result<()> {
        let Self { gates, clients, host, sources, stats, .. } = self;
        let (listener, door) = match which {
            Source::ClientSocket => (gates.socket_listener(), ListenerKind::Commands),
            Source::StreamListener => (gates.stream_listener(), ListenerKind::Streams),
            Source::RawListener => (gates.raw_stream_listener(), ListenerKind::StreamsRaw),
            _ => (gates.client_listener(), ListenerKind::Commands),
        };
        let Some(listener) = listener else {
            return Ok(());
        };
        let accepted = clients.accept_connections(listener, door, &mut Cx { now, host, sources });
        if gates.on_clients_accepted(accepted, now.time, sources)? {
            stats.accept_pauses += 1;
        }
        Ok(())
    }

    // Stopping.

    fn begin_stop(&mut self, now: TurnTimes) {
        tracing::info!("stopping: finishing accepted requests");
        self.stop_deadline = Some(now.time.plus_ms(self.stop_ms));
        if let Err(error) = self.gates.shut_clients(&mut self.sources) {
            tracing::warn!(%error, "cannot close the listeners");
        }
        self.host.stop(now);
        self.with_clients(now, Clients::stop_reading);
    }

    fn is_finished(&mut self, now: TurnTimes) -> bool {
        let Some(by) = self.stop_deadline else { return false };
        if self.host.is_stopped()
            && !self.peers.has_unsent()
            && self.clients.is_all_output_sent(&mut self.host)
        {
            return true;
        }
        if by <= now.time {
            tracing::warn!("stopped before all accepted requests were finished: out of time");
            return true;
        }
        false
    }
}
