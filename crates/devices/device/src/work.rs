//! The device thread. In each turn it handles the owner's calls first, and then a few frames from
//! the network.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicU64, Ordering},
    mpsc::{Receiver, TryRecvError},
};

use quorate_offload::{
    Counters, Form, Type,
    header::HEADER_BYTES,
    port::{FrameOrigin, Program},
};

use crate::{
    host::{Host, Sink},
    programs::Programs,
    settings::Settings,
    tap::Filler,
    wake::Wake,
    wire::{Arrived, Wire},
};

/// Maximum number of the owner's calls handled before frames from the network.
const CALLS_MAX: usize = 256;

/// A message from the owner's handle to the thread.
#[derive(Debug)]
pub(crate) enum Message {
    Frame(Program, Vec<u8>),
    /// Send this frame to the network.
    Sent(Vec<u8>),
    /// Report this number once all steps that began before have ended.
    Drain(u64),
    /// Clear all state, as a power cycle does.
    Forget,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    pub acceptor: Counters,
    pub coordinator: Counters,
    /// Number of frames from senders that are not accepted ([`crate::Wire::strangers`]).
    pub strangers: u64,
}

/// State that the thread and its handle share in addition to their queues.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) wake: Wake,
    /// Number of the last completed drain. Stored after all frames of earlier steps have been
    /// queued.
    pub(crate) drained: AtomicU64,
    /// Number of times that the programs lost their memory unexpectedly.
    pub(crate) forgot: AtomicU64,
    /// Number of frames for each reason, as of the last time that the thread was idle.
    pub(crate) counted: Mutex<Counted>,
}

/// The destinations of a host's frames: the owner's queue and the network.
struct FrameSinks<'a, W> {
    wire: &'a mut W,
    tap: &'a mut Filler,
    form: Form,
}

impl<W: Wire> Sink for FrameSinks<'_, W> {
    fn owner(&mut self, program: Program, came: FrameOrigin, frame: &[u8]) {
        let header = frame.get(self.form.header_at()..self.form.header_at() + HEADER_BYTES);
        // The upper half of the header's second byte is the type.
        let kind = header.map_or(0, |header| header[1] >> 4);
        let news = [Type::Phase2b as u8, Type::Decided as u8].contains(&kind);
        self.tap.put((program, came), frame, !news);
    }

    fn network(&mut self, frame: &[u8]) {
        self.wire.send(frame);
    }
}

/// Runs the thread until the handle is dropped.
pub(crate) fn work(
    settings: &Settings,
    programs: Box<dyn Programs>,
    mut wire: impl Wire,
    said: &Receiver<Message>,
    mut tap: Filler,
    shared: &Shared,
    wake_owner: &Arc<dyn Fn() + Send + Sync>,
) {
    let mut host = Host::new(*settings, programs);
    let mut arrived = Arrived::default();
    loop {
        shared.wake.drain();
        let mut worked = false;
        let mut ways = FrameSinks { wire: &mut wire, tap: &mut tap, form: settings.form };
        for _ in 0..CALLS_MAX {
            match said.try_recv() {
                Ok(Message::Frame(program, frame)) => host.put(program, &frame, &mut ways),
                Ok(Message::Sent(frame)) => ways.network(&frame),
                Ok(Message::Forget) => host.forget(),
                Ok(Message::Drain(number)) => {
                    shared.drained.store(number, Ordering::Release);
                    ways.tap.fill();
                }
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => return,
            }
            worked = true;
        }
        arrived.clear();
        ways.wire.receive(&mut arrived);
        for frame in arrived.iter() {
            host.arrive(frame, &mut ways);
            worked = true;
        }
        if shared.forgot.swap(host.forgot(), Ordering::Release) != host.forgot() {
            tap.fill();
        }
        if tap.take_filled() {
            wake_owner();
        }
        if !worked {
            publish(&host, wire.strangers(), shared);
            shared.wake.wait(wire.socket());
        }
    }
}

fn publish(host: &Host, strangers: u64, shared: &Shared) {
    let [acceptor, coordinator] = host.counters();
    let mut counted = shared.counted.lock().unwrap_or_else(PoisonError::into_inner);
    *counted = Counted { acceptor, coordinator, strangers };
}
