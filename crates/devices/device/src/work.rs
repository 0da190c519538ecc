//! The device thread. In each turn it handles the owner's calls first, and then a few frames from
//! the network.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicU64, Ordering},
    mpsc::{Receiver, TryRecvError},
};

use quorate_offload::{
    Counters, Encapsulation, Type,
    header::HEADER_BYTES,
    port::{FrameOrigin, Program},
};

use crate::{
    host::{FrameSink, Host},
    programs::DevicePrograms,
    settings::Settings,
    tap::TapSender,
    wake::WakeEvent,
    wire::{ArrivedFrames, Wire},
};

/// Maximum number of the owner's calls handled before frames from the network.
const CALLS_PER_TURN_MAX: usize = 256;

/// A message from the owner's handle to the thread.
#[derive(Debug)]
pub(crate) enum Message {
    Frame(Program, Vec<u8>),
    /// Send this frame to the network.
    SendToNetwork(Vec<u8>),
    /// Report this number once all steps that began before have ended.
    Drain(u64),
    /// Clear all state, as a power cycle does.
    ClearState,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReasonCounts {
    pub acceptor: Counters,
    pub coordinator: Counters,
    /// Number of frames from senders that are not accepted ([`crate::Wire::dropped_strangers`]).
    pub dropped_strangers: u64,
}

/// State that the thread and its handle share in addition to their queues.
#[derive(Debug)]
pub(crate) struct ThreadShared {
    pub(crate) wake: WakeEvent,
    /// Number of the last completed drain. Stored after all frames of earlier steps have been
    /// queued.
    pub(crate) last_drain_done: AtomicU64,
    /// Number of times that the programs lost their memory unexpectedly.
    pub(crate) memory_losses: AtomicU64,
    /// Number of frames for each reason, as of the last time that the thread was idle.
    pub(crate) reason_counts: Mutex<ReasonCounts>,
}

/// The destinations of a host's frames: the owner's queue and the network.
struct FrameSinks<'a, W> {
    wire: &'a mut W,
    tap: &'a mut TapSender,
    form: Encapsulation,
}

impl<W: Wire> FrameSink for FrameSinks<'_, W> {
    fn send_to_owner(&mut self, program: Program, came: FrameOrigin, frame: &[u8]) {
        let header = frame.get(self.form.header_offset()..self.form.header_offset() + HEADER_BYTES);
        // The upper half of the header's second byte is the type.
        let kind = header.map_or(0, |header| header[1] >> 4);
        let news = [Type::Phase2b as u8, Type::Decided as u8].contains(&kind);
        self.tap.put((program, came), frame, !news);
    }

    fn send_to_network(&mut self, frame: &[u8]) {
        self.wire.send(frame);
    }
}

/// Runs the thread until the handle is dropped.
pub(crate) fn run_thread(
    settings: &Settings,
    programs: Box<dyn DevicePrograms>,
    mut wire: impl Wire,
    said: &Receiver<Message>,
    mut tap: TapSender,
    shared: &ThreadShared,
    wake_owner: &Arc<dyn Fn() + Send + Sync>,
) {
    let mut host = Host::new(*settings, programs);
    let mut arrived = ArrivedFrames::default();
    loop {
        shared.wake.clear();
        let mut worked = false;
        let mut ways = FrameSinks { wire: &mut wire, tap: &mut tap, form: settings.form };
        for _ in 0..CALLS_PER_TURN_MAX {
            match said.try_recv() {
                Ok(Message::Frame(program, frame)) => {
                    host.step_owner_frame(program, &frame, &mut ways)
                }
                Ok(Message::SendToNetwork(frame)) => ways.send_to_network(&frame),
                Ok(Message::ClearState) => host.clear_state(),
                Ok(Message::Drain(number)) => {
                    shared.last_drain_done.store(number, Ordering::Release);
                    ways.tap.request_wake();
                }
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => return,
            }
            worked = true;
        }
        arrived.clear();
        ways.wire.receive(&mut arrived);
        for frame in arrived.iter() {
            host.step_network_frame(frame, &mut ways);
            worked = true;
        }
        if shared.memory_losses.swap(host.memory_losses(), Ordering::Release)
            != host.memory_losses()
        {
            tap.request_wake();
        }
        if tap.take_filled() {
            wake_owner();
        }
        if !worked {
            publish_counts(&host, wire.dropped_strangers(), shared);
            shared.wake.wait_or_readable(wire.readable_fd());
        }
    }
}

fn publish_counts(host: &Host, strangers: u64, shared: &ThreadShared) {
    let [acceptor, coordinator] = host.counters();
    let mut counted = shared.reason_counts.lock().unwrap_or_else(PoisonError::into_inner);
    *counted = ReasonCounts { acceptor, coordinator, dropped_strangers: strangers };
}
