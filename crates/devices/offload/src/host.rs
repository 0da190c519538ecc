//! Coordinator and acceptor at one interface. Each frame goes to the program that handles it, and
//! frames for the multicast group are also processed internally.
//!
//! A station does not receive the frames that it sends to its own group. The host therefore passes
//! the coordinator's proposals to its own acceptor, and the acceptor's votes to its own
//! coordinator, in the same step. Responses stay internal, except for those to the owner. So a step
//! sends no more frames than one program would, and a device that can rewrite only one frame, such
//! as a program in a kernel, never has to send a second one. If the host's own vote completes a
//! decision, a heartbeat informs the other nodes, as after a lost frame ([offload-19]).

use crate::{
    Acceptor, Coordinator, OutputFrames, Port, Setup, Verdict, acceptor,
    admit::{Admitted, parse_frame},
    coordinator,
    port::Program,
};

/// A coordinator and an acceptor with one setup.
///
/// The acceptor counts the frames that neither program handles.
#[derive(Debug)]
pub struct Host<'a> {
    setup: Setup,
    coordinator: Coordinator<'a>,
    acceptor: Acceptor<'a>,
}

impl<'a> Host<'a> {
    /// Combines two programs, keeping their current states. Panics if their setups differ.
    pub fn new(coordinator: Coordinator<'a>, acceptor: Acceptor<'a>) -> Self {
        let setup = *coordinator.setup();
        assert_eq!(setup, *acceptor.setup(), "two places");
        Self { setup, coordinator, acceptor }
    }

    pub const fn coordinator(&self) -> &Coordinator<'a> {
        &self.coordinator
    }

    /// Returns the coordinator, so that its owner can call it directly rather than by frames.
    pub const fn coordinator_mut(&mut self) -> &mut Coordinator<'a> {
        &mut self.coordinator
    }

    pub const fn acceptor(&self) -> &Acceptor<'a> {
        &self.acceptor
    }

    /// Returns the acceptor, so that its owner can call it directly rather than by frames.
    pub const fn acceptor_mut(&mut self) -> &mut Acceptor<'a> {
        &mut self.acceptor
    }

    /// Clears the state of both programs, as a power cycle does ([offload-9]).
    pub fn clear_state(&mut self) {
        self.coordinator.clear_state();
        self.acceptor.clear_state();
    }

    /// Processes one frame. `asked` and `answered` are scratch buffers for internal messages, as
    /// large as `out`.
    pub fn step(
        &mut self,
        from: Port,
        frame: &[u8],
        out: &mut OutputFrames<'_>,
        asked: &mut OutputFrames<'_>,
        answered: &mut OutputFrames<'_>,
    ) -> Verdict {
        let arrived = match parse_frame(&self.setup, from, frame) {
            Ok(arrived) => arrived,
            Err(reason) => return self.acceptor.count_rejected(reason),
        };
        let first = handler_of(&arrived).unwrap_or(Program::Acceptor);
        let verdict = self.step_program(first, &arrived, out);
        self.deliver_to_other_program(out, asked);
        self.deliver_to_other_program(asked, answered);
        out.append_owner_frames(asked);
        out.append_owner_frames(answered);
        verdict
    }

    fn step_program(
        &mut self,
        program: Program,
        arrived: &Admitted<'_>,
        out: &mut OutputFrames<'_>,
    ) -> Verdict {
        match program {
            Program::Acceptor => self.acceptor.on_arrival(arrived, out),
            Program::Coordinator => self.coordinator.on_arrival(arrived, out),
        }
    }

    /// Delivers a program's message to the group to the program of this host that handles it, if
    /// there is one.
    fn deliver_to_other_program(&mut self, said: &OutputFrames<'_>, out: &mut OutputFrames<'_>) {
        out.clear();
        let Some(frame) = said.first_to_group(self.setup.heard_group) else {
            return;
        };
        if let Ok(arrived) = parse_frame(&self.setup, Port::Network, frame)
            && let Some(program) = handler_of(&arrived)
        {
            self.step_program(program, &arrived, out);
        }
    }
}

/// Returns the program that handles a frame, if there is one. No frame is handled by both.
fn handler_of(arrived: &Admitted<'_>) -> Option<Program> {
    if coordinator::is_handled(&arrived.header) {
        Some(Program::Coordinator)
    } else if acceptor::is_handled(&arrived.header) {
        Some(Program::Acceptor)
    } else {
        None
    }
}
