//! Client operations and their replies, in the order in which they happened.

/// Operation of a client on one key. Values are unique within a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Act {
    /// SET without a deadline.
    Set(i64),
    /// SET with a deadline: the key may vanish from now on.
    SetExpiring(i64),
    /// DEL of the key.
    Delete,
    /// GET of the key.
    Get,
    /// INCR of the key.
    Increment,
    /// WATCH and a GET that returned `seen`, then MULTI, SET `new`, EXEC.
    Swap {
        /// Old value of the key.
        seen: Option<i64>,
        /// New value of the key.
        new: i64,
    },
}

/// Outcome of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Answer {
    /// The operation succeeded.
    Ok,
    /// Value of the key, or none.
    Value(Option<i64>),
    /// Counter after INCR.
    Number(i64),
    /// True if the key was deleted, false if it did not exist.
    Removed(bool),
    /// No reply, or "unknown": the operation may have been executed, or may yet be.
    Unknown,
}

/// One operation on one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation {
    /// Key of the operation.
    pub key: String,
    /// Index of the client.
    pub client: usize,
    /// Operation performed.
    pub act: Act,
    /// Moment of the request; moments are unique.
    pub called: u64,
    /// Moment of the reply; `u64::MAX` without one.
    pub returned: u64,
    /// Outcome of the operation.
    pub answer: Answer,
}

/// Every operation except those certainly not executed.
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

    /// Records an operation called at `called` that ends now. Operations that were certainly not
    /// executed are never recorded.
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
