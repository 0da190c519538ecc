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
    port::{Device, Drained, FrameOrigin, Program, Shape},
    reason::COUNTERS,
};

use crate::{
    process::Leash,
    programs::{Programs, Reference},
    settings::Settings,
    tap::{Taker, tap},
    wake::Wake,
    wire::Wire,
    work::{Counted, Message, Shared, work},
};

/// Maximum number of calls queued for the thread. Further calls are dropped, and their owner
/// repeats them.
const CALLS_MAX: usize = 4096;

/// A device in user space. Dropping it ends its thread.
pub struct Software {
    settings: Settings,
    /// Queue to the thread. Setting it to `None` makes the thread end.
    said: Option<SyncSender<Message>>,
    tap: Taker,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    leash: Option<Leash>,
    /// Number of the last requested drain, and whether it has been passed to the thread.
    drain: (u64, bool),
}

impl Software {
    /// Starts the thread with the reference programs. The thread calls `wake_owner` when there are
    /// frames for the owner or a drain has completed. Panics if the settings are invalid (see
    /// [`Reference::new`]).
    pub fn start(
        settings: Settings,
        wire: impl Wire,
        wake_owner: Arc<dyn Fn() + Send + Sync>,
    ) -> io::Result<Self> {
        let programs = Box::new(Reference::new(&settings));
        Self::start_with(settings, programs, wire, wake_owner)
    }

    /// Starts the thread with the given programs, which must have been created with the same
    /// settings.
    pub fn start_with(
        settings: Settings,
        mut programs: Box<dyn Programs>,
        wire: impl Wire,
        wake_owner: Arc<dyn Fn() + Send + Sync>,
    ) -> io::Result<Self> {
        let room = settings.room;
        let fits = room <= quorate_offload::header::ROOM_BYTES_MAX && room.is_multiple_of(8);
        assert!(fits, "a room of {room} bytes");
        assert!(settings.cells.is_power_of_two(), "{} cells", settings.cells);
        let (said, hears) = sync_channel(CALLS_MAX);
        let (filler, taker) = tap(settings.tap_frames);
        let shared = Arc::new(Shared {
            wake: Wake::new()?,
            drained: AtomicU64::new(0),
            forgot: AtomicU64::new(0),
            counted: Mutex::default(),
        });
        let (leash, seen) = (programs.leash(), Arc::clone(&shared));
        let thread = thread::Builder::new().name("device".to_owned());
        let thread = thread.spawn(move || {
            work(&settings, programs, wire, &hears, filler, &seen, &wake_owner);
        })?;
        Ok(Self {
            settings,
            said: Some(said),
            tap: taker,
            shared,
            thread: Some(thread),
            leash,
            drain: (0, true),
        })
    }

    /// Returns the number of frames for each reason, as of the last time that the thread was idle.
    pub fn counted(&self) -> Counted {
        let counted = self.shared.counted.lock();
        counted.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Clears the device's state, as a power cycle does.
    pub fn forget(&mut self) {
        self.say(Message::Forget);
    }

    /// Sends a message to the thread. Returns whether it was queued.
    fn say(&self, said: Message) -> bool {
        let told = match self.said.as_ref().map(|to| to.try_send(said)) {
            Some(Ok(())) => true,
            Some(Err(TrySendError::Full(_) | TrySendError::Disconnected(_))) | None => false,
        };
        self.shared.wake.signal();
        told
    }
}

impl Device for Software {
    fn shape(&self) -> Shape {
        self.settings.shape()
    }

    fn put(&mut self, program: Program, frame: &[u8]) {
        self.say(Message::Frame(program, frame.to_vec()));
    }

    fn send(&mut self, frame: &[u8]) {
        self.say(Message::Sent(frame.to_vec()));
    }

    fn take(&mut self, frame: &mut Vec<u8>) -> Option<(Program, FrameOrigin)> {
        self.tap.take(frame)
    }

    fn drain(&mut self) {
        let number = self.drain.0 + 1;
        self.drain = (number, self.say(Message::Drain(number)));
    }

    fn drained(&mut self) -> Drained {
        // Acquire: once the drain is seen as completed, all frames that the thread queued before
        // can be taken.
        if self.shared.drained.load(Ordering::Acquire) >= self.drain.0 {
            return Drained::Over;
        }
        if self.thread.as_ref().is_none_or(JoinHandle::is_finished) {
            return Drained::Unknown;
        }
        if !self.drain.1 {
            self.drain.1 = self.say(Message::Drain(self.drain.0));
        }
        Drained::NotYet
    }

    fn lost(&self) -> u64 {
        self.tap.lost()
    }

    fn memory_losses(&self) -> u64 {
        self.shared.forgot.load(Ordering::Acquire)
    }

    fn refused(&mut self) -> [u64; COUNTERS] {
        let counted = self.counted();
        let mut all = std::array::from_fn(|number| {
            let number = u32::try_from(number).unwrap_or(u32::MAX);
            let of = |counters: &Counters| counters.at(number).unwrap_or(0);
            of(&counted.acceptor) + of(&counted.coordinator)
        });
        all[Reason::Source as usize] += counted.strangers;
        all
    }
}

impl Drop for Software {
    fn drop(&mut self) {
        (self.said, self.leash) = (None, None);
        self.shared.wake.signal();
        if let Some(thread) = self.thread.take() {
            // If the thread panicked, there is no caller left to report that to.
            let _ = thread.join();
        }
    }
}
