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
    host::ClientSide,
    sources::{Interest, Source},
    stats::Stats,
    tcp::socket::Socket,
    threads::{Change, Return, Spread, ThreadRecord, Work},
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
        if !self.threads.are_wanted() || self.limits.spread == Spread::Always {
            return;
        }
        let last = self.gathering.len().saturating_sub(RECALLS_MAX);
        for id in self.gathering.split_off(last) {
            self.recall_socket(id);
        }
        let Stats { calls_client_read, calls_client_write, client_bytes_in, .. } = self.stats;
        let work = Work { calls: calls_client_read + calls_client_write, bytes: client_bytes_in };
        match self.load.record_turn(now, waited_us, work) {
            None => {}
            Some(Change::Spread) => {
                self.spreads = true;
                self.gathering.clear();
            }
            Some(Change::Gather) => {
                self.spreads = false;
                let away = self.connections.iter().filter(|(_, client)| client.is_away());
                self.gathering = away.map(|(id, _)| *id).collect();
            }
        }
    }

    /// Describes the current use of the I/O threads; `None` without threads.
    pub(crate) fn choice(&self) -> Option<String> {
        let (threads, clients) = self.threads.counts();
        (threads > 0).then(|| {
            let all = self.connections.len();
            format!("{clients} of {all} clients are served by {threads} I/O threads")
        })
    }

    /// Returns the counters, including the system calls of the threads.
    pub(crate) fn all_stats(&self) -> Stats {
        let [calls_client_read, calls_client_write, calls_io_thread_wait] = self.threads.calls();
        let threads = Stats {
            calls_client_read,
            calls_client_write,
            calls_io_thread_wait,
            ..Stats::default()
        };
        self.stats.plus(&threads)
    }

    /// Hands a connection over to an I/O thread, if that is allowed ([io-2]).
    pub(super) fn send_away(&mut self, id: ConnectionId, cx: &mut Cx<'_, impl ClientSide>) {
        let Some(client) = self.connections.get_mut(&id) else {
            return;
        };
        client.reads = client.reads.saturating_add(1);
        let may = client.may_leave
            && (client.reads >= READS_MIN || self.limits.spread == Spread::Always)
            && client.stage == Stage::Open
            && !client.paused
            && client.backlog.is_empty()
            && matches!(&client.place, SocketOwner::Here(here) if here.may_leave());
        if !may {
            return;
        }
        if let Err(error) = self.threads.start() {
            tracing::warn!(%error, "cannot start an I/O thread; clients stay with the main thread");
            self.spreads = false;
            return;
        }
        let Some(thread) = self.threads.least_used() else {
            self.spreads = false;
            return;
        };
        let Some(client) = self.connections.get_mut(&id) else {
            return;
        };
        let away = SocketOwner::Away(ThreadSocket {
            thread,
            handed_bytes: 0,
            reads: true,
            recalled: false,
        });
        if let SocketOwner::Here(here) = std::mem::replace(&mut client.place, away) {
            cx.sources.release(&here.socket, here.token);
            self.threads.adopt(thread, id, here.socket);
            self.stats.io_thread_moves += 1;
            // The front still holds the replies to the input that was just read.
            self.dirty.push(id);
        }
    }

    /// Recalls the socket of a connection from its thread ([io-9]).
    pub(super) fn recall_socket(&mut self, id: ConnectionId) {
        if let Some(Client { place: SocketOwner::Away(away), .. }) = self.connections.get_mut(&id) {
            away.recall_socket(id, &mut self.threads);
            away.recalled = true;
        }
    }

    /// Passes the front's output to the thread, as far as its ring has space.
    pub(super) fn hand_over(&mut self, id: ConnectionId, cx: &mut Cx<'_, impl ClientSide>) {
        let Some(client) = self.connections.get_mut(&id) else {
            return;
        };
        let SocketOwner::Away(away) = &mut client.place else {
            return;
        };
        if away.recalled {
            // Output continues here once the socket is back.
            return;
        }
        let output = cx.host.front_mut().output(id);
        let all = output.len();
        if all > OUTPUT_BYTES_MAX {
            client.may_leave = false;
            return self.recall_socket(id);
        }
        let before = away.handed_bytes;
        while away.handed_bytes < all {
            let end = all.min(away.handed_bytes + RECORD_BYTES_MAX);
            if !self.threads.output(away.thread, id, &output[away.handed_bytes..end]) {
                self.dirty.push(id);
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
    pub(crate) fn on_threads(&mut self, cx: &mut Cx<'_, impl ClientSide>) {
        for thread in 0..self.threads.begin_turn() {
            while let Some(up) = self.threads.next_record(thread, &mut self.scratch) {
                self.stats.io_thread_records += 1;
                match up {
                    ThreadRecord::Input { id, written, count } => {
                        self.acknowledge(id, written, cx);
                        self.handle_received(id, count, cx);
                    }
                    ThreadRecord::Written { id, written } => self.acknowledge(id, written, cx),
                    ThreadRecord::Returned { id, written, why, socket } => {
                        self.acknowledge(id, written, cx);
                        self.come_back(id, socket, why, cx);
                    }
                    ThreadRecord::Ended(thread) => self.lose_all(thread, cx),
                }
            }
        }
    }

    fn acknowledge(&mut self, id: ConnectionId, written: usize, cx: &mut Cx<'_, impl ClientSide>) {
        let Some(Client { place: SocketOwner::Away(away), .. }) = self.connections.get_mut(&id)
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
            self.dirty.push(id);
        }
    }

    /// Handles `count` received bytes in `scratch`.
    fn handle_received(
        &mut self,
        id: ConnectionId,
        count: usize,
        cx: &mut Cx<'_, impl ClientSide>,
    ) {
        self.is_reading_suspended = self.is_held(cx.host);
        let Some(client) = self.connections.get_mut(&id) else {
            return;
        };
        if client.stage != Stage::Open {
            return;
        }
        self.stats.client_bytes_in += count as u64;
        if !self.is_reading_suspended && !client.paused && client.backlog.is_empty() {
            return self.feed(id, count, cx);
        }
        append_backlog(&mut client.backlog, &self.scratch[..count]);
        self.backlog_bytes += count;
        if client.paused {
            return;
        }
        if self.is_reading_suspended {
            self.stats.client_holds += 1;
            return self.pause(id, cx);
        }
        self.feed(id, 0, cx);
        if let Some(client) = self.connections.get_mut(&id)
            && !client.paused
            && client.backlog.len() > BACKLOG_BYTES_MAX
        {
            client.may_leave = false;
            self.recall_socket(id);
        }
    }

    fn come_back(
        &mut self,
        id: ConnectionId,
        socket: Socket,
        why: Return,
        cx: &mut Cx<'_, impl ClientSide>,
    ) {
        let Some(client) = self.connections.get_mut(&id) else {
            // The connection was closed in the meantime. Dropping the socket closes it.
            return;
        };
        if let SocketOwner::Away(away) = &client.place {
            self.handed_bytes -= away.handed_bytes;
            // A thread that could not watch this socket would fail again.
            client.may_leave &= away.recalled;
        }
        let interest = Interest::READ;
        match cx.sources.add(&socket, Source::Client(id), interest) {
            Ok(token) => {
                client.place =
                    SocketOwner::Here(ReactorSocket { socket, token, interest, blocked: false });
            }
            Err(error) => {
                tracing::warn!(%error, "cannot register a client connection with the poller");
                return self.forget_lost(id, cx);
            }
        }
        self.dirty.push(id);
        match why {
            Return::Broken => return self.close_client(id, cx),
            // A TLS session does not report the end of input a second time.
            Return::Ended => self.half_close(id, cx),
            Return::Asked => self.read_all(id, cx),
        }
        self.register_interest(id, cx);
    }

    /// Forgets a connection whose socket no longer exists.
    fn forget_lost(&mut self, id: ConnectionId, cx: &mut Cx<'_, impl ClientSide>) {
        if let Some(client) = self.connections.remove(&id) {
            if let SocketOwner::Away(away) = &client.place {
                self.handed_bytes -= away.handed_bytes;
            }
            self.forget_client(id, &client, cx);
        }
    }

    /// [io-12] Closes the connections of a thread that ended.
    fn lose_all(&mut self, thread: usize, cx: &mut Cx<'_, impl ClientSide>) {
        let lost = self.connections.iter().filter(
            |(_, client)| matches!(&client.place, SocketOwner::Away(away) if away.thread == thread),
        );
        let lost: Vec<_> = lost.map(|(id, _)| *id).collect();
        tracing::warn!(clients = lost.len(), "an I/O thread ended; its clients are disconnected");
        for id in lost {
            self.forget_lost(id, cx);
        }
    }
}
