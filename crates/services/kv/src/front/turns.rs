//! Blocked clients of this node and the replicated queue: polls, claims and withdrawals.

use std::collections::BTreeSet;

use quorate_replica::front::{ConnectionId, Failure, Requests};

use super::{
    RespFront,
    buffers::clear_buffer,
    refusals::failure_reply,
    shared::{CompletionOwner as TagOwner, Shared, Target},
    waiting::{BlockedStage, Client, RetainOne as _, UnblockReply},
};
use crate::{
    commands::waiting::{
        GONE, PollAnswer, WAITING, encode_claim, encode_depose, encode_look, encode_withdraw,
    },
    encode::Encoder,
    resp::reply::NULL_ARRAY,
};

const WITHDRAWN_MAX: usize = 1024;
/// Redis' reply to a client that another client unblocked.
pub(super) const UNBLOCKED: &[u8] = b"-UNBLOCKED client unblocked via CLIENT UNBLOCK\r\n";

impl RespFront {
    /// Serves the blocked clients: CLIENT UNBLOCK, timeouts, polls, claims and withdrawals.
    pub(super) fn serve_line(&mut self, requests: &mut dyn Requests) {
        let now_ms = requests.wall_ms();
        self.process_unblocks(requests);
        while let Some(&(until, number)) = self.shared.blocked_clients.timeouts.first()
            && until <= now_ms
        {
            self.time_out_client(number);
        }
        self.withdraw_from_queue(requests);
        if let Some(all) = self.shared.blocked_clients.poll_due(now_ms) {
            self.poll_turns(all, now_ms, requests);
            self.withdraw_from_queue(requests);
        }
    }

    /// Ends the waits selected by CLIENT UNBLOCK. A queued client without a claim has not received
    /// an element, so its wait ends at once. A claim in flight is completed first.
    fn process_unblocks(&mut self, requests: &mut dyn Requests) {
        for (connection, how, asker) in
            std::mem::take(&mut self.shared.blocked_clients.unblock_requests)
        {
            let waiting = &mut self.shared.blocked_clients;
            let number = waiting.client_number(connection);
            let client = number.and_then(|number| waiting.clients.get_mut(&number));
            match (number, client) {
                (Some(number), Some(client)) if client.stage == BlockedStage::Queued => {
                    let unsure = client.is_outcome_unknown;
                    match how {
                        _ if unsure => {
                            self.end_client_wait(number, &failure_reply(Failure::Unknown), true)
                        }
                        UnblockReply::Timeout => self.end_client_wait(number, NULL_ARRAY, true),
                        UnblockReply::Error => self.end_client_wait(number, UNBLOCKED, true),
                    }
                    self.shared.blocked_clients.unblock_results.push((asker, true));
                }
                (_, Some(client)) if client.unblock.is_none() => {
                    client.unblock = Some((how, asker));
                }
                // The client is no longer blocked, or an earlier CLIENT UNBLOCK is pending.
                _ => waiting.unblock_results.push((asker, false)),
            }
        }
        for ((connection, place), ended) in
            std::mem::take(&mut self.shared.blocked_clients.unblock_results)
        {
            if let Some(client) = self.connections.get_mut(&connection) {
                client.answer_unblock(place, ended, &mut self.shared);
                // The next request may be one that blocks and begins now.
                client.advance(&mut self.shared, requests);
                client.update_charged_bytes(&mut self.shared);
                client.queue_for_reactor(&mut self.shared);
            }
        }
    }

    /// Polls this node's state for clients that may claim an element.
    fn poll_turns(&mut self, all: bool, now_ms: u64, requests: &mut dyn Requests) {
        let Some(owner) = self.shared.blocked_clients.owner else {
            return;
        };
        let from = std::mem::take(&mut self.shared.blocked_clients.from);
        let (mut query, mut answer) = (Vec::new(), Vec::new());
        encode_look(owner, all, &from, &mut Encoder(&mut query));
        // If the service cannot answer now, a later poll does.
        let asked = requests.query(&query, &mut answer);
        let Some(look) = asked.ok().and_then(|()| PollAnswer::decode(&answer).ok()) else {
            return;
        };
        let waiting = &mut self.shared.blocked_clients;
        waiting.from.clone_from(&look.next);
        waiting.may_have_turns |= !look.next.is_empty();
        let overdue = waiting.overdue_clients(&look, now_ms);
        let unknown = |number: &u64| !waiting.clients.contains_key(number);
        let in_line = look.queued_clients.as_deref().unwrap_or_default();
        let mut gone: BTreeSet<u64> = look.own_turns.iter().copied().filter(unknown).collect();
        gone.extend(in_line.iter().copied().filter(unknown));
        waiting.clients_to_withdraw.extend(gone);
        let missing = |(number, client): (&u64, &Client)| {
            let missing =
                client.stage == BlockedStage::Queued && in_line.binary_search(number).is_err();
            missing.then_some(*number)
        };
        if look.queued_clients.is_some() {
            let missing: Vec<u64> = waiting.clients.iter().filter_map(missing).collect();
            waiting.may_be_queued = !in_line.is_empty() || !waiting.clients.is_empty();
            for number in missing {
                self.is_missing(number, requests);
            }
        }
        for number in look.own_turns {
            if self.shared.blocked_clients.client(number, BlockedStage::Queued).is_some() {
                let mut command = Vec::new();
                encode_claim(owner, number, &mut Encoder(&mut command));
                self.send_claim(number, &command, requests);
            }
        }
        for seen in overdue {
            let mut command = Vec::new();
            encode_depose(seen, &mut Encoder(&mut command));
            self.shared.send_queue_command(&command, requests);
        }
    }

    /// Ends the wait of a queued client whose timeout has passed.
    fn time_out_client(&mut self, number: u64) {
        let client = self.shared.blocked_clients.clients.get(&number);
        if client.is_some_and(|client| client.is_outcome_unknown) {
            // An element may have been taken for the client, or may still be.
            self.end_client_wait(number, &failure_reply(Failure::Unknown), true);
        } else {
            self.end_client_wait(number, NULL_ARRAY, true);
        }
    }

    /// Handles a client that is not in the queue: its node was presumed dead, or it got an element
    /// but the notification was lost.
    fn is_missing(&mut self, number: u64, requests: &mut dyn Requests) {
        let Some(client) = self.shared.blocked_clients.clients.get(&number) else {
            return;
        };
        if client.is_outcome_unknown {
            self.end_client_wait(number, &failure_reply(Failure::Unknown), false);
        } else {
            let command = client.command.clone();
            self.send_claim(number, &command, requests);
        }
    }

    fn send_claim(&mut self, number: u64, command: &[u8], requests: &mut dyn Requests) {
        let Some(client) = self.shared.blocked_clients.clients.get(&number) else {
            return;
        };
        let end = client.until_ms.map(|until| (until, number));
        let tag = self.shared.allocate_tag(client.connection, Target::Claim(number));
        if requests.write(tag, command).is_err() {
            // The next poll retries the claim.
            self.shared.tags.release(tag);
            return;
        }
        let waiting = &mut self.shared.blocked_clients;
        waiting.timeouts.retain_one(end);
        if let Some(client) = waiting.clients.get_mut(&number) {
            client.stage = BlockedStage::Claiming(tag);
        }
    }

    pub(super) fn handle_claim(
        &mut self,
        number: u64,
        reply: Result<&[u8], Failure>,
        requests: &mut dyn Requests,
    ) {
        match reply {
            Ok(WAITING) => self.shared.blocked_clients.mark_queued(number),
            Ok(GONE) => self.is_missing(number, requests),
            Ok(reply) => self.end_client_wait(number, reply, false),
            Err(failure) => {
                if let Some(client) = self.shared.blocked_clients.clients.get_mut(&number) {
                    client.is_outcome_unknown |= failure == Failure::Unknown;
                }
                // Retried later, not at once, so `news` stays as it is.
                let news = self.shared.blocked_clients.may_have_turns;
                self.shared.blocked_clients.mark_queued(number);
                self.shared.blocked_clients.may_have_turns = news;
            }
        }
    }

    /// Ends a client's wait with a reply. If `withdraw`, also removes it from the queue.
    fn end_client_wait(&mut self, number: u64, reply: &[u8], withdraw: bool) {
        let Some(client) = self.shared.blocked_clients.remove_client(number) else {
            return;
        };
        if withdraw {
            self.shared.blocked_clients.clients_to_withdraw.push(number);
        }
        self.answer_blocked(client.connection, client.request_number, reply);
    }

    /// Answers the blocked request of a client.
    pub(super) fn answer_blocked(&mut self, client: ConnectionId, place: u64, reply: &[u8]) {
        if let Some(connection) = self.connections.get_mut(&client) {
            connection.end_blocked_request(place, reply, &mut self.shared);
            connection.update_charged_bytes(&mut self.shared);
            let now_ms = self.shared.tally.now_ms;
            connection.update_entry(now_ms, &mut self.shared);
            connection.queue_for_reactor(&mut self.shared);
        }
    }

    /// Removes clients that no longer wait from the queue. If that fails, the next poll for all
    /// clients finds them again.
    fn withdraw_from_queue(&mut self, requests: &mut dyn Requests) {
        let gone = std::mem::take(&mut self.shared.blocked_clients.clients_to_withdraw);
        let Some(owner) = self.shared.blocked_clients.owner else {
            return;
        };
        for some in gone.chunks(WITHDRAWN_MAX) {
            let mut command = Vec::new();
            encode_withdraw(owner, some, &mut Encoder(&mut command));
            self.shared.send_queue_command(&command, requests);
        }
    }
}

impl Shared {
    /// Sends a command that changes the queue, and ignores the reply.
    fn send_queue_command(&mut self, command: &[u8], requests: &mut dyn Requests) {
        let owner = TagOwner { connection: ConnectionId::default(), target: Target::QueueCommand };
        let tag = self.tags.allocate(owner);
        if requests.write(tag, command).is_err() {
            self.tags.release(tag);
        }
        clear_buffer(&mut self.command);
    }
}
