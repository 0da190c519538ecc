//! Invariants that hold for any bytes read as users from a snapshot or the log.

use quorate_access::{Command, Role, Users, Who, command};

/// Unit of the table's length, the first byte. Commands follow, each after a byte with its length.
pub(crate) const UNIT: usize = 4;

/// Checks a table from a snapshot, and commands from the log on it.
pub(crate) fn check(bytes: &[u8]) {
    let Some((&units, rest)) = bytes.split_first() else {
        return;
    };
    let (table, commands) = rest.split_at(rest.len().min(usize::from(units) * UNIT));
    // Padded to a multiple of the unit.
    let end = table.iter().rposition(|byte| *byte != PAD).map_or(0, |last| last + 1);
    let mut users = Users::default();
    if let Some(read) = Users::decode(&table[..end]) {
        // [snap-1] Equal tables yield equal bytes.
        assert_eq!(read.encode(), &table[..end]);
        users = read;
    }
    let _ = command::decode_reply(&bytes[..bytes.len().min(2)]);
    execute(&mut users, commands);
}

/// Ends no table and no name.
pub(crate) const PAD: u8 = 0xff;

fn execute(users: &mut Users, mut commands: &[u8]) {
    while let Some((&length, rest)) = commands.split_first() {
        let (bytes, rest) = rest.split_at(rest.len().min(usize::from(length)));
        commands = rest;
        let before = users.encode();
        if let Some(command) = Command::decode(bytes) {
            assert_eq!(command.encode(), bytes);
        }
        match users.execute(bytes) {
            Ok(()) => can_be_changed(users),
            // [access-3] A refused command does not change the table.
            Err(denied) => {
                assert_eq!(users.encode(), before);
                assert!(!denied.to_string().is_empty());
            }
        }
        assert_eq!(Users::decode(&users.encode()).as_ref(), Some(&*users));
    }
}

/// [access-3] Checks that every caller may change an open table, and at least one user any other.
fn can_be_changed(users: &Users) {
    let admin = |(name, _): (&quorate_access::Name, &quorate_access::User)| {
        let by_certificate = users.role(&Who::Client(name.to_string()), None);
        let by_password = users.role(&Who::Anonymous, Some(name.as_str()));
        by_certificate.max(by_password) == Some(Role::Admin)
    };
    assert!(users.is_unrestricted() || users.iter().any(admin));
    // [access-1] No name makes a caller a node.
    assert!(users.is_unrestricted() || users.role(&Who::Anonymous, Some("")).is_none());
}
