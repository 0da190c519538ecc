//! Devices that run in this process, and the reference programs as one of them.

use quorate_offload::{
    Acceptor, Cell, Cells, Coordinator, Counters, Host, Out, Port, Reason, State, Verdict,
    out::FRAMES_MAX,
};

use crate::{
    frames::{Size, Ways},
    program::Program,
    vectors::{Event, FRAME_BYTES_MAX, Sent},
};

/// Takes events one by one.
pub trait Device {
    /// Processes one event; returns the frames sent, or the fault of its program.
    fn step(&mut self, event: &Event) -> Result<Vec<Sent>, String>;
}

enum Running {
    Acceptor(Box<Acceptor<'static>>),
    Coordinator(Box<Coordinator<'static>>),
    Host(Box<Host<'static>>),
}

/// A reference program, on a ring of 64 cells if nothing else is said.
pub struct Reference {
    running: Running,
    /// For what it sends, and for what a host says inside.
    buffers: [Vec<u8>; 3],
}

impl Reference {
    /// As the vectors want it.
    pub fn new(program: Program) -> Self {
        Self::of(program, Size::VECTORS)
    }

    /// Without a boot. Its memory is never given back: there are few of them in a process.
    pub fn of(program: Program, size: Size) -> Self {
        let cells = || {
            Cells::new(
                Vec::leak(vec![Cell::EMPTY; size.cells]),
                Vec::leak(vec![0; size.cells * size.room]),
                size.room,
            )
        };
        let (setup, ways) = (size.setup(), Ways::of(program));
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

    /// Returns the state of one of its programs, for the makers of frames.
    ///
    /// # Panics
    /// If it has no such program.
    pub fn state(&self, program: Program) -> State {
        let state = match program {
            Program::Acceptor => self.acceptor().map(Acceptor::state),
            Program::Coordinator => self.coordinator().map(Coordinator::state),
            Program::Host => None,
        };
        state.expect("a program of it")
    }

    /// Frames that had this end, of all its programs.
    pub fn counted(&self, reason: Reason) -> u64 {
        let acceptor = self.acceptor().map(Acceptor::counters);
        let counters = [acceptor, self.coordinator().map(Coordinator::counters)];
        let counters: [Option<&Counters>; 2] = counters;
        counters.iter().flatten().map(|all| all.of(reason)).sum()
    }

    /// Returns the cell of a slot, the coordinator's if it has one.
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
