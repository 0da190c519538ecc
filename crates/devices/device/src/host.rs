//! Coordinator and acceptor combined on one machine. Each also receives the frames of the other,
//! whether addressed to it or to the multicast group.

use std::collections::VecDeque;

use quorate_offload::{
    Address, Counters, Encapsulation, Header, Port, Setup, Type,
    admit::parse_frame,
    header::HEADER_BYTES,
    port::{FrameOrigin, Program},
};

use crate::{programs::DevicePrograms, settings::Settings};

/// A receiver of the frames that the programs send.
pub trait FrameSink {
    /// Handles a frame for the owner.
    fn send_to_owner(&mut self, program: Program, came: FrameOrigin, frame: &[u8]);
    /// Handles a frame for the network.
    fn send_to_network(&mut self, frame: &[u8]);
}

/// Both programs of a device. A step is complete when its call returns.
pub struct Host {
    settings: Settings,
    programs: Box<dyn DevicePrograms>,
    /// Frames that still have to be passed between the programs.
    internal_frames: VecDeque<Vec<u8>>,
    /// Buffers of processed frames, for reuse.
    spare_buffers: Vec<Vec<u8>>,
}

impl Host {
    pub fn new(settings: Settings, programs: Box<dyn DevicePrograms>) -> Self {
        Self { settings, programs, internal_frames: VecDeque::new(), spare_buffers: Vec::new() }
    }

    /// Clears the state of both programs, as a power cycle does ([offload-9]).
    pub fn clear_state(&mut self) {
        self.programs.clear_state();
    }

    /// Returns how often the programs lost their memory unexpectedly.
    pub fn memory_losses(&self) -> u64 {
        self.programs.memory_losses()
    }

    /// Returns the number of frames for each reason, first the acceptor's, then the coordinator's.
    pub fn counters(&self) -> [Counters; 2] {
        self.programs.counters()
    }

    /// Processes a frame from the owner.
    pub fn step_owner_frame(&mut self, program: Program, frame: &[u8], sink: &mut impl FrameSink) {
        self.step(program, (Port::Owner, FrameOrigin::LocalResponse), frame, sink);
        self.run_internal(sink);
    }

    /// Processes a frame from the network.
    pub fn step_network_frame(&mut self, frame: &[u8], sink: &mut impl FrameSink) {
        self.dispatch_frame(frame, FrameOrigin::NetworkResponse, sink);
        self.run_internal(sink);
    }

    /// Passes frames between the programs until none is left. A submit leads to a proposal, a
    /// proposal to a vote, a vote to a decision.
    fn run_internal(&mut self, sink: &mut impl FrameSink) {
        while let Some(frame) = self.internal_frames.pop_front() {
            self.dispatch_frame(&frame, FrameOrigin::LocalResponse, sink);
            self.spare_buffers.push(frame);
        }
    }

    /// Passes a frame to the program that handles it. If neither does, the acceptor counts and
    /// drops the frame.
    fn dispatch_frame(&mut self, frame: &[u8], came: FrameOrigin, sink: &mut impl FrameSink) {
        let from = (Port::Network, came);
        match kind(frame, self.settings.own_address.port) {
            Some(Type::Submit | Type::Phase2b) => {
                self.step(Program::Coordinator, from, frame, sink);
            }
            // Decisions are addressed to learners, and here the owner is the learner.
            Some(Type::Decided) => {
                let setup = self.settings.setup();
                let decisions = Setup { heard_group: self.settings.decision_address.mac, ..setup };
                if [setup, decisions].map(|setup| parse_frame(&setup, Port::Network, frame).is_ok())
                    != [false; 2]
                {
                    sink.send_to_owner(Program::Acceptor, FrameOrigin::Network, frame);
                }
            }
            _ => self.step(Program::Acceptor, from, frame, sink),
        }
    }

    fn step(
        &mut self,
        program: Program,
        (from, came): (Port, FrameOrigin),
        frame: &[u8],
        sink: &mut impl FrameSink,
    ) {
        let Self { settings, programs, internal_frames: inside, spare_buffers: spare } = self;
        programs.step(program, from, frame, &mut |port, frame| {
            if port == Port::Owner {
                return sink.send_to_owner(program, came, frame);
            }
            let to_all = frame.starts_with(&settings.all_hosts.mac);
            let to_own = is_addressed_to(frame, settings.form, &settings.own_address);
            if to_all || to_own {
                let mut copy = spare.pop().unwrap_or_default();
                copy.clear();
                copy.extend_from_slice(frame);
                inside.push_back(copy);
            }
            if to_all || !to_own {
                sink.send_to_network(frame);
            }
        });
    }
}

/// Returns the type of a frame without checking the rest, which the program does.
fn kind(frame: &[u8], port: u16) -> Option<Type> {
    let form = Encapsulation::parse(frame, port).ok()?;
    let header: &[u8; HEADER_BYTES] = frame.get(form.header_offset()..)?.first_chunk()?;
    Header::read(header).map(|header| header.kind)
}

/// Returns whether the destination of a frame is this host.
fn is_addressed_to(frame: &[u8], form: Encapsulation, own: &Address) -> bool {
    let mac = frame.starts_with(&own.mac);
    match form {
        Encapsulation::Raw => mac,
        Encapsulation::Udp => {
            mac && frame.get(30..34) == Some(&own.ip)
                && frame.get(36..38) == Some(&own.port.to_be_bytes())
        }
    }
}

#[cfg(test)]
mod tests {
    use quorate_offload::{Descriptor, PackedBallot, header::COORDINATOR};

    use super::*;
    use crate::programs::ReferencePrograms;

    fn address(last: u8) -> Address {
        Address { mac: [2, 0, 0, 0, 0, last], ip: [10, 0, 0, last], port: 47_100 }
    }

    fn settings() -> Settings {
        Settings {
            group: 7,
            cells: 8,
            room: 32,
            form: Encapsulation::Udp,
            own_address: address(1),
            all_hosts: Address { mac: [3, 0, 0, 0, 0, 9], ..address(9) },
            decision_address: Address { mac: [3, 0, 0, 0, 0, 9], ..address(9) },
            tap_frames: 8,
        }
    }

    /// Types of the sent frames, to the owner and to the network.
    #[derive(Default)]
    struct Left {
        owner: Vec<(Program, FrameOrigin, Type)>,
        network: Vec<Type>,
    }

    impl FrameSink for Left {
        fn send_to_owner(&mut self, program: Program, came: FrameOrigin, frame: &[u8]) {
            // Sent by the owner, or passed on by the device.
            let kind = kind(frame, 47_100).unwrap();
            self.owner.push((program, came, kind));
        }
        fn send_to_network(&mut self, frame: &[u8]) {
            self.network.push(kind(frame, 47_100).unwrap());
        }
    }

    fn call(program: Program, kind: Type, counter: u64) -> Header {
        let mut header = Header::new_submit(7, Descriptor::NONE, 0);
        (header.kind, header.boot) = (kind, 5);
        (header.value.origin_boot, header.value.counter) = (1, counter);
        if program == Program::Coordinator {
            header.flags = COORDINATOR;
        }
        header
    }

    fn put(host: &mut Host, program: Program, header: &Header) -> Left {
        let mut buffer = [0; 200];
        let (owner, own) = (settings().owner(), address(1));
        let frame = Encapsulation::Udp.write_frame(&mut buffer, &owner, &own, header, &[0; 32]);
        let mut left = Left::default();
        host.step_owner_frame(program, frame.unwrap(), &mut left);
        left
    }

    /// After a submit, the proposal, the vote and the decision are sent to the network, and each is
    /// also processed internally.
    #[test]
    fn broadcast_frames_are_sent_and_also_processed_locally() {
        let mut host = Host::new(settings(), Box::new(ReferencePrograms::new(&settings())));
        let [voter, giver] = Program::ALL;
        for program in Program::ALL {
            put(&mut host, program, &call(program, Type::Boot, 1));
        }
        let mut arm = call(voter, Type::Arm, 2);
        (arm.ballot, arm.slot) = (PackedBallot(9), 1);
        let done = [(voter, FrameOrigin::LocalResponse, Type::Done)];
        assert_eq!(put(&mut host, voter, &arm).owner, done);
        let mut start = call(giver, Type::Arm, 3);
        (start.ballot, start.slot, start.voted) = (PackedBallot(9), 1, 9);
        (start.value.kind, start.value.origin) = (1, 1);
        let done = [(giver, FrameOrigin::LocalResponse, Type::Done)];
        assert_eq!(put(&mut host, giver, &start).owner, done);
        let mut submit = Header::new_submit(7, Descriptor::NONE, 0);
        submit.value.kind = 1;
        let left = put(&mut host, giver, &submit);
        let all = [Type::Phase2a, Type::Phase2b, Type::Decided];
        assert_eq!(left.network, all);
        let told = [
            (voter, FrameOrigin::LocalResponse, Type::Phase2b),
            (giver, FrameOrigin::LocalResponse, Type::Decided),
            // The decision was sent to the group, and so back to the device, as if another device
            // had counted the votes.
            (voter, FrameOrigin::Network, Type::Decided),
        ];
        assert_eq!(left.owner, told);
    }

    #[test]
    fn power_cycle_clears_both_programs() {
        let mut host = Host::new(settings(), Box::new(ReferencePrograms::new(&settings())));
        for program in Program::ALL {
            put(&mut host, program, &call(program, Type::Boot, 1));
        }
        host.clear_state();
        for program in Program::ALL {
            let left = put(&mut host, program, &call(program, Type::Fence, 2));
            assert_eq!(left.owner, [(program, FrameOrigin::LocalResponse, Type::Refused)]);
        }
    }
}
