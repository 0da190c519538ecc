//! The owner of a client's socket: the reactor or an I/O thread.

use quorate_replica::front::ConnectionId;

use crate::{
    sources::{Interest, Token},
    tcp::socket::Socket,
    threads::Threads,
};

/// Owner of a client's socket ([io-1]).
#[derive(Debug)]
pub(super) enum SocketOwner {
    Reactor(ReactorSocket),
    Thread(ThreadSocket),
}

/// A socket that the reactor owns.
#[derive(Debug)]
pub(super) struct ReactorSocket {
    pub(super) socket: Socket,
    pub(super) token: Token,
    pub(super) interest: Interest,
    /// The socket's send buffer is full.
    pub(super) is_send_blocked: bool,
}

/// A connection whose socket an I/O thread owns.
#[derive(Debug)]
pub(super) struct ThreadSocket {
    pub(super) thread: usize,
    /// Number of bytes at the start of the front's output that the thread has but has not written.
    pub(super) handed_bytes: usize,
    /// The thread reads from the socket.
    pub(super) is_reading: bool,
    /// The socket was recalled, and the thread is given no more output.
    pub(super) is_recalled: bool,
}

impl ThreadSocket {
    pub(super) fn set_reading(&mut self, id: ConnectionId, reads: bool, threads: &mut Threads) {
        if reads != self.is_reading && !self.is_recalled {
            self.is_reading = reads;
            threads.set_reading(self.thread, id, reads);
        }
    }

    pub(super) fn recall_socket(&self, id: ConnectionId, threads: &mut Threads) {
        if !self.is_recalled {
            threads.recall_socket(self.thread, id);
        }
    }
}

impl ReactorSocket {
    /// Returns whether the socket can change its owner.
    pub(super) fn may_be_handed_over(&self) -> bool {
        !self.is_send_blocked && !self.socket.has_unsent_output() && self.socket.is_established()
    }
}
