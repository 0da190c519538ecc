//! Hostile bytes from a program, from a node, from the log, and from a snapshot.

mod check;
mod libpaxos;

use crate::driver::{self, Seed};
use quorate::SessionId;
use quorate_capi::{
    attach::frames::{Answer, Ask, NO_SESSION, VERSION},
    source::Cursor,
    values::command::{Command, Reply, Values, WhenFull},
};

const VALUES: &[u8] = b"\x05\0\0\0value\0\0\0\0";

fn seeds() -> Vec<Seed> {
    let session = SessionId { slot: 7, index: 1 };
    let mut asks = Vec::new();
    for ask in [
        Ask::Hello { version: VERSION },
        Ask::Register { id: 1 },
        Ask::Append {
            id: 2,
            session,
            sequence: 3,
            acknowledged_below: 2,
            values: Values::parse(VALUES, 5).expect("values"),
        },
        Ask::Trim { id: 3, below: 9 },
        Ask::Sync { id: 4 },
        Ask::Status { id: 5 },
        Ask::Deliver { epoch: 1, from: Cursor::Oldest },
        Ask::Taken { epoch: 1, slot: 8 },
    ] {
        ask.encode(&mut asks);
    }
    let mut answers = Vec::new();
    let text = "no\nhint";
    for answer in [
        Answer::Welcome { version: VERSION, cluster: 7, node: 1, value_bytes_max: 100 },
        Answer::Registered { id: 1, session },
        Answer::Done { id: 2, code: NO_SESSION, slot: 4, text },
        Answer::Value { epoch: 1, slot: 4, value: b"" },
        Answer::Forgotten { epoch: 1, first: 9 },
        Answer::Alive,
        Answer::Appended { id: 2, slot: 4, count: 1, text },
    ] {
        answer.encode(&mut answers);
    }
    let append = |value: &'static [u8], when_full| {
        let held_max = 1000;
        Command::Append { held_max, when_full, value }
    };
    let commands = [
        append(b"one", WhenFull::Refuse),
        append(b"", WhenFull::ForgetOldest),
        Command::Trim { below: 2 },
        Command::Bundle {
            held_max: 1000,
            when_full: WhenFull::ForgetOldest,
            values: Values::parse(VALUES, 5).expect("values"),
        },
    ];
    let mut log = Vec::new();
    for command in commands {
        let command = command.encode();
        log.extend(u32::try_from(command.len()).expect("short").to_le_bytes());
        log.extend(command);
    }
    let mut reply = Vec::new();
    Reply::Full { first: 1, held: 2 }.encode(&mut reply);
    let mut bundled = Vec::new();
    Reply::Bundled { slot: 1, count: 2, first: 3, held: 4 }.encode(&mut bundled);
    [("asks", asks), ("answers", answers), ("log", log), ("reply", reply), ("bundled", bundled)]
        .map(|(name, bytes)| Seed { name: name.to_owned(), bytes })
        .into()
}

#[test]
fn no_bytes_of_a_program_or_node_of_values() {
    driver::run("values", &seeds(), 20_000, check::check);
}

#[test]
fn no_bytes_of_a_program_of_libpaxos() {
    driver::run("libpaxos", &libpaxos::seeds(), 20_000, libpaxos::check::check);
}
