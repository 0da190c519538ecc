//! Operations of clients and the replies to them, in the order in which they happened.

/// Operation of a client on one key. Values are unique within a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Act {
    /// SET, without a deadline.
    Set(i64),
    /// SET with a deadline: from now on the key may vanish.
    SetExpiring(i64),
    /// DEL.
    Delete,
    /// GET.
    Get,
    /// INCR.
    Increment,
    /// WATCH, GET gave `seen`, then MULTI, SET `new`, EXEC.
    Swap {
        /// Old value of the key.
        seen: Option<i64>,
        /// New value of the key.
        new: i64,
    },
}

/// Reply to the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Answer {
    /// Done.
    Ok,
    /// The key's value, or none.
    Value(Option<i64>),
    /// The number after INCR.
    Number(i64),
    /// Deleted, or `false` if there was nothing to delete.
    Removed(bool),
    /// Nothing, or "unknown": it may have been executed, or may yet be.
    Unknown,
}

/// One operation on one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation {
    /// Which key.
    pub key: String,
    /// Client that asked.
    pub client: usize,
    /// What.
    pub act: Act,
    /// When; moments are unique.
    pub called: u64,
    /// When it was answered; the end of time if it was not.
    pub returned: u64,
    /// The answer.
    pub answer: Answer,
}

/// Everything that was asked and not refused for certain.
#[derive(Debug, Default)]
pub struct History {
    moment: u64,
    operations: Vec<Operation>,
}

impl History {
    /// Returns the next moment.
    pub fn moment(&mut self) -> u64 {
        self.moment += 1;
        self.moment
    }

    /// Records an operation that was called at `called` and has now ended. An operation that is
    /// certainly not executed is not recorded at all.
    pub fn ended(&mut self, client: usize, key: &str, act: Act, called: u64, answer: Answer) {
        let returned = if answer == Answer::Unknown { u64::MAX } else { self.moment() };
        if answer == Answer::Unknown && act == Act::Get {
            return;
        }
        let key = key.to_owned();
        self.operations.push(Operation { key, client, act, called, returned, answer });
    }

    /// Returns all operations.
    pub fn operations(&self) -> &[Operation] {
        &self.operations
    }
}
