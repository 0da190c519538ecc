//! Devices that run in this process, including the reference programs.

use quorate_offload::{
    Acceptor, Cell, Cells, Coordinator, Counters, Host, Out, Port, Reason, State, Verdict,
    out::FRAMES_MAX,
};

use crate::{
    frames::{ProgramRoutes, Size},
    program::Program,
    vectors::{Event, FRAME_BYTES_MAX, Sent},
};

/// Device under test.
pub trait Device {
    /// Processes one event. Returns the frames that the device sends, or an error if its program
    /// fails.
    fn step(&mut self, event: &Event) -> Result<Vec<Sent>, String>;
}

enum Running {
    Acceptor(Box<Acceptor<'static>>),
    Coordinator(Box<Coordinator<'static>>),
    Host(Box<Host<'static>>),
}

/// Device that runs the reference programs.
pub struct Reference {
    running: Running,
    /// Buffers for the frames that the device sends, and for messages between the programs of a
    /// host.
    buffers: [Vec<u8>; 3],
}

impl Reference {
    /// Creates a device with the dimensions that the vectors use.
    pub fn new(program: Program) -> Self {
        Self::of(program, Size::VECTORS)
    }

    /// Creates a device with the given dimensions that has not booted. Leaks its memory, because a
    /// process creates only a few devices.
    pub fn of(program: Program, size: Size) -> Self {
        let cells = || {
            Cells::new(
                Vec::leak(vec![Cell::EMPTY; size.cells]),
                Vec::leak(vec![0; size.cells * size.room]),
                size.room,
            )
        };
        let (setup, ways) = (size.setup(), ProgramRoutes::of(program));
        let acceptor = || Acceptor::new(setup, ways.votes, cells());
        let coordinator = || Coordinator::new(setup, ways.proposals, ways.decisions, cells());
        Self {
            running: match program {
                Program::Acceptor => Running::Acceptor(Box::new(acceptor())),
                Program::Coordinator => Running::Coordinator(Box::new(coordinator())),
                Program::Host => Running::Host(Box::new(Host::new(coordinator(), acceptor()))),
            },
            buffers: [(); 3].map(|()| vec![0; FRAMES_MAX * FRAME_BYTES_MAX]),
        }
    }

    fn acceptor(&self) -> Option<&Acceptor<'static>> {
        match &self.running {
            Running::Acceptor(acceptor) => Some(acceptor),
            Running::Host(host) => Some(host.acceptor()),
            Running::Coordinator(_) => None,
        }
    }

    fn coordinator(&self) -> Option<&Coordinator<'static>> {
        match &self.running {
            Running::Coordinator(coordinator) => Some(coordinator),
            Running::Host(host) => Some(host.coordinator()),
            Running::Acceptor(_) => None,
        }
    }

    /// Returns the state of one program of the device, for generating frames.
    ///
    /// # Panics
    ///
    /// Panics if the device does not run the program.
    pub fn state(&self, program: Program) -> State {
        let state = match program {
            Program::Acceptor => self.acceptor().map(Acceptor::state),
            Program::Coordinator => self.coordinator().map(Coordinator::state),
            Program::Host => None,
        };
        state.expect("a program of it")
    }

    /// Returns the number of frames whose outcome was `reason`, summed over the device's programs.
    pub fn counted(&self, reason: Reason) -> u64 {
        let acceptor = self.acceptor().map(Acceptor::counters);
        let counters = [acceptor, self.coordinator().map(Coordinator::counters)];
        let counters: [Option<&Counters>; 2] = counters;
        counters.iter().flatten().map(|all| all.of(reason)).sum()
    }

    /// Returns the ring cell that stores a slot. It belongs to the coordinator if the device has
    /// one, else to the acceptor.
    pub fn held(&self, slot: u64) -> Option<Cell> {
        let held = match self.coordinator() {
            Some(coordinator) => coordinator.proposal(slot),
            None => self.acceptor()?.vote(slot),
        };
        held.map(|(cell, _)| *cell)
    }
}

impl Device for Reference {
    fn step(&mut self, event: &Event) -> Result<Vec<Sent>, String> {
        let Event::Frame(port, frame) = event else {
            match &mut self.running {
                Running::Acceptor(acceptor) => acceptor.forget(),
                Running::Coordinator(coordinator) => coordinator.forget(),
                Running::Host(host) => host.forget(),
            }
            return Ok(Vec::new());
        };
        let [mut out, mut asked, mut answered] =
            self.buffers.each_mut().map(|bytes| Out::new(bytes));
        let verdict = match &mut self.running {
            Running::Acceptor(acceptor) => acceptor.step(*port, frame, &mut out),
            Running::Coordinator(coordinator) => coordinator.step(*port, frame, &mut out),
            Running::Host(host) => host.step(*port, frame, &mut out, &mut asked, &mut answered),
        };
        if verdict == Verdict::Pass {
            return Ok(vec![(port.other(), frame.clone())]);
        }
        let frames = out.frames().map(|(port, frame)| (port, frame.to_vec()));
        Ok(frames.collect::<Vec<(Port, Vec<u8>)>>())
    }
}
