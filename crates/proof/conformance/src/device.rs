//! Devices that run in this process, including the reference programs.

use quorate_offload::{
    Acceptor, Cell, Cells, Coordinator, Counters, Host, OutputFrames, Port, Reason, State, Verdict,
    out::FRAMES_MAX,
};

use crate::{
    frames::{DeviceSize, ProgramRoutes},
    program::Program,
    vectors::{Event, FRAME_BYTES_MAX, SentFrame},
};

/// Device under test.
pub trait Device {
    /// Processes one event. Returns the frames that the device sends, or an error if its program
    /// fails.
    fn step(&mut self, event: &Event) -> Result<Vec<SentFrame>, String>;
}

enum ReferenceProgram {
    Acceptor(Box<Acceptor<'static>>),
    Coordinator(Box<Coordinator<'static>>),
    Host(Box<Host<'static>>),
}

/// Device that runs the reference programs.
pub struct Reference {
    program: ReferenceProgram,
    /// Buffers for the frames that the device sends, and for messages between the programs of a
    /// host.
    buffers: [Vec<u8>; 3],
}

impl Reference {
    /// Creates a device with the dimensions that the vectors use.
    pub fn new(program: Program) -> Self {
        Self::with_size(program, DeviceSize::VECTORS)
    }

    /// Creates a device with the given dimensions that has not booted. Leaks its memory, because a
    /// process creates only a few devices.
    pub fn with_size(program: Program, size: DeviceSize) -> Self {
        let cells = || {
            Cells::new(
                Vec::leak(vec![Cell::EMPTY; size.cell_count]),
                Vec::leak(vec![0; size.cell_count * size.room_bytes]),
                size.room_bytes,
            )
        };
        let (setup, ways) = (size.setup(), ProgramRoutes::for_program(program));
        let acceptor = || Acceptor::new(setup, ways.votes, cells());
        let coordinator = || Coordinator::new(setup, ways.proposals, ways.decisions, cells());
        Self {
            program: match program {
                Program::Acceptor => ReferenceProgram::Acceptor(Box::new(acceptor())),
                Program::Coordinator => ReferenceProgram::Coordinator(Box::new(coordinator())),
                Program::Host => {
                    ReferenceProgram::Host(Box::new(Host::new(coordinator(), acceptor())))
                }
            },
            buffers: [(); 3].map(|()| vec![0; FRAMES_MAX * FRAME_BYTES_MAX]),
        }
    }

    fn acceptor(&self) -> Option<&Acceptor<'static>> {
        match &self.program {
            ReferenceProgram::Acceptor(acceptor) => Some(acceptor),
            ReferenceProgram::Host(host) => Some(host.acceptor()),
            ReferenceProgram::Coordinator(_) => None,
        }
    }

    fn coordinator(&self) -> Option<&Coordinator<'static>> {
        match &self.program {
            ReferenceProgram::Coordinator(coordinator) => Some(coordinator),
            ReferenceProgram::Host(host) => Some(host.coordinator()),
            ReferenceProgram::Acceptor(_) => None,
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
    pub fn frame_count(&self, reason: Reason) -> u64 {
        let acceptor = self.acceptor().map(Acceptor::counters);
        let counters = [acceptor, self.coordinator().map(Coordinator::counters)];
        let counters: [Option<&Counters>; 2] = counters;
        counters.iter().flatten().map(|all| all.count_of(reason)).sum()
    }

    /// Returns the ring cell that stores a slot. It belongs to the coordinator if the device has
    /// one, else to the acceptor.
    pub fn ring_cell(&self, slot: u64) -> Option<Cell> {
        let held = match self.coordinator() {
            Some(coordinator) => coordinator.stored_proposal(slot),
            None => self.acceptor()?.vote(slot),
        };
        held.map(|(cell, _)| *cell)
    }
}

impl Device for Reference {
    fn step(&mut self, event: &Event) -> Result<Vec<SentFrame>, String> {
        let Event::Frame(port, frame) = event else {
            match &mut self.program {
                ReferenceProgram::Acceptor(acceptor) => acceptor.clear_state(),
                ReferenceProgram::Coordinator(coordinator) => coordinator.clear_state(),
                ReferenceProgram::Host(host) => host.clear_state(),
            }
            return Ok(Vec::new());
        };
        let [mut out, mut asked, mut answered] =
            self.buffers.each_mut().map(|bytes| OutputFrames::new(bytes));
        let verdict = match &mut self.program {
            ReferenceProgram::Acceptor(acceptor) => acceptor.step(*port, frame, &mut out),
            ReferenceProgram::Coordinator(coordinator) => coordinator.step(*port, frame, &mut out),
            ReferenceProgram::Host(host) => {
                host.step(*port, frame, &mut out, &mut asked, &mut answered)
            }
        };
        if verdict == Verdict::PassOn {
            return Ok(vec![(port.opposite(), frame.clone())]);
        }
        let frames = out.frames().map(|(port, frame)| (port, frame.to_vec()));
        Ok(frames.collect::<Vec<(Port, Vec<u8>)>>())
    }
}
