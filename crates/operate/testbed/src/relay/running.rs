//! Moves packets between devices, each at its arrival time, on a single thread with epoll that
//! never blocks on a device.

use std::{
    io,
    net::Ipv4Addr,
    num::NonZeroU64,
    os::fd::OwnedFd,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use rustix::{
    event::epoll::{self, CreateFlags, EventData, EventFlags},
    process::{getpriority_process, setpriority_process},
};

use crate::relay::{
    alarm::EpollTimer,
    device::TunDevice,
    link::{LinkParameters, Nanos},
    packet,
    wire::{LinkNetwork, PacketCounts},
};

/// Maximum length of an IP packet in bytes.
const PACKET_BYTES_MAX: usize = 65_535;
/// Maximum number of packets read from a device before arrivals are checked again.
const READS_PER_TURN: usize = 64;
/// Maximum time until the thread notices that it should stop.
const STOP_CHECK_INTERVAL: Duration = Duration::from_millis(100);
/// Nice value of the relay thread, if permitted, so that other processes do not delay packets.
const NICE_VALUE: i32 = -15;

/// A node of the emulated network, with its device and address.
#[derive(Debug)]
pub struct RelayNode {
    /// Device from which the node's packets are read and to which packets for the node are written.
    pub device: TunDevice,
    pub address: Ipv4Addr,
}

#[derive(Debug, Default)]
struct Shared {
    stop: AtomicBool,
    packet_count: AtomicU64,
    bytes: AtomicU64,
    dropped_count: AtomicU64,
}

/// Running relay with its own thread. Dropping it stops the thread and removes the devices.
#[derive(Debug)]
pub struct Relay {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Relay {
    /// Starts a relay between the nodes. All links obey `law`.
    pub fn start(nodes: Vec<RelayNode>, law: LinkParameters) -> io::Result<Self> {
        let mut running = RelayLoop::new(nodes, law)?;
        let shared = Arc::new(Shared::default());
        let told = Arc::clone(&shared);
        let thread = thread::Builder::new().name("wan".to_owned()).spawn(move || {
            // By default, the kernel adds up to 50 us to every wait.
            let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
            if getpriority_process(None).is_ok_and(|now| now > NICE_VALUE) {
                // On Linux, a priority applies to a thread. `None` means the current one.
                let _ = setpriority_process(None, NICE_VALUE);
            }
            // A device fails only when its namespace, and thus the network, has been removed.
            let _ = running.run(&told);
        })?;
        Ok(Self { shared, thread: Some(thread) })
    }

    pub fn packet_counts(&self) -> PacketCounts {
        PacketCounts {
            packet_count: self.shared.packet_count.load(Ordering::Relaxed),
            bytes: self.shared.bytes.load(Ordering::Relaxed),
            dropped_count: self.shared.dropped_count.load(Ordering::Relaxed),
        }
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct RelayLoop {
    nodes: Vec<RelayNode>,
    network: LinkNetwork,
    epoll: OwnedFd,
    timer: EpollTimer,
    started: Instant,
    buffer: Vec<u8>,
}

impl RelayLoop {
    fn new(nodes: Vec<RelayNode>, law: LinkParameters) -> io::Result<Self> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        for (index, node) in nodes.iter().enumerate() {
            let data = EventData::new_u64(index as u64);
            epoll::add(&epoll, &node.device, data, EventFlags::IN)?;
        }
        Ok(Self {
            network: LinkNetwork::new(nodes.len(), law),
            nodes,
            timer: EpollTimer::add_to_epoll(&epoll)?,
            epoll,
            started: Instant::now(),
            buffer: vec![0; PACKET_BYTES_MAX],
        })
    }

    fn run(&mut self, shared: &Shared) -> io::Result<()> {
        // The timer needs one more event.
        let mut events = Vec::with_capacity(self.nodes.len() + 1);
        while !shared.stop.load(Ordering::Relaxed) {
            self.wait(&mut events)?;
            for event in &events {
                let from = usize::try_from(event.data.u64()).unwrap_or(usize::MAX);
                if from < self.nodes.len() {
                    self.read_packets(from)?;
                }
            }
            self.deliver_arrived();
            let counts = self.network.packet_counts();
            shared.packet_count.store(counts.packet_count, Ordering::Relaxed);
            shared.bytes.store(counts.bytes, Ordering::Relaxed);
            shared.dropped_count.store(counts.dropped_count, Ordering::Relaxed);
        }
        Ok(())
    }

    fn now(&self) -> Nanos {
        Nanos::try_from(self.started.elapsed().as_nanos()).unwrap_or(Nanos::MAX)
    }

    /// Waits until a packet can be read or has arrived.
    fn wait(&self, events: &mut Vec<epoll::Event>) -> io::Result<()> {
        let look = Nanos::try_from(STOP_CHECK_INTERVAL.as_nanos()).unwrap_or(Nanos::MAX);
        let left = self.network.next_arrival_at().map(|at| at.saturating_sub(self.now()));
        let left = left.unwrap_or(look).min(look);
        self.timer.wait(&self.epoll, events, left)
    }

    /// Reads the packets that a node has sent, and records the current time for each.
    fn read_packets(&mut self, from: usize) -> io::Result<()> {
        for _ in 0..READS_PER_TURN {
            let now = self.now();
            let Some(packet) = self.nodes[from].device.read_packet(&mut self.buffer)? else {
                break;
            };
            let Some(address) = packet::destination(packet) else {
                continue;
            };
            let to = self.nodes.iter().position(|node| node.address == address);
            if let Some(to) = to.filter(|to| *to != from) {
                self.network.send_packet(now, from, to, packet);
            }
        }
        Ok(())
    }

    fn deliver_arrived(&mut self) {
        let now = self.now();
        while let Some((to, packet)) = self.network.take_arrived(now) {
            let _ = self.nodes[to].device.write_packet(&packet);
        }
    }
}
