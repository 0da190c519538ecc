//! A replica that fronts ask things in tests: it takes commands down, and answers nothing by
//! itself.

use quorate_replica::{
    front::{Failure, Requests, Sequenced, Tag},
    status::Status,
};

/// Requests of a front. A test ends them itself, by their tags.
#[derive(Debug, Default)]
pub struct Asked {
    /// Commands, in the order in which they came.
    pub written: Vec<(Tag, Vec<u8>)>,
    /// The same, of those that are to be answered when they are on stable storage at a quorum.
    pub lasting: Vec<(Tag, Vec<u8>)>,
    /// The same, of those that are to be answered when they are in memory at a quorum.
    pub early: Vec<(Tag, Vec<u8>)>,
    /// Requests that the front waits for no more.
    pub forgotten: Vec<Tag>,
    /// Refuse commands.
    pub busy: bool,
    /// What time it is.
    pub wall_ms: u64,
    /// It does not know the group's clock.
    pub without_clock: bool,
    /// Most bytes of a command; it is for the front to look at that.
    pub command_bytes_max: usize,
}

impl Asked {
    /// One that has no room for anything.
    #[must_use]
    pub fn busy() -> Self {
        Self { busy: true, ..Self::default() }
    }

    /// One that takes commands of at most so many bytes.
    #[must_use]
    pub fn taking(command_bytes_max: usize) -> Self {
        Self { command_bytes_max, ..Self::default() }
    }
}

impl Requests for Asked {
    fn write(&mut self, tag: Tag, command: &[u8]) -> Result<(), Failure> {
        if self.busy {
            return Err(Failure::Busy);
        }
        self.written.push((tag, command.to_vec()));
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
        self.lasting.push((tag, command.to_vec()));
        Ok(())
    }

    fn write_early(&mut self, tag: Tag, command: &[u8]) -> Result<(), Failure> {
        self.early.push((tag, command.to_vec()));
        Ok(())
    }

    fn register(&mut self, _: Tag) -> Result<(), Failure> {
        Err(Failure::Busy)
    }

    fn read(&mut self, _: Tag) -> Result<(), Failure> {
        Err(Failure::Busy)
    }

    fn read_in_order(&mut self, _: Tag) -> Result<(), Failure> {
        Err(Failure::Busy)
    }

    fn forget(&mut self, tag: Tag) {
        self.forgotten.push(tag);
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
        !self.without_clock
    }

    fn command_bytes_max(&self) -> usize {
        self.command_bytes_max
    }
}
