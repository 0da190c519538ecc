//! Devices that run in this process, and the reference programs as one of them.

use quorate_offload::{
    Acceptor, Cell, Cells, Coordinator, Counters, Out, Port, State, Verdict, out::FRAMES_MAX,
};

use crate::{
    frames::{CELLS, FIRST_ROUTE, ROOM, SECOND_ROUTE, route, setup},
    vectors::{Event, FRAME_BYTES_MAX, Sent},
};

/// Which of both programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    /// Votes.
    Acceptor,
    /// Proposes and counts.
    Coordinator,
}

impl Program {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Acceptor, Self::Coordinator];

    /// As commands and files have it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Acceptor => "acceptor",
            Self::Coordinator => "coordinator",
        }
    }

    /// By its name.
    pub fn of(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|program| program.name() == name)
    }
}

/// Takes events one by one.
pub trait Device {
    /// What it sends for one event, or what is wrong with its program.
    fn step(&mut self, event: &Event) -> Result<Vec<Sent>, String>;
}

enum Running {
    Acceptor(Box<Acceptor<'static>>),
    Coordinator(Box<Coordinator<'static>>),
}

/// A reference program on a ring of 64 cells.
pub struct Reference {
    running: Running,
    buffer: Vec<u8>,
}

impl Reference {
    /// Without a boot. Its memory is never given back: there are few of them in a process.
    pub fn new(program: Program) -> Self {
        let cells = Cells::new(
            Vec::leak(vec![Cell::EMPTY; CELLS]),
            Vec::leak(vec![0; CELLS * ROOM]),
            ROOM,
        );
        let (first, second) = (route(FIRST_ROUTE), route(SECOND_ROUTE));
        Self {
            running: match program {
                Program::Acceptor => {
                    Running::Acceptor(Box::new(Acceptor::new(setup(), first, cells)))
                }
                Program::Coordinator => {
                    Running::Coordinator(Box::new(Coordinator::new(setup(), first, second, cells)))
                }
            },
            buffer: vec![0; FRAMES_MAX * FRAME_BYTES_MAX],
        }
    }

    /// How it stands; the makers of frames look at it.
    pub fn state(&self) -> State {
        match &self.running {
            Running::Acceptor(acceptor) => acceptor.state(),
            Running::Coordinator(coordinator) => coordinator.state(),
        }
    }

    /// Frames, by what became of them.
    pub fn counters(&self) -> &Counters {
        match &self.running {
            Running::Acceptor(acceptor) => acceptor.counters(),
            Running::Coordinator(coordinator) => coordinator.counters(),
        }
    }

    /// What a cell holds of a slot.
    pub fn held(&self, slot: u64) -> Option<Cell> {
        let held = match &self.running {
            Running::Acceptor(acceptor) => acceptor.vote(slot),
            Running::Coordinator(coordinator) => coordinator.proposal(slot),
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
            }
            return Ok(Vec::new());
        };
        let mut out = Out::new(&mut self.buffer);
        let verdict = match &mut self.running {
            Running::Acceptor(acceptor) => acceptor.step(*port, frame, &mut out),
            Running::Coordinator(coordinator) => coordinator.step(*port, frame, &mut out),
        };
        if verdict == Verdict::Pass {
            return Ok(vec![(port.other(), frame.clone())]);
        }
        let frames = out.frames().map(|(port, frame)| (port, frame.to_vec()));
        Ok(frames.collect::<Vec<(Port, Vec<u8>)>>())
    }
}
