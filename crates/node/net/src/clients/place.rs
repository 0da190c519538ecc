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
    Here(ReactorSocket),
    Away(ThreadSocket),
}

/// A socket that the reactor owns.
#[derive(Debug)]
pub(super) struct ReactorSocket {
    pub(super) socket: Socket,
    pub(super) token: Token,
    pub(super) interest: Interest,
    /// The socket's send buffer is full.
    pub(super) blocked: bool,
}

/// A connection whose socket an I/O thread owns.
#[derive(Debug)]
pub(super) struct ThreadSocket {
    pub(super) thread: usize,
    /// Number of bytes at the start of the front's output that the thread has but has not written.
    pub(super) handed_bytes: usize,
    /// The thread reads from the socket.
    pub(super) reads: bool,
    /// The socket was recalled, and the thread is given no more output.
    pub(super) recalled: bool,
}

impl ThreadSocket {
    pub(super) fn set_reading(&mut self, id: ConnectionId, reads: bool, threads: &mut Threads) {
        if reads != self.reads && !self.recalled {
            self.reads = reads;
            threads.set_reading(self.thread, id, reads);
        }
    }

    pub(super) fn recall_socket(&self, id: ConnectionId, threads: &mut Threads) {
        if !self.recalled {
            threads.recall_socket(self.thread, id);
        }
    }
}

impl ReactorSocket {
    /// Returns whether the socket can change its owner.
    pub(super) fn may_leave(&self) -> bool {
        !self.blocked && !self.socket.has_unsent() && self.socket.is_established()
    }
}
