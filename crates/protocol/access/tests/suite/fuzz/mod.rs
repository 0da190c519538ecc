//! Hostile tables of users and commands: the corpus of the fuzz target `users` and mutations of it.

mod tables;

use crate::driver::{self, Seed};
use quorate_access::{Command, Password, Role, Users};

const HASH: &str = "$argon2id$v=19$m=8,t=1,p=1$c2FsdHNhbHQ$aGFzaA";

fn set(name: &str, role: Option<Role>, password: Password) -> Command {
    Command::Set { name: name.to_owned(), role, password }
}

fn hash() -> Password {
    Password::Hash(HASH.to_owned())
}

fn packed(table: &[Command], commands: &[Command]) -> Vec<u8> {
    let mut users = Users::default();
    for command in table {
        users.execute(&command.encode()).expect("a seed");
    }
    let mut bytes = users.encode();
    bytes.resize(bytes.len().next_multiple_of(tables::UNIT), tables::PAD);
    let units = u8::try_from(bytes.len() / tables::UNIT).expect("a short seed");
    bytes.insert(0, units);
    for command in commands {
        let command = command.encode();
        bytes.push(u8::try_from(command.len()).expect("a short seed"));
        bytes.extend(command);
    }
    bytes
}

fn seeds() -> Vec<Seed> {
    let ann = || set("ann", Some(Role::Admin), Password::None);
    let bob = || set("bob", Some(Role::Reader), hash());
    let default = || set("default", Some(Role::Reader), Password::None);
    let remove = |name: &str| Command::Remove { name: name.to_owned() };
    let all: [(&str, Vec<Command>, Vec<Command>); 5] = [
        ("nobody", vec![], vec![]),
        ("the-first", vec![], vec![bob(), ann(), bob()]),
        ("the-last", vec![ann()], vec![remove("ann"), Command::Open]),
        (
            "changed",
            vec![ann(), bob(), default()],
            vec![
                set("bob", Some(Role::Operator), Password::Keep),
                set("bob", None, Password::None),
                remove("default"),
            ],
        ),
        (
            "by-password",
            vec![set("default", Some(Role::Admin), hash())],
            vec![set("default", None, Password::None), default()],
        ),
    ];
    let seed = |(name, table, commands): (&str, Vec<Command>, Vec<Command>)| Seed {
        name: name.to_owned(),
        bytes: packed(&table, &commands),
    };
    all.into_iter().map(seed).collect()
}

#[test]
fn no_bytes_of_a_table_of_users_break_the_rules() {
    driver::run("users", &seeds(), 40_000, tables::check);
}

/// The seeds are accepted: mutations of bytes that are refused at once would test nothing.
#[test]
fn the_seeds_are_read() {
    for seed in seeds() {
        let units = usize::from(seed.bytes[0]);
        let table = &seed.bytes[1..][..units * tables::UNIT];
        let padded = table.iter().rev().take_while(|byte| **byte == tables::PAD);
        let end = table.len() - padded.count();
        let users = Users::decode(&table[..end]);
        assert!(users.is_some(), "{}", seed.name);
    }
}
