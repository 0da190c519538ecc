//! Connects clients, sends their requests and delivers the replies.

use quorate_core::time::Time;
use quorate_replica::front::ConnectionId;

use super::{Event, World};
use crate::{check::Verdict, node::Arrival};

impl World {
    pub(super) fn step_client(&mut self, client: usize) {
        let now = self.now;
        let Some((connection, node)) = self.clients[client].connection else {
            return self.connect_any_client(client);
        };
        let asks = self.clients[client].next_request_at.take_if(|at| *at <= now);
        let pipelines = asks.is_some() && self.clients[client].may_pipeline();
        if self.clients[client].is_waiting() && !pipelines {
            if self.clients[client].reply_deadline.is_some_and(|at| at <= now) {
                let life = self.nodes[node].start_count;
                self.deliver_arrival_to(node, life, Arrival::ClientClosed(connection));
                self.handle_client_down(client, connection);
            }
            return;
        }
        if self.clients[client].is_done && !self.clients[client].is_busy() {
            return;
        }
        let bytes = self.clients[client].next_requests(&mut self.client_records);
        if bytes.is_empty() {
            return;
        }
        self.schedule_client_timeout(client);
        self.send_client_bytes(node, connection, bytes);
    }

    /// Delivers a client's bytes to the current process of a node after a delay. The bytes are lost
    /// if the process ends before.
    pub(super) fn send_client_bytes(
        &mut self,
        node: usize,
        connection: ConnectionId,
        bytes: Vec<u8>,
    ) {
        let life = self.nodes[node].start_count;
        let at = self.client_arrival_time(connection);
        self.schedule_at(at, Event::BytesToNode { node, life, connection, bytes });
    }

    /// Schedules the timeout of a waiting client and, if it pipelines, its next request.
    fn schedule_client_timeout(&mut self, client: usize) {
        let patience = self.settings.client_timeout_ms * 2 + 200;
        let patience_at = self.now.plus_ms(patience);
        self.clients[client].reply_deadline = Some(patience_at);
        self.schedule_at(patience_at, Event::ClientActs(client));
        if self.clients[client].may_pipeline() && self.clients[client].next_request_at.is_none() {
            let soon = self.clients[client].draw_pause(2_000);
            let asks_at = self.now.plus_us(soon);
            self.clients[client].next_request_at = Some(asks_at);
            self.schedule_at(asks_at, Event::ClientActs(client));
        }
    }

    /// Returns the arrival time of data sent now on a client's connection. Bytes on one connection
    /// remain in order.
    pub(crate) fn client_arrival_time(&mut self, connection: ConnectionId) -> Time {
        let at = self.now.plus_us(self.dice.between(20, 200));
        self.client_connections.schedule_arrival(connection, at)
    }

    fn connect_any_client(&mut self, client: usize) {
        if self.clients[client].is_done && !self.clients[client].is_busy() {
            return;
        }
        let node = self.clients[client].choose_node(self.nodes.len());
        // Clients never learn the addresses of auxiliaries, or, in act two, those of removed nodes.
        let known = !self.settings.is_auxiliary(node)
            && (self.fault_state.faults_go_on() || self.is_group_node(node));
        let process = &self.nodes[node];
        let (up, life) = (known && process.running.is_some(), process.start_count);
        let wait = if up { 100 } else { self.dice.between(500, 20_000) };
        if up {
            let connection = self.client_connections.open();
            self.clients[client].connection = Some((connection, node));
            self.deliver_arrival_to(node, life, Arrival::ClientOpened(connection));
        }
        self.schedule_after(wait, Event::ClientActs(client));
    }

    pub(super) fn deliver_client_bytes(
        &mut self,
        client: usize,
        connection: ConnectionId,
        bytes: &[u8],
    ) -> Verdict {
        if self.clients[client].connection.is_none_or(|(known, _)| known != connection) {
            return Ok(());
        }
        if self.trace.traces_frames {
            let text = String::from_utf8_lossy(bytes).replace("\r\n", " ");
            self.trace_line(&format!("c{}", client + 1), "hears", format_args!("{text}"));
        }
        self.clients[client].receive_bytes(bytes, &mut self.client_records)?;
        if !self.clients[client].is_waiting() {
            self.clients[client].reply_deadline = None;
            let most = self.settings.think_us_max;
            let wait = self.clients[client].draw_pause(most);
            self.schedule_after(wait, Event::ClientActs(client));
        } else if self.clients[client].may_pipeline() {
            // The node is responding, so the timeout restarts.
            self.schedule_client_timeout(client);
        }
        Ok(())
    }

    pub(crate) fn handle_client_down(&mut self, client: usize, connection: ConnectionId) {
        if self.clients[client].connection.is_none_or(|(known, _)| known != connection) {
            return;
        }
        self.clients[client].handle_disconnect(&mut self.client_records);
        self.client_connections.close(connection);
        let wait = self.dice.between(500, 20_000);
        self.schedule_after(wait, Event::ClientActs(client));
    }
}
