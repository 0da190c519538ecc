//! What a front asks, put into this replica's queues.

use quorate_core::time::Time;
use quorate_disk::Disk;

use super::Replica;
use crate::{
    front::{Failure, Requests, Sequenced, Tag},
    service::StateMachine,
    status::Status,
};

/// A replica at one moment, for a front.
pub struct Requester<'a, D: Disk, S: StateMachine> {
    replica: &'a mut Replica<D, S>,
    now: Time,
    wall_ms: u64,
}

impl<'a, D: Disk, S: StateMachine> Requester<'a, D, S> {
    pub(super) fn new(replica: &'a mut Replica<D, S>, now: Time, wall_ms: u64) -> Self {
        Self {
            replica,
            now,
            wall_ms,
        }
    }

    fn accept(&mut self, tag: Tag, at: Option<Sequenced>, command: &[u8]) -> Result<(), Failure> {
        let replica = &mut *self.replica;
        replica.takes_requests()?;
        replica.applying.takes_commands()?;
        let taken = replica.proposing.accept(self.now, tag, at, command);
        self.count(taken)
    }

    fn count(&mut self, taken: Result<(), Failure>) -> Result<(), Failure> {
        let counters = &mut self.replica.counters;
        match taken {
            Ok(()) => {
                counters.commands_accepted += 1;
                self.replica.completions.opened();
            }
            Err(_) => counters.commands_busy += 1,
        }
        taken
    }
}

impl<D: Disk, S: StateMachine> Requests for Requester<'_, D, S> {
    fn write(&mut self, tag: Tag, command: &[u8]) -> Result<(), Failure> {
        self.accept(tag, None, command)
    }

    fn write_once(&mut self, tag: Tag, at: Sequenced, command: &[u8]) -> Result<(), Failure> {
        self.accept(tag, Some(at), command)
    }

    fn register(&mut self, tag: Tag) -> Result<(), Failure> {
        self.replica.takes_requests()?;
        self.replica.applying.takes_commands()?;
        let taken = self.replica.proposing.origin().register(self.now, tag);
        self.count(taken)
    }

    fn read(&mut self, tag: Tag) -> Result<(), Failure> {
        let replica = &mut *self.replica;
        replica.takes_requests()?;
        replica.applying.takes_reads()?;
        let taken = replica.reading.accept(self.now, tag);
        match taken {
            Ok(()) => {
                replica.counters.reads_asked += 1;
                replica.completions.opened();
            }
            Err(_) => replica.counters.commands_busy += 1,
        }
        taken
    }

    fn read_in_order(&mut self, tag: Tag) -> Result<(), Failure> {
        let replica = &mut *self.replica;
        replica.takes_requests()?;
        replica.applying.takes_commands()?;
        let taken = replica.proposing.origin().accept_read(self.now, tag);
        match taken {
            Ok(()) => {
                replica.counters.reads_in_order += 1;
                replica.completions.opened();
            }
            Err(_) => replica.counters.commands_busy += 1,
        }
        taken
    }

    fn forget(&mut self, tag: Tag) {
        self.replica.completions.forget(tag);
    }

    fn query(&mut self, query: &[u8], reply: &mut Vec<u8>) -> Result<(), Failure> {
        self.replica.applying.query(query, self.wall_ms, reply)
    }

    fn status(&self) -> Status {
        self.replica.status(self.now)
    }

    fn wall_ms(&self) -> u64 {
        self.wall_ms
    }

    fn command_bytes_max(&self) -> usize {
        self.replica.proposing.command_bytes_max()
    }
}

impl<D: Disk, S: StateMachine> Replica<D, S> {
    pub(super) fn takes_requests(&self) -> Result<(), Failure> {
        let over = self.ending.is_requested() || self.storing.failure().is_some();
        if over {
            return Err(Failure::Stopping);
        }
        // [aux-1] It executes nothing, so it would never know what to answer.
        if self.protocol.node().is_auxiliary() {
            return Err(Failure::Unavailable);
        }
        Ok(())
    }
}
