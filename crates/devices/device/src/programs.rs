//! Runs a device's two programs: as the reference implementation in this thread, or as separate
//! processes ([`crate::boxed`]).

use quorate_offload::{
    Acceptor, Cells, Coordinator, Counters, OutputFrames, Port, out::FRAMES_MAX, port::Program,
};

use crate::{process::WaitCanceller, settings::Settings};

/// A coordinator and an acceptor. The caller passes frames between them.
pub trait DevicePrograms: Send {
    /// Passes one frame to a program, and calls `sent` for each frame that the program sends.
    fn step(
        &mut self,
        program: Program,
        from: Port,
        frame: &[u8],
        sent: &mut dyn FnMut(Port, &[u8]),
    );

    /// Clears the state of both programs, as a power cycle does ([offload-9]).
    fn clear_state(&mut self);

    /// Returns how often the programs lost their memory unexpectedly. Never decreases.
    fn memory_losses(&self) -> u64 {
        0
    }

    /// Returns the leash whose drop ends waiting steps. `None` if steps never wait, or after the
    /// first call.
    fn take_canceller(&mut self) -> Option<WaitCanceller> {
        None
    }

    /// Returns the number of frames for each reason, first the acceptor's, then the coordinator's.
    /// Numbers that are not known are zero.
    fn counters(&self) -> [Counters; 2];
}

#[derive(Debug)]
pub struct ReferencePrograms {
    acceptor: Acceptor<'static>,
    coordinator: Coordinator<'static>,
    buffer: Vec<u8>,
}

impl ReferencePrograms {
    /// Creates programs without a boot, neither armed nor started. Panics if the number of cells is
    /// not a power of two, or the size of the value area is invalid.
    pub fn new(settings: &Settings) -> Self {
        let (setup, routes) = (settings.setup(), settings.peer_routes());
        let cells = || Cells::allocate(settings.cells, settings.room);
        Self {
            acceptor: Acceptor::new(setup, routes, cells()),
            coordinator: Coordinator::new(setup, routes, settings.decision_routes(), cells()),
            // The buffer suffices, because only frames of this length cause responses.
            buffer: vec![0; settings.frame_bytes() * FRAMES_MAX],
        }
    }
}

impl DevicePrograms for ReferencePrograms {
    fn step(
        &mut self,
        program: Program,
        from: Port,
        frame: &[u8],
        sent: &mut dyn FnMut(Port, &[u8]),
    ) {
        let mut out = OutputFrames::new(&mut self.buffer);
        match program {
            Program::Acceptor => self.acceptor.step(from, frame, &mut out),
            Program::Coordinator => self.coordinator.step(from, frame, &mut out),
        };
        out.frames().for_each(|(port, frame)| sent(port, frame));
    }

    fn clear_state(&mut self) {
        self.acceptor.clear_state();
        self.coordinator.clear_state();
    }

    fn counters(&self) -> [Counters; 2] {
        [self.acceptor.counters(), self.coordinator.counters()].map(Clone::clone)
    }
}
