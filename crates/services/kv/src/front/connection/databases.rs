//! The database that a connection has selected: SELECT, and transactions that contain it ([db-7]).

use quorate_replica::front::{Failure, Requests};

use super::Connection;
use crate::{
    commands::selection::parse_database, commands::state::TOO_LARGE, front::shared::Shared,
    store::Database,
};

impl Connection {
    /// Returns the database of the next command: that of the transaction, or the selected one.
    pub(super) fn database(&self) -> Database {
        self.transaction.as_ref().map_or(self.database, |multi| multi.database)
    }

    /// Handles SELECT. In a transaction, it counts for the commands queued after it, and for the
    /// connection once EXEC was executed. A database that clients cannot use now makes EXEC fail:
    /// the commands after it are meant for that database. As in Redis, a number that is none only
    /// becomes an error in EXEC's reply.
    pub(super) fn handle_select(
        &mut self,
        text: &[u8],
        shared: &mut Shared,
        requests: &mut dyn Requests,
    ) {
        let database = match parse_database(text) {
            Ok(database) => database,
            Err(text) => return self.send_error_in_order(text, shared, requests),
        };
        if let Err(text) = shared.check_database(database, requests) {
            return self.refuse_request(&text, shared);
        }
        match &mut self.transaction {
            Some(multi) => multi.database = database,
            None => self.database = database,
        }
        shared.fresh_reply().ok();
        self.send_reply_in_order(shared, requests);
    }

    /// Records that the next request is an EXEC that ends in `database`.
    pub(super) fn expect_database(&mut self, database: Database) {
        if database != self.database {
            self.pending_database = Some((self.order.end(), database));
        }
    }

    fn take_pending(&mut self, number: u64) -> Option<Database> {
        let (_, database) = self.pending_database.take_if(|(exec, _)| *exec == number)?;
        Some(database)
    }

    /// Selects the database in which an EXEC ended, if the reply shows that it was executed.
    pub(super) fn adopt_database(&mut self, number: u64, reply: &[u8], shared: &mut Shared) {
        if let Some(database) = self.take_pending(number)
            && was_executed(reply)
        {
            self.database = database;
            if let Some(entry) = shared.clients.entry_mut(self.client_slot) {
                entry.database = database.number();
            }
        }
    }

    /// Keeps the selected database, because an EXEC was not executed. If it may have been, the
    /// connection closes behind the reply: a later command could change the wrong database.
    pub(super) fn keep_database(&mut self, number: u64, failure: Failure) {
        if self.take_pending(number).is_some() && may_have_been_executed(failure) {
            self.end();
        }
    }

    /// Keeps the selected database if the EXEC was answered without having been sent.
    pub(super) fn forget_unsent_exec(&mut self) {
        if let Some((exec, _)) = self.pending_database
            && !self.order.is_open(exec)
        {
            self.pending_database = None;
        }
    }
}

/// Returns whether a write that failed like this may have been executed, in this attempt or, under
/// the same number, in an earlier one.
const fn may_have_been_executed(failure: Failure) -> bool {
    match failure {
        Failure::Unknown | Failure::NotLasting | Failure::NoSession | Failure::ReplyForgotten => {
            true
        }
        Failure::Busy
        | Failure::NoQuorum
        | Failure::TooBig
        | Failure::Stopping
        | Failure::Removed
        | Failure::Voteless
        | Failure::Unavailable
        | Failure::DiskFull(_)
        | Failure::Diverged
        | Failure::SessionFull
        | Failure::Stale
        | Failure::Level
        | Failure::Overtaken => false,
    }
}

/// Returns whether an EXEC with this reply executed its commands.
fn was_executed(reply: &[u8]) -> bool {
    let too_large = reply.strip_prefix(b"-").and_then(|text| text.strip_suffix(b"\r\n"));
    let too_large = too_large == Some(TOO_LARGE.as_bytes());
    reply.starts_with(b"*") || too_large
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resp::reply::Reply;

    #[test]
    fn only_an_array_or_a_reply_too_large_shows_that_exec_was_executed() {
        let reply = |write: &dyn Fn(&mut Reply<'_>)| {
            let mut bytes = Vec::new();
            write(&mut Reply(&mut bytes));
            was_executed(&bytes)
        };
        assert!(reply(&|r| r.array(0)) && reply(&|r| r.array(2)));
        assert!(reply(&|r| r.error(TOO_LARGE)));
        assert!(!reply(&|r| r.null_array()) && !reply(&|r| r.null()));
        assert!(!reply(&|r| r.error("EXECABORT Transaction discarded")));
        assert!(!reply(&|r| r.error("TOOBIG not executed")));
    }
}
