//! Client operations and their replies, in the order in which they happened.

/// Operation of a client on one key. Values are unique within a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KeyAction {
    /// SET without an expiry.
    Set(i64),
    /// SET with an expiry. The key may disappear at any time after it.
    SetExpiring(i64),
    Delete,
    Get,
    Increment,
    /// WATCH and a GET that returned `seen`, then MULTI, SET `new`, EXEC.
    Swap {
        seen: Option<i64>,
        new: i64,
    },
}

/// Reply to an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OperationReply {
    Ok,
    /// Value of the key, or `None` if the key does not exist.
    Value(Option<i64>),
    /// Value of the counter after the INCR.
    Number(i64),
    /// True if the key was deleted, false if it did not exist.
    Removed(bool),
    /// No reply, or an error that leaves the outcome open. The operation may have been executed, or
    /// may still be executed later.
    Unknown,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation {
    pub key: String,
    pub client: usize,
    pub action: KeyAction,
    /// Moment of the request, from [`ClientHistory::next_moment`]. Moments are unique.
    pub called_at: u64,
    /// Moment of the reply; `u64::MAX` if there was none.
    pub returned_at: u64,
    pub reply: OperationReply,
}

/// Operations of all clients. Leaves out those that were certainly not executed, and reads without
/// a reply.
#[derive(Debug, Default)]
pub struct ClientHistory {
    last_moment: u64,
    operations: Vec<Operation>,
}

impl ClientHistory {
    /// Returns the next moment. Moments order requests and replies.
    pub fn next_moment(&mut self) -> u64 {
        self.last_moment += 1;
        self.last_moment
    }

    /// Records an operation that was called at `called` and ends now. The caller must not record
    /// operations that were certainly not executed. A read without a reply is dropped.
    pub fn record_operation(
        &mut self,
        client: usize,
        key: &str,
        act: KeyAction,
        called: u64,
        answer: OperationReply,
    ) {
        let returned =
            if answer == OperationReply::Unknown { u64::MAX } else { self.next_moment() };
        if answer == OperationReply::Unknown && act == KeyAction::Get {
            return;
        }
        let key = key.to_owned();
        self.operations.push(Operation {
            key,
            client,
            action: act,
            called_at: called,
            returned_at: returned,
            reply: answer,
        });
    }

    pub fn operations(&self) -> &[Operation] {
        &self.operations
    }
}
