//! Fake replica for tests of front ends. It records commands, and the test completes them.

use quorate_replica::{
    front::{Failure, Requests, Sequenced, Tag},
    status::Status,
};

/// Fake replica. The test completes each request by its tag.
#[derive(Debug, Default)]
pub struct FakeReplica {
    /// Commands without an acknowledgement level, in the order received.
    pub unacknowledged_commands: Vec<(Tag, Vec<u8>)>,
    /// Commands to acknowledge once they are on stable storage at a quorum.
    pub durable_commands: Vec<(Tag, Vec<u8>)>,
    /// Commands to acknowledge once they are in memory at a quorum.
    pub memory_commands: Vec<(Tag, Vec<u8>)>,
    /// Tags of the requests that the frontend abandoned.
    pub abandoned_tags: Vec<Tag>,
    /// Set if all commands are refused as busy.
    pub is_busy: bool,
    /// Current wall-clock time in milliseconds.
    pub wall_ms: u64,
    /// Set if the group's clock is unknown.
    pub lacks_clock: bool,
    /// Maximum size of a command in bytes, which only the frontend checks.
    pub command_bytes_max: usize,
}

impl FakeReplica {
    /// Creates a replica that refuses all commands as busy.
    #[must_use]
    pub fn busy() -> Self {
        Self { is_busy: true, ..Self::default() }
    }

    /// Creates a replica with a limit on the size of a command in bytes.
    #[must_use]
    pub fn with_command_limit(command_bytes_max: usize) -> Self {
        Self { command_bytes_max, ..Self::default() }
    }
}

impl Requests for FakeReplica {
    fn write(&mut self, tag: Tag, command: &[u8]) -> Result<(), Failure> {
        if self.is_busy {
            return Err(Failure::Busy);
        }
        self.unacknowledged_commands.push((tag, command.to_vec()));
        Ok(())
    }

    fn write_once(&mut self, _: Tag, _: Sequenced, _: &[u8]) -> Result<(), Failure> {
        Err(Failure::NoSession)
    }

    fn write_lasting(
        &mut self,
        tag: Tag,
        _: Option<Sequenced>,
        command: &[u8],
    ) -> Result<(), Failure> {
        self.durable_commands.push((tag, command.to_vec()));
        Ok(())
    }

    fn write_early(&mut self, tag: Tag, command: &[u8]) -> Result<(), Failure> {
        self.memory_commands.push((tag, command.to_vec()));
        Ok(())
    }

    fn register(&mut self, _: Tag) -> Result<(), Failure> {
        Err(Failure::Busy)
    }

    fn read(&mut self, _: Tag) -> Result<(), Failure> {
        Err(Failure::Busy)
    }

    fn queue_read(&mut self, _: Tag) -> Result<(), Failure> {
        Err(Failure::Busy)
    }

    fn drop_requests(&mut self, tag: Tag) {
        self.abandoned_tags.push(tag);
    }

    fn query(&mut self, _: &[u8], _: &mut Vec<u8>) -> Result<(), Failure> {
        Ok(())
    }

    fn status(&self) -> Status {
        unreachable!("this replica has no status; a front that asks for it needs another one")
    }

    fn wall_ms(&self) -> u64 {
        self.wall_ms
    }

    fn knows_clock(&self) -> bool {
        !self.lacks_clock
    }

    fn command_bytes_max(&self) -> usize {
        self.command_bytes_max
    }
}
