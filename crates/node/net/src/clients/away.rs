//! Client connections handed over to an I/O thread: the handover, the data exchanged, and the
//! return.

use quorate_core::time::Time;
use quorate_replica::front::{ConnectionId, Front as _};

use super::{
    Client, Clients, Stage, append_backlog,
    place::{ReactorSocket, SocketOwner, ThreadSocket},
};
use crate::{
    cx::Cx,
    host::ClientHost,
    sources::{Interest, Source},
    stats::Stats,
    tcp::socket::Socket,
    threads::{ClientWork, HandoverDecision, IoSpread, ReturnReason, ThreadRecord},
};

/// Size in bytes of a connection's output above which its socket is recalled ([io-5]): the front
/// moves the rest of an output after each written part, which is slow for many small parts.
const OUTPUT_BYTES_MAX: usize = 256 << 10;
/// Maximum number of output bytes per record.
const RECORD_BYTES_MAX: usize = 64 << 10;
/// Size in bytes of unconsumed input above which a connection's socket is recalled: the reactor
/// handles large commands.
const BACKLOG_BYTES_MAX: usize = 64 << 10;
/// Number of reads after which a connection may be handed over, because a handover and its return
/// cost as much as a few reads.
const READS_MIN: u32 = 16;
/// Maximum number of connections recalled in one turn.
const RECALLS_MAX: usize = 64;

impl Clients {
    /// Records a turn that waited for `waited_us` before `now`. Starts or stops the use of the I/O
    /// threads if the load requires it ([io-3]).
    pub(crate) fn record_turn(&mut self, now: Time, waited_us: u64) {
        if !self.threads.are_enabled() || self.limits.io_spread == IoSpread::Always {
            return;
        }
        let last = self.to_recall.len().saturating_sub(RECALLS_MAX);
        for id in self.to_recall.split_off(last) {
            self.recall_socket(id);
        }
        let Stats { calls_client_read, calls_client_write, client_bytes_in, .. } = self.stats;
        let work =
            ClientWork { calls: calls_client_read + calls_client_write, bytes: client_bytes_in };
        match self.reactor_load.record_turn(now, waited_us, work) {
            None => {}
            Some(HandoverDecision::HandOver) => {
                self.is_handing_over = true;
                self.to_recall.clear();
            }
            Some(HandoverDecision::Recall) => {
                self.is_handing_over = false;
                let away = self.connections.iter().filter(|(_, client)| client.is_on_thread());
                self.to_recall = away.map(|(id, _)| *id).collect();
            }
        }
    }

    /// Describes the current use of the I/O threads; `None` without threads.
    pub(crate) fn describe_use(&self) -> Option<String> {
        let (threads, clients) = self.threads.thread_and_connection_counts();
        (threads > 0).then(|| {
            let all = self.connections.len();
            format!("{clients} of {all} clients are served by {threads} I/O threads")
        })
    }

    /// Returns the counters, including the system calls of the threads.
    pub(crate) fn all_stats(&self) -> Stats {
        let [calls_client_read, calls_client_write, calls_io_thread_wait] =
            self.threads.call_counts();
        let threads = Stats {
            calls_client_read,
            calls_client_write,
            calls_io_thread_wait,
            ..Stats::default()
        };
        self.stats.plus(&threads)
    }

    /// Hands a connection over to an I/O thread, if that is allowed ([io-2]).
    pub(super) fn hand_over_socket(&mut self, id: ConnectionId, cx: &mut Cx<'_, impl ClientHost>) {
        let Some(client) = self.connections.get_mut(&id) else {
            return;
        };
        client.read_count = client.read_count.saturating_add(1);
        let may = client.may_be_handed_over
            && (client.read_count >= READS_MIN || self.limits.io_spread == IoSpread::Always)
            && client.stage == Stage::Open
            && !client.is_paused
            && client.backlog.is_empty()
            && matches!(&client.socket_owner, SocketOwner::Reactor(here) if here.may_be_handed_over());
        if !may {
            return;
        }
        if let Err(error) = self.threads.start() {
            tracing::warn!(%error, "cannot start an I/O thread; clients stay with the main thread");
            self.is_handing_over = false;
            return;
        }
        let Some(thread) = self.threads.least_used() else {
            self.is_handing_over = false;
            return;
        };
        let Some(client) = self.connections.get_mut(&id) else {
            return;
        };
        let away = SocketOwner::Thread(ThreadSocket {
            thread,
            handed_bytes: 0,
            is_reading: true,
            is_recalled: false,
        });
        if let SocketOwner::Reactor(here) = std::mem::replace(&mut client.socket_owner, away) {
            cx.sources.stop_watching(&here.socket, here.token);
            self.threads.hand_over_socket(thread, id, here.socket);
            self.stats.io_thread_moves += 1;
            // The front still holds the replies to the input that was just read.
            self.unflushed_clients.push(id);
        }
    }

    /// Recalls the socket of a connection from its thread ([io-9]).
    pub(super) fn recall_socket(&mut self, id: ConnectionId) {
        if let Some(Client { socket_owner: SocketOwner::Thread(away), .. }) =
            self.connections.get_mut(&id)
        {
            away.recall_socket(id, &mut self.threads);
            away.is_recalled = true;
        }
    }

    /// Passes the front's output to the thread, as far as its ring has space.
    pub(super) fn pass_output(&mut self, id: ConnectionId, cx: &mut Cx<'_, impl ClientHost>) {
        let Some(client) = self.connections.get_mut(&id) else {
            return;
        };
        let SocketOwner::Thread(away) = &mut client.socket_owner else {
            return;
        };
        if away.is_recalled {
            // Output continues here once the socket is back.
            return;
        }
        let output = cx.host.front_mut().output(id);
        let all = output.len();
        if all > OUTPUT_BYTES_MAX {
            client.may_be_handed_over = false;
            return self.recall_socket(id);
        }
        let before = away.handed_bytes;
        while away.handed_bytes < all {
            let end = all.min(away.handed_bytes + RECORD_BYTES_MAX);
            if !self.threads.pass_output(away.thread, id, &output[away.handed_bytes..end]) {
                self.unflushed_clients.push(id);
                break;
            }
            away.handed_bytes = end;
        }
        self.handed_bytes += away.handed_bytes - before;
        let ends = client.stage != Stage::Open
            || cx.host.front().should_close(id)
            || cx.host.front().reset_reason(id).is_some();
        // A front that cuts a connection off drops its output, but the thread may still have some.
        if ends && away.handed_bytes >= all {
            return self.recall_socket(id);
        }
        self.register_interest(id, cx);
    }

    /// Handles the records that the threads have sent.
    pub(crate) fn on_threads(&mut self, cx: &mut Cx<'_, impl ClientHost>) {
        for thread in 0..self.threads.begin_turn() {
            while let Some(up) = self.threads.next_record(thread, &mut self.read_buffer) {
                self.stats.io_thread_records += 1;
                match up {
                    ThreadRecord::Input { id, written, count } => {
                        self.record_written(id, written, cx);
                        self.handle_received(id, count, cx);
                    }
                    ThreadRecord::Written { id, written } => self.record_written(id, written, cx),
                    ThreadRecord::Returned { id, written, why, socket } => {
                        self.record_written(id, written, cx);
                        self.take_back_socket(id, socket, why, cx);
                    }
                    ThreadRecord::Ended(thread) => self.close_thread_clients(thread, cx),
                }
            }
        }
    }

    fn record_written(
        &mut self,
        id: ConnectionId,
        written: usize,
        cx: &mut Cx<'_, impl ClientHost>,
    ) {
        let Some(Client { socket_owner: SocketOwner::Thread(away), .. }) =
            self.connections.get_mut(&id)
        else {
            return;
        };
        if written == 0 {
            return;
        }
        let written = written.min(away.handed_bytes);
        away.handed_bytes -= written;
        self.handed_bytes -= written;
        let front = cx.host.front_mut();
        // The front has dropped its output if it cut the connection off.
        let output = front.output(id).len();
        front.record_sent(id, written.min(output));
        self.stats.client_bytes_out += written as u64;
        if front.output(id).len() > away.handed_bytes || front.should_close(id) {
            self.unflushed_clients.push(id);
        }
    }

    /// Handles `count` received bytes in `read_buffer`.
    fn handle_received(
        &mut self,
        id: ConnectionId,
        count: usize,
        cx: &mut Cx<'_, impl ClientHost>,
    ) {
        self.is_reading_suspended = self.must_suspend_reading(cx.host);
        let Some(client) = self.connections.get_mut(&id) else {
            return;
        };
        if client.stage != Stage::Open {
            return;
        }
        self.stats.client_bytes_in += count as u64;
        if !self.is_reading_suspended && !client.is_paused && client.backlog.is_empty() {
            return self.feed_front(id, count, cx);
        }
        append_backlog(&mut client.backlog, &self.read_buffer[..count]);
        self.backlog_bytes += count;
        if client.is_paused {
            return;
        }
        if self.is_reading_suspended {
            self.stats.client_holds += 1;
            return self.pause_reading(id, cx);
        }
        self.feed_front(id, 0, cx);
        if let Some(client) = self.connections.get_mut(&id)
            && !client.is_paused
            && client.backlog.len() > BACKLOG_BYTES_MAX
        {
            client.may_be_handed_over = false;
            self.recall_socket(id);
        }
    }

    fn take_back_socket(
        &mut self,
        id: ConnectionId,
        socket: Socket,
        why: ReturnReason,
        cx: &mut Cx<'_, impl ClientHost>,
    ) {
        let Some(client) = self.connections.get_mut(&id) else {
            // The connection was closed in the meantime. Dropping the socket closes it.
            return;
        };
        if let SocketOwner::Thread(away) = &client.socket_owner {
            self.handed_bytes -= away.handed_bytes;
            // A thread that could not watch this socket would fail again.
            client.may_be_handed_over &= away.is_recalled;
        }
        let interest = Interest::READ;
        match cx.sources.add(&socket, Source::Client(id), interest) {
            Ok(token) => {
                client.socket_owner = SocketOwner::Reactor(ReactorSocket {
                    socket,
                    token,
                    interest,
                    is_send_blocked: false,
                });
            }
            Err(error) => {
                tracing::warn!(%error, "cannot register a client connection with the poller");
                return self.forget_lost_client(id, cx);
            }
        }
        self.unflushed_clients.push(id);
        match why {
            ReturnReason::Broken => return self.close_client(id, cx),
            // A TLS session does not report the end of input a second time.
            ReturnReason::Ended => self.half_close(id, cx),
            ReturnReason::Recalled => self.read_all(id, cx),
        }
        self.register_interest(id, cx);
    }

    /// Forgets a connection whose socket no longer exists.
    fn forget_lost_client(&mut self, id: ConnectionId, cx: &mut Cx<'_, impl ClientHost>) {
        if let Some(client) = self.connections.remove(&id) {
            if let SocketOwner::Thread(away) = &client.socket_owner {
                self.handed_bytes -= away.handed_bytes;
            }
            self.forget_client(id, &client, cx);
        }
    }

    /// [io-12] Closes the connections of a thread that ended.
    fn close_thread_clients(&mut self, thread: usize, cx: &mut Cx<'_, impl ClientHost>) {
        let lost = self.connections.iter().filter(
            |(_, client)| matches!(&client.socket_owner, SocketOwner::Thread(away) if away.thread == thread),
        );
        let lost: Vec<_> = lost.map(|(id, _)| *id).collect();
        tracing::warn!(clients = lost.len(), "an I/O thread ended; its clients are disconnected");
        for id in lost {
            self.forget_lost_client(id, cx);
        }
    }
}
