//! Device clients. Their frames travel like those of devices, and they send requests to a node over
//! a connection.

use quorate_core::time::Time;

use super::{Event, World};
use crate::{
    check::{Verdict, Violation},
    dice::Dice,
    faults::LossScope,
    workload::frame_client::{FrameClient, FrameRequest, NodeAnswer},
};

/// Time without an answer after which a client switches to another node.
const ANSWER_TIMEOUT_MS: u64 = 200;

impl World {
    /// Starts the run's device clients.
    pub(super) fn plan_frame_clients(&mut self) {
        let mut dice = Dice::new(self.settings.seed ^ 0x4672_616d_6543_6c69);
        for index in 0..self.settings.frame_client_count {
            let wait = dice.between(1, 10_000);
            self.frame_clients.push(FrameClient::new(index, dice.fork()));
            self.schedule_frame_client(index, self.now.plus_us(wait));
        }
    }

    /// Schedules the next step of a client at `at`, unless an earlier one is scheduled.
    fn schedule_frame_client(&mut self, index: usize, at: Time) {
        let client = &mut self.frame_clients[index];
        if client.next_step_at.is_none_or(|planned| planned > at) {
            client.next_step_at = Some(at);
            self.schedule_at(at, Event::FrameClientActs(index));
        }
    }

    fn schedule_frame_client_now(&mut self, index: usize) {
        self.schedule_frame_client(index, self.now.plus_us(1));
    }

    pub(super) fn step_frame_client(&mut self, index: usize) {
        let now = self.now;
        let client = &mut self.frame_clients[index];
        if client.next_step_at.is_none_or(|planned| planned > now) {
            return;
        }
        client.next_step_at = None;
        if client.is_finished() {
            return;
        }
        if client.reply_deadline.is_some_and(|at| at <= now) {
            client.leave_node();
        }
        if client.desk_node.is_none() {
            self.connect_frame_client(index);
        }
        let (leaving, again) = self.frame_clients[index].take_step(now);
        for frame in leaving.frames {
            self.send_to_stations(self.nodes.len() + index, &frame);
        }
        for ask in leaving.requests {
            self.send_frame_client_request(index, ask);
        }
        let patience = self.frame_clients[index].reply_deadline;
        if let Some(at) = again.into_iter().chain(patience).min() {
            self.schedule_frame_client(index, at.max(now.plus_us(1)));
        }
    }

    fn connect_frame_client(&mut self, index: usize) {
        let node = self.frame_state.dice.index(self.nodes.len());
        let known = self.fault_state.faults_go_on() || self.is_group_node(node);
        let process = &self.nodes[node];
        let (up, life) = (known && process.running.is_some(), process.start_count);
        if up {
            self.frame_clients[index].connect_to(node, life);
        } else {
            let wait = self.frame_state.dice.between(500, 20_000);
            self.schedule_frame_client(index, self.now.plus_us(wait));
        }
    }

    fn send_frame_client_request(&mut self, index: usize, ask: FrameRequest) {
        let client = &mut self.frame_clients[index];
        let Some((node, life)) = client.desk_node else {
            return;
        };
        let patience_at = self.now.plus_ms(ANSWER_TIMEOUT_MS);
        if ask.is_answered() {
            client.reply_deadline = client.reply_deadline.or(Some(patience_at));
        }
        let wait = self.frame_state.dice.between(20, 200);
        let event = Event::RequestToDesk { node, life, client: index, request: ask };
        self.schedule_after(wait, event);
    }

    /// Sends the answers from a node's turn to the device clients.
    pub(super) fn send_desk_answers(&mut self, node: usize) {
        let life = self.nodes[node].start_count;
        let running = self.nodes[node].running.as_mut();
        let answers = running.map(|running| std::mem::take(&mut running.desk_answers));
        for (client, answer) in answers.unwrap_or_default() {
            let wait = self.frame_state.dice.between(20, 200);
            let event = Event::AnswerFromDesk { client, desk: (node, life), answer };
            self.schedule_after(wait, event);
        }
    }

    pub(super) fn deliver_frame_client_answer(
        &mut self,
        index: usize,
        desk: (usize, u64),
        answer: &NodeAnswer,
    ) -> Verdict {
        let client = &mut self.frame_clients[index];
        if client.desk_node != Some(desk) {
            return Ok(());
        }
        client.reply_deadline = None;
        client.receive_answer(self.now, answer, &mut self.client_records.exactly_once)?;
        if let NodeAnswer::LogPosition(stand) = answer
            && !stand.is_leader
        {
            client.leave_node();
        }
        self.schedule_frame_client_now(index);
        self.check_frame_client(index)
    }

    /// Delivers a frame to the station of a device client.
    pub(super) fn deliver_frame_client_frame(&mut self, index: usize, frame: &[u8]) -> Verdict {
        let client = &mut self.frame_clients[index];
        client.receive_frame(self.now, frame, &mut self.client_records.exactly_once)?;
        self.counts.batches_by_frames += client.take_confirmed_by_frames();
        self.schedule_frame_client_now(index);
        self.check_frame_client(index)
    }

    /// Checks that a client found no contradiction between frames and nodes. Applies only to runs
    /// in which no votes are lost.
    fn check_frame_client(&self, index: usize) -> Verdict {
        let within = self.settings.loss_scope == LossScope::WithinBudget;
        match self.frame_clients[index].conflict_count() {
            0 => Ok(()),
            _ if !within => Ok(()),
            _ => Err(Violation::new(
                "frame clients",
                format!("client {index} heard what contradicts what it knew"),
            )),
        }
    }

    // --- Act two.

    /// Stops all device clients from starting new work.
    pub(super) fn stop_frame_clients(&mut self) {
        for index in 0..self.frame_clients.len() {
            self.frame_clients[index].is_done = true;
            self.schedule_frame_client_now(index);
        }
    }

    /// Checks that the outcome of every batch is known, and that nodes executed it in the slot
    /// reported to the client.
    pub(super) fn check_frame_clients_answered(&mut self) -> Verdict {
        self.run_until("clients of devices are answered", |world| {
            let mut clients = world.frame_clients.iter();
            clients.all(FrameClient::is_finished)
        })?;
        let executed = |id| self.node_checkers.command_hash(id);
        let mut clients = self.frame_clients.iter();
        clients.try_for_each(|client| client.check_reported_slots(&executed))
    }
}
