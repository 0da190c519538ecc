//! Device clients. Their frames travel like those of devices, and they send requests to a node over
//! a connection.

use quorate_core::time::Time;

use super::{Event, World};
use crate::{
    check::{Verdict, Violation},
    dice::Dice,
    faults::Losses,
    workload::frame_client::{Answer, FrameClient, FrameRequest},
};

/// Time without an answer after which a client switches to another node.
const PATIENCE_MS: u64 = 200;

impl World {
    /// Starts the run's device clients.
    pub(super) fn plan_frame_clients(&mut self) {
        let mut dice = Dice::new(self.settings.seed ^ 0x4672_616d_6543_6c69);
        for index in 0..self.settings.frame_clients {
            let wait = dice.between(1, 10_000);
            self.frame_clients.push(FrameClient::new(index, dice.fork()));
            self.frame_client_looks(index, self.now.plus_us(wait));
        }
    }

    /// Schedules the next step of a client at `at`, unless an earlier one is scheduled.
    fn frame_client_looks(&mut self, index: usize, at: Time) {
        let client = &mut self.frame_clients[index];
        if client.planned.is_none_or(|planned| planned > at) {
            client.planned = Some(at);
            self.schedule_at(at, Event::FrameClient(index));
        }
    }

    fn frame_client_looks_now(&mut self, index: usize) {
        self.frame_client_looks(index, self.now.plus_us(1));
    }

    pub(super) fn frame_client_acts(&mut self, index: usize) {
        let now = self.now;
        let client = &mut self.frame_clients[index];
        if client.planned.is_none_or(|planned| planned > now) {
            return;
        }
        client.planned = None;
        if client.is_through() {
            return;
        }
        if client.reply_deadline.is_some_and(|at| at <= now) {
            client.leaves();
        }
        if client.desk.is_none() {
            self.frame_client_connects(index);
        }
        let (leaving, again) = self.frame_clients[index].take_step(now);
        for frame in leaving.frames {
            self.fly_to_stations(self.nodes.len() + index, &frame);
        }
        for ask in leaving.asks {
            self.frame_client_asks(index, ask);
        }
        let patience = self.frame_clients[index].reply_deadline;
        if let Some(at) = again.into_iter().chain(patience).min() {
            self.frame_client_looks(index, at.max(now.plus_us(1)));
        }
    }

    fn frame_client_connects(&mut self, index: usize) {
        let node = self.frames.dice.index(self.nodes.len());
        let known = self.chaos.goes_on() || self.belongs(node);
        let process = &self.nodes[node];
        let (up, life) = (known && process.running.is_some(), process.life);
        if up {
            self.frame_clients[index].connected(node, life);
        } else {
            let wait = self.frames.dice.between(500, 20_000);
            self.frame_client_looks(index, self.now.plus_us(wait));
        }
    }

    fn frame_client_asks(&mut self, index: usize, ask: FrameRequest) {
        let client = &mut self.frame_clients[index];
        let Some((node, life)) = client.desk else {
            return;
        };
        let patience_at = self.now.plus_ms(PATIENCE_MS);
        if ask.is_answered() {
            client.reply_deadline = client.reply_deadline.or(Some(patience_at));
        }
        let wait = self.frames.dice.between(20, 200);
        let event = Event::ToDesk { node, life, client: index, ask };
        self.schedule_after(wait, event);
    }

    /// Sends the answers from a node's turn to the device clients.
    pub(super) fn send_desk_answers(&mut self, node: usize) {
        let life = self.nodes[node].life;
        let running = self.nodes[node].running.as_mut();
        let answers = running.map(|running| std::mem::take(&mut running.desk_answers));
        for (client, answer) in answers.unwrap_or_default() {
            let wait = self.frames.dice.between(20, 200);
            let event = Event::FromDesk { client, desk: (node, life), answer };
            self.schedule_after(wait, event);
        }
    }

    pub(super) fn frame_client_answered(
        &mut self,
        index: usize,
        desk: (usize, u64),
        answer: &Answer,
    ) -> Verdict {
        let client = &mut self.frame_clients[index];
        if client.desk != Some(desk) {
            return Ok(());
        }
        client.reply_deadline = None;
        client.answered(self.now, answer, &mut self.books.exactly_once)?;
        if let Answer::Stand(stand) = answer
            && !stand.leads
        {
            client.leaves();
        }
        self.frame_client_looks_now(index);
        self.check_frame_client(index)
    }

    /// Delivers a frame to the station of a device client.
    pub(super) fn frame_client_hears(&mut self, index: usize, frame: &[u8]) -> Verdict {
        let client = &mut self.frame_clients[index];
        client.receive_frame(self.now, frame, &mut self.books.exactly_once)?;
        self.counts.by_frames += client.take_by_frames();
        self.frame_client_looks_now(index);
        self.check_frame_client(index)
    }

    /// Checks that a client found no contradiction between frames and nodes. Applies only to runs
    /// in which no votes are lost.
    fn check_frame_client(&self, index: usize) -> Verdict {
        let within = self.settings.losses == Losses::WithinBudget;
        match self.frame_clients[index].conflicts() {
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
    pub(super) fn heal_frame_clients(&mut self) {
        for index in 0..self.frame_clients.len() {
            self.frame_clients[index].is_done = true;
            self.frame_client_looks_now(index);
        }
    }

    /// Checks that the outcome of every batch is known, and that nodes executed it in the slot
    /// reported to the client.
    pub(super) fn frame_clients_are_answered(&mut self) -> Verdict {
        self.run_until("clients of devices are answered", |world| {
            let mut clients = world.frame_clients.iter();
            clients.all(FrameClient::is_through)
        })?;
        let executed = |id| self.watch.executed_in(id);
        let mut clients = self.frame_clients.iter();
        clients.try_for_each(|client| client.check_places(&executed))
    }
}
