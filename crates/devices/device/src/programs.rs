//! Execution of the two programs of a device: by the reference, in this thread, or by separate
//! processes ([`crate::boxed`]).

use quorate_offload::{
    Acceptor, Cells, Coordinator, Counters, Out, Port, out::FRAMES_MAX, port::Program,
};

use crate::{process::Leash, settings::Settings};

/// A coordinator and an acceptor, apart: who joins them hands on what one says to the other.
pub trait Programs: Send {
    /// Passes one frame to one of them; `sent` is called with all that it sends.
    fn step(
        &mut self,
        program: Program,
        from: Port,
        frame: &[u8],
        sent: &mut dyn FnMut(Port, &[u8]),
    );

    /// Makes both forget everything, as after a power cycle ([offload-9]).
    fn forget(&mut self);

    /// Returns how often they lost their memory by themselves; never decreases.
    fn forgot(&self) -> u64 {
        0
    }

    /// Gives what ends a step that waits, when it is dropped; once, if steps wait at all.
    fn leash(&mut self) -> Option<Leash> {
        None
    }

    /// Returns the counts of frames by reason: the acceptor's, the coordinator's. Unknown counts
    /// are zero.
    fn counters(&self) -> [Counters; 2];
}

/// The reference programs.
#[derive(Debug)]
pub struct Reference {
    acceptor: Acceptor<'static>,
    coordinator: Coordinator<'static>,
    buffer: Vec<u8>,
}

impl Reference {
    /// Without a boot, not armed, stopped.
    ///
    /// # Panics
    /// If the cells are no power of two, or the room is no room.
    pub fn new(settings: &Settings) -> Self {
        let (setup, routes) = (settings.setup(), settings.routes());
        let cells = || Cells::owned(settings.cells, settings.room);
        Self {
            acceptor: Acceptor::new(setup, routes, cells()),
            coordinator: Coordinator::new(setup, routes, settings.decisions(), cells()),
            // No frame of another length is answered, so it is long enough.
            buffer: vec![0; settings.frame_bytes() * FRAMES_MAX],
        }
    }
}

impl Programs for Reference {
    fn step(
        &mut self,
        program: Program,
        from: Port,
        frame: &[u8],
        sent: &mut dyn FnMut(Port, &[u8]),
    ) {
        let mut out = Out::new(&mut self.buffer);
        match program {
            Program::Acceptor => self.acceptor.step(from, frame, &mut out),
            Program::Coordinator => self.coordinator.step(from, frame, &mut out),
        };
        out.frames().for_each(|(port, frame)| sent(port, frame));
    }

    fn forget(&mut self) {
        self.acceptor.forget();
        self.coordinator.forget();
    }

    fn counters(&self) -> [Counters; 2] {
        [self.acceptor.counters(), self.coordinator.counters()].map(Clone::clone)
    }
}
