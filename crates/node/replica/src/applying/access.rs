//! The table of users as of the applied slots ([access-2]). It is stored with the service's state
//! and is part of every snapshot ([snap-1]).

use std::cell::Cell;

use quorate_access::{Command, Reply, Users, command::encode_reply};

use crate::{
    applying::sessions::UnreadableMetadata,
    ports::service::{MetaChange, Metadata},
};

/// Metadata key of the users in a persistent service, distinct from the keys of sessions. Absent if
/// there are no users.
pub(crate) const USERS_KEY: &[u8] = b"users";

/// Table of users, and the knowledge whether it is current.
#[derive(Clone, Debug, Default)]
pub(crate) struct Access {
    users: Users,
    /// Number of events that may have changed the users.
    version: u64,
    /// The latest change has not been passed to the service for storage.
    is_unsaved: bool,
    /// [access-4] The table is at least as recent as the one in use before the last start.
    is_current: bool,
    /// A caller needed permissions while the table was not known.
    is_needed: Cell<bool>,
}

impl Access {
    /// Restores the users from the metadata of a service or a snapshot, and removes their entry.
    /// The entry may be older than the table that this node used before.
    pub(crate) fn restore(&mut self, meta: &mut Metadata) -> Result<(), UnreadableMetadata> {
        let kept = meta.extract_if(.., |(key, _)| key == USERS_KEY).next();
        self.users = match kept {
            Some((key, value)) => Users::decode(&value).ok_or(UnreadableMetadata { key })?,
            None => Users::NONE,
        };
        self.version += 1;
        self.is_unsaved = false;
        self.is_current = false;
        Ok(())
    }

    /// [access-4] Marks the table as known. After a start or a restore, a node uses no table until
    /// a linearizable read has shown that it is current.
    pub(crate) fn mark_current(&mut self) {
        self.is_current = true;
        self.is_needed.set(false);
    }

    /// Returns whether a caller waits for the table to be known.
    pub(crate) fn is_awaited(&self) -> bool {
        !self.is_current && self.is_needed.get()
    }

    /// Returns the users, if the table is known.
    pub(crate) fn users(&self) -> Option<&Users> {
        if !self.is_current {
            self.is_needed.set(true);
        }
        self.is_current.then_some(&self.users)
    }

    /// Returns a number that increases whenever the users may have changed.
    pub(crate) const fn version(&self) -> u64 {
        self.version
    }

    /// Returns the reply that a command would get now, without executing it.
    pub(crate) fn preview_reply(&self, command: Command) -> Reply {
        self.users.after_command(command).map(|_| ())
    }

    /// Executes a command from the log and appends its encoded reply.
    pub(crate) fn execute(&mut self, command: &[u8], reply: &mut Vec<u8>) -> Reply {
        let done = self.users.execute(command);
        if done.is_ok() {
            self.version += 1;
            self.is_unsaved = true;
        }
        encode_reply(done, reply);
        done
    }

    /// Returns the change that the service still has to store, if any.
    pub(crate) fn take_change(&mut self) -> Option<MetaChange> {
        let unsaved = std::mem::take(&mut self.is_unsaved);
        unsaved.then(|| MetaChange {
            key: USERS_KEY.to_vec(),
            value: (!self.users.is_unrestricted()).then(|| self.users.encode()),
        })
    }

    /// Encodes the users for a snapshot, the same on all nodes that applied the same slots.
    pub(crate) fn encode_entry(&self) -> Option<(Vec<u8>, Vec<u8>)> {
        (!self.users.is_unrestricted()).then(|| (USERS_KEY.to_vec(), self.users.encode()))
    }
}

#[cfg(test)]
mod tests {
    use quorate_access::{Password, Role};

    use super::*;

    fn set(name: &str, role: Role) -> Vec<u8> {
        let command =
            Command::Set { name: name.to_owned(), role: Some(role), password: Password::None };
        command.encode()
    }

    #[test]
    fn users_are_restored_and_an_empty_table_stores_nothing() {
        let mut access = Access::default();
        access.restore(&mut Metadata::new()).unwrap();
        assert_eq!((access.take_change(), access.encode_entry()), (None, None));
        let version = access.version();
        access.execute(&set("ann", Role::Admin), &mut Vec::new()).unwrap();
        assert!(access.version() > version);
        let kept = access.take_change().unwrap();
        assert_eq!(access.take_change(), None, "it is kept");
        let row = (kept.key, kept.value.unwrap());
        assert_eq!(access.encode_entry(), Some(row.clone()));
        let mut meta = vec![row, (b"other".to_vec(), vec![])];
        let mut again = Access::default();
        again.restore(&mut meta).unwrap();
        assert_eq!(meta, [(b"other".to_vec(), vec![])]);
        assert_eq!(again.users, access.users);
        access.execute(&Command::Open.encode(), &mut Vec::new()).unwrap();
        let kept = access.take_change().unwrap();
        assert_eq!(kept.value, None, "the row goes");
        let mut damaged = vec![(USERS_KEY.to_vec(), vec![9])];
        assert!(again.restore(&mut damaged).is_err());
    }

    /// [access-4] After a start, the old table of users is not used until a read is confirmed.
    #[test]
    fn user_table_is_unused_until_a_read_is_confirmed() {
        let mut access = Access::default();
        access.restore(&mut Metadata::new()).unwrap();
        assert!(!access.is_awaited(), "nothing asked");
        assert_eq!(access.users(), None);
        assert!(access.is_awaited());
        access.mark_current();
        assert!(access.users().is_some() && !access.is_awaited());
        // The node loaded a snapshot.
        access.restore(&mut Metadata::new()).unwrap();
        assert_eq!(access.users(), None);
    }
}
