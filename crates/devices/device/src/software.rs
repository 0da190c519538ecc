//! Owner's handle of a device that runs in a thread.

use std::{
    io,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
        mpsc::{SyncSender, TrySendError, sync_channel},
    },
    thread::{self, JoinHandle},
};

use quorate_offload::{
    Counters, Reason,
    port::{Device, DeviceShape, Drained, FrameOrigin, Program},
    reason::COUNTERS,
};

use crate::{
    process::WaitCanceller,
    programs::{DevicePrograms, ReferencePrograms},
    settings::Settings,
    tap::{TapReceiver, tap_channel},
    wake::WakeEvent,
    wire::Wire,
    work::{Message, ReasonCounts, ThreadShared, run_thread},
};

/// Maximum number of calls queued for the thread. Further calls are dropped, and their owner
/// repeats them.
const QUEUED_CALLS_MAX: usize = 4096;

/// A device in user space. Dropping it ends its thread.
pub struct SoftwareDevice {
    settings: Settings,
    /// Queue to the thread. Setting it to `None` makes the thread end.
    messages: Option<SyncSender<Message>>,
    tap: TapReceiver,
    shared: Arc<ThreadShared>,
    thread: Option<JoinHandle<()>>,
    canceller: Option<WaitCanceller>,
    /// Number of the last requested drain, and whether it has been passed to the thread.
    last_drain: (u64, bool),
}

impl SoftwareDevice {
    /// Starts the thread with the reference programs. The thread calls `wake_owner` when there are
    /// frames for the owner or a drain has completed. Panics if the settings are invalid (see
    /// [`ReferencePrograms::new`]).
    pub fn start(
        settings: Settings,
        wire: impl Wire,
        wake_owner: Arc<dyn Fn() + Send + Sync>,
    ) -> io::Result<Self> {
        let programs = Box::new(ReferencePrograms::new(&settings));
        Self::start_with(settings, programs, wire, wake_owner)
    }

    /// Starts the thread with the given programs, which must have been created with the same
    /// settings.
    pub fn start_with(
        settings: Settings,
        mut programs: Box<dyn DevicePrograms>,
        wire: impl Wire,
        wake_owner: Arc<dyn Fn() + Send + Sync>,
    ) -> io::Result<Self> {
        let room = settings.room;
        let fits = room <= quorate_offload::header::ROOM_BYTES_MAX && room.is_multiple_of(8);
        assert!(fits, "a room of {room} bytes");
        assert!(settings.cells.is_power_of_two(), "{} cells", settings.cells);
        let (said, hears) = sync_channel(QUEUED_CALLS_MAX);
        let (filler, taker) = tap_channel(settings.tap_frames);
        let shared = Arc::new(ThreadShared {
            wake: WakeEvent::new()?,
            last_drain_done: AtomicU64::new(0),
            memory_losses: AtomicU64::new(0),
            reason_counts: Mutex::default(),
        });
        let (leash, seen) = (programs.take_canceller(), Arc::clone(&shared));
        let thread = thread::Builder::new().name("device".to_owned());
        let thread = thread.spawn(move || {
            run_thread(&settings, programs, wire, &hears, filler, &seen, &wake_owner);
        })?;
        Ok(Self {
            settings,
            messages: Some(said),
            tap: taker,
            shared,
            thread: Some(thread),
            canceller: leash,
            last_drain: (0, true),
        })
    }

    /// Returns the number of frames for each reason, as of the last time that the thread was idle.
    pub fn counts_per_program(&self) -> ReasonCounts {
        let counted = self.shared.reason_counts.lock();
        counted.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Clears the device's state, as a power cycle does.
    pub fn clear_state(&mut self) {
        self.send_message(Message::ClearState);
    }

    /// Sends a message to the thread. Returns whether it was queued.
    fn send_message(&self, said: Message) -> bool {
        let told = match self.messages.as_ref().map(|to| to.try_send(said)) {
            Some(Ok(())) => true,
            Some(Err(TrySendError::Full(_) | TrySendError::Disconnected(_))) | None => false,
        };
        self.shared.wake.signal();
        told
    }
}

impl Device for SoftwareDevice {
    fn shape(&self) -> DeviceShape {
        self.settings.shape()
    }

    fn put_frame(&mut self, program: Program, frame: &[u8]) {
        self.send_message(Message::Frame(program, frame.to_vec()));
    }

    fn send_to_devices(&mut self, frame: &[u8]) {
        self.send_message(Message::SendToNetwork(frame.to_vec()));
    }

    fn take_frame(&mut self, frame: &mut Vec<u8>) -> Option<(Program, FrameOrigin)> {
        self.tap.take(frame)
    }

    fn begin_drain(&mut self) {
        let number = self.last_drain.0 + 1;
        self.last_drain = (number, self.send_message(Message::Drain(number)));
    }

    fn drain_progress(&mut self) -> Drained {
        // Acquire: once the drain is seen as completed, all frames that the thread queued before
        // can be taken.
        if self.shared.last_drain_done.load(Ordering::Acquire) >= self.last_drain.0 {
            return Drained::Complete;
        }
        if self.thread.as_ref().is_none_or(JoinHandle::is_finished) {
            return Drained::Unknown;
        }
        if !self.last_drain.1 {
            self.last_drain.1 = self.send_message(Message::Drain(self.last_drain.0));
        }
        Drained::InProgress
    }

    fn lost_frame_count(&self) -> u64 {
        self.tap.lost()
    }

    fn memory_loss_count(&self) -> u64 {
        self.shared.memory_losses.load(Ordering::Acquire)
    }

    fn reason_counts(&mut self) -> [u64; COUNTERS] {
        let counted = self.counts_per_program();
        let mut all = std::array::from_fn(|number| {
            let number = u32::try_from(number).unwrap_or(u32::MAX);
            let of = |counters: &Counters| counters.count_numbered(number).unwrap_or(0);
            of(&counted.acceptor) + of(&counted.coordinator)
        });
        all[Reason::Source as usize] += counted.dropped_strangers;
        all
    }
}

impl Drop for SoftwareDevice {
    fn drop(&mut self) {
        (self.messages, self.canceller) = (None, None);
        self.shared.wake.signal();
        if let Some(thread) = self.thread.take() {
            // If the thread panicked, there is no caller left to report that to.
            let _ = thread.join();
        }
    }
}
