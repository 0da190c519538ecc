//! Minimal device owners. They fence devices, read and import votes, promise, propose again, and
//! arm and start devices. They also revoke a coordinator's slots and then propose by themselves.

use quorate_offload::{Encapsulation, Header, PackedBallot, Port, Type};

use super::{
    Ballot, Group, LATE_CALLS_MAX, LeaderState, MEMBER_COUNT, OmittedRule, QUORUM_SIZE, Slot,
    Station, WINDOW_SLOTS, check_value_bytes, parse_header,
};
use crate::{
    Event,
    frames::{ROOM_BYTES, client_frame, control_call_header, empty_header, for_coordinator},
};

/// Value that fills holes. Clients never submit it.
const NO_OP: u64 = u64::MAX;

impl Group {
    pub(super) fn boot_all(&mut self) -> Result<(), String> {
        for member in 0..MEMBER_COUNT {
            self.call_member(member, empty_header(Type::Boot))?;
        }
        for proposer in 0..self.proposers.len() {
            self.call_coordinator(proposer, empty_header(Type::Boot))?;
        }
        Ok(())
    }

    /// Sends a call from a member's owner to the device. Returns the answer.
    fn call_member(&mut self, member: usize, header: Header) -> Result<(Header, Vec<u8>), String> {
        self.members[member].call_count += 1;
        let calls = self.members[member].call_count;
        self.call_station(Station::Acceptor(member), header, 1, calls)
    }

    /// Sends a call from a coordinator's owner to the device. Returns the answer.
    fn call_coordinator(
        &mut self,
        proposer: usize,
        header: Header,
    ) -> Result<(Header, Vec<u8>), String> {
        self.proposers[proposer].call_count += 1;
        let (boot, calls) = (self.proposers[proposer].boot, self.proposers[proposer].call_count);
        self.call_station(Station::Coordinator(proposer), for_coordinator(header), boot, calls)
    }

    /// Sends a numbered call. Returns the header and the bytes of the answer.
    fn call_station(
        &mut self,
        station: Station,
        header: Header,
        boot: u32,
        counter: u64,
    ) -> Result<(Header, Vec<u8>), String> {
        let mut header = header;
        if header.kind != Type::Read {
            (header.boot, header.value.origin_boot) = (boot, 1);
        }
        if !matches!(header.kind, Type::Read | Type::Ask) {
            header.value.counter = counter;
        }
        let bytes = client_frame(Encapsulation::Udp, &header, &[0; ROOM_BYTES]);
        if matches!(header.kind, Type::Boot | Type::Arm | Type::Fence) {
            self.late_calls.push((station, bytes.clone()));
            if self.late_calls.len() > LATE_CALLS_MAX {
                self.late_calls.remove(0);
            }
        }
        let sent = self.device_at(station).step(&Event::Frame(Port::Owner, bytes))?;
        match <[_; 1]>::try_from(sent) {
            Ok([(Port::Owner, bytes)]) => Ok((parse_header(&bytes)?, bytes)),
            other => Err(format!("a call was answered by {other:?}")),
        }
    }

    /// [offload-8] Fences the device, reads all cells starting at the floor, including holes,
    /// imports the votes, and then promises.
    fn promise(&mut self, member: usize, ballot: Ballot) -> Result<(), String> {
        if self.omitted != Some(OmittedRule::Fence) {
            let (done, _) = self.call_member(member, control_call_header(Type::Fence, 0))?;
            check_done(&done)?;
        }
        let floor = self.members[member].floor;
        for slot in floor..floor + WINDOW_SLOTS {
            let mut header = empty_header(Type::Read);
            header.slot = slot;
            let (cell, bytes) = self.call_member(member, header)?;
            match self.omitted {
                Some(OmittedRule::ReadVotes) => break,
                Some(OmittedRule::ReadPastHoles) if cell.voted == 0 => break,
                _ if cell.voted == 0 => continue,
                _ => check_value_bytes(&bytes, &cell)?,
            }
            let vote = self.members[member].votes.entry(slot).or_default();
            *vote = (*vote).max((cell.voted, cell.value.counter));
        }
        self.members[member].promised = ballot;
        Ok(())
    }

    /// Casts a vote of the owner itself, as an owner does over TCP.
    fn cast_owner_vote(&mut self, member: usize, slot: Slot, number: u64) -> Result<(), String> {
        let ballot = self.lead.ballot;
        assert!(self.members[member].promised <= ballot, "a leader asks who promised");
        self.members[member].votes.insert(slot, (ballot, number));
        self.record_vote(member, ballot, slot, number)
    }

    /// Begins a ballot. Runs phase 1 with a quorum, proposes the reported votes again, arms the
    /// devices and starts the coordinator. The previous leader is not notified, so its coordinator
    /// continues unless it is on the same node. Some leaders die before they finish.
    pub(super) fn begin_ballot(&mut self) -> Result<(), String> {
        self.ballot_count += 1;
        let ballot = self.lead.ballot + 1 + self.dice.below(3);
        let node = self.dice.index(self.proposers.len());
        self.call_coordinator(node, control_call_header(Type::Fence, 0))?;
        self.lead = LeaderState { node, ballot, ..LeaderState::default() };
        let mut asked: Vec<usize> = (0..MEMBER_COUNT).collect();
        self.dice.shuffle(&mut asked);
        if self.dice.chance(1, 2) {
            asked.sort_by_key(|member| self.cut_off_node == Some(*member));
        }
        asked.truncate(if self.dice.chance(1, 2) { QUORUM_SIZE } else { MEMBER_COUNT });
        for member in &asked {
            self.promise(*member, ballot)?;
        }
        let members = || asked.iter().map(|member| &self.members[*member]);
        // All slots below the highest floor are decided and known to the floor's owner.
        let floor = members().map(|member| member.floor).max().unwrap_or(0);
        let last = members().filter_map(|member| member.votes.keys().next_back());
        let next = last.max().map_or(floor, |slot| floor.max(slot + 1));
        let again: Vec<(Slot, u64)> = (floor..next)
            .map(|slot| {
                let reports = members().filter_map(|member| member.votes.get(&slot));
                (slot, reports.max().map_or(NO_OP, |(_, number)| *number))
            })
            .collect();
        let dies = self.dice.chance(1, 6);
        for (slot, number) in again {
            for member in &asked {
                if dies && self.dice.chance(1, 4) {
                    return Ok(());
                }
                self.cast_owner_vote(*member, slot, number)?;
            }
        }
        self.lead.armed_members = asked;
        self.lead.next = next;
        for member in self.lead.armed_members.clone() {
            self.arm(member)?;
        }
        self.start()
    }

    /// [offload-5] Arms the device of a member in the current ballot.
    fn arm(&mut self, member: usize) -> Result<(), String> {
        let floor = self.members[member].floor;
        let mut arm = control_call_header(Type::Arm, 0);
        arm.ballot = PackedBallot(self.lead.ballot);
        // All slots below `next` are decided.
        arm.slot = self.dice.between(floor, floor.max(self.lead.next));
        arm.position = u8::try_from(member).expect("three members");
        let (done, _) = self.call_member(member, arm)?;
        if self.omitted == Some(OmittedRule::Fence) && done.kind == Type::Refused {
            return Ok(());
        }
        check_done(&done)?;
        self.members[member].floor = arm.slot;
        Ok(())
    }

    /// Makes a member outside of the quorum promise, and arms its device.
    pub(super) fn arm_another_member(&mut self) -> Result<(), String> {
        let mut others =
            (0..MEMBER_COUNT).filter(|member| !self.lead.armed_members.contains(member));
        let (true, Some(member)) = (self.lead.is_leading(), others.next()) else {
            return Ok(());
        };
        self.promise(member, self.lead.ballot)?;
        self.lead.armed_members.push(member);
        self.arm(member)
    }

    /// [offload-14] Returns the limit of the slots that may be assigned. The coordinator and a
    /// quorum of the armed members must have cells for all slots below it.
    fn assignable_slot_limit(&self, own_floor: Slot) -> Slot {
        let mut floors: Vec<Slot> =
            self.lead.armed_members.iter().map(|member| self.members[*member].floor).collect();
        floors.sort_unstable_by(|a, b| b.cmp(a));
        own_floor.min(floors[QUORUM_SIZE - 1]) + WINDOW_SLOTS
    }

    /// [offload-5] Starts the coordinator at the leader's next slot. All slots below it are
    /// decided. From then on, only the device assigns slots in this ballot.
    fn start(&mut self) -> Result<(), String> {
        let (node, next) = (self.lead.node, self.lead.next);
        let mut start = control_call_header(Type::Arm, 0);
        start.ballot = PackedBallot(self.lead.ballot);
        start.slot = next;
        start.voted = self.assignable_slot_limit(next);
        start.value.kind = u8::try_from(QUORUM_SIZE).expect("small");
        start.value.origin = u32::try_from(MEMBER_COUNT).expect("small");
        let (done, _) = self.call_coordinator(node, start)?;
        check_done(&done)?;
        (self.proposers[node].floor, self.proposers[node].slot_limit) = (next, start.voted);
        self.lead.coordinator_started = true;
        Ok(())
    }

    /// [offload-12] Stops the coordinator, reads `next` and every cell, and adopts all of the
    /// proposals.
    pub(super) fn take_back_slots(&mut self) -> Result<(), String> {
        if !self.lead.coordinator_started {
            return Ok(());
        }
        let node = self.lead.node;
        if self.omitted != Some(OmittedRule::Stop) {
            let (done, _) = self.call_coordinator(node, control_call_header(Type::Fence, 0))?;
            check_done(&done)?;
        }
        let (state, _) = self.call_coordinator(node, empty_header(Type::Ask))?;
        for slot in self.proposers[node].floor..state.voted {
            let mut header = empty_header(Type::Read);
            header.slot = slot;
            let (cell, bytes) = self.call_coordinator(node, header)?;
            // An empty cell means that no proposal was sent for the slot.
            let mut number = NO_OP;
            if cell.voted == self.lead.ballot && self.omitted != Some(OmittedRule::Adoption) {
                check_value_bytes(&bytes, &cell)?;
                number = cell.value.counter;
            }
            for member in self.lead.armed_members.clone() {
                self.cast_owner_vote(member, slot, number)?;
            }
        }
        self.lead.next = state.voted.max(self.lead.next);
        self.lead.coordinator_started = false;
        Ok(())
    }

    /// Proposes without the leader's coordinator or starts it again, if it is not running.
    pub(super) fn continue_leading(&mut self) -> Result<(), String> {
        if self.lead.coordinator_started || !self.lead.is_leading() {
            return Ok(());
        }
        if self.dice.chance(1, 3) {
            if self.omitted == Some(OmittedRule::Stop) {
                self.call_coordinator(self.lead.node, control_call_header(Type::Fence, 0))?;
            }
            return self.start();
        }
        self.submitted_count += 1;
        let (slot, number) = (self.lead.next, self.submitted_count);
        self.lead.next += 1;
        for member in self.lead.armed_members.clone() {
            self.cast_owner_vote(member, slot, number)?;
        }
        Ok(())
    }

    /// [offload-14] Raises the floor of a member, and the floor and the limit of the coordinator.
    /// Only decided slots lie below a floor.
    pub(super) fn raise_floors(&mut self) -> Result<(), String> {
        let member = self.dice.index(MEMBER_COUNT);
        let from = self.members[member].floor;
        let mut floor = control_call_header(Type::Floor, 0);
        floor.slot = self.dice.between(from, from.max(self.decided_to));
        let (done, _) = self.call_member(member, floor)?;
        check_done(&done)?;
        self.members[member].floor = floor.slot;
        if self.lead.coordinator_started {
            let node = self.lead.node;
            let from = self.proposers[node].floor;
            floor.slot = self.dice.between(from, from.max(self.decided_to));
            floor.voted =
                self.assignable_slot_limit(floor.slot).max(self.proposers[node].slot_limit);
            let (done, _) = self.call_coordinator(node, floor)?;
            check_done(&done)?;
            (self.proposers[node].floor, self.proposers[node].slot_limit) =
                (floor.slot, floor.voted);
        }
        Ok(())
    }

    /// Makes a coordinator lose its memory and assigns a new boot number to it. A leader that uses
    /// the coordinator steps down ([offload-9]).
    pub(super) fn lose_coordinator_memory(&mut self) -> Result<(), String> {
        let node = self.dice.index(self.proposers.len());
        self.proposers[node].device.step(&Event::PowerCycle)?;
        if self.omitted != Some(OmittedRule::NewBoot) {
            self.proposers[node].boot += 1;
        }
        self.call_coordinator(node, empty_header(Type::Boot))?;
        if node != self.lead.node || !self.lead.coordinator_started {
            return Ok(());
        }
        if self.omitted == Some(OmittedRule::StepDown) {
            return self.start();
        }
        self.lead.armed_members.clear();
        self.lead.coordinator_started = false;
        Ok(())
    }
}

fn check_done(answer: &Header) -> Result<(), String> {
    if answer.kind == Type::Done {
        return Ok(());
    }
    Err(format!("an owner is refused: {}", answer.reason))
}
