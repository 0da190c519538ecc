//! Hostile bytes from a program, from a node, from the log, and from a snapshot.

mod check;
mod libpaxos;

use crate::driver::{self, Seed};
use quorate::SessionId;
use quorate_capi::{
    attach::frames::{Answer, NO_SESSION, Request, VERSION},
    source::Cursor,
    values::command::{Command, Reply, Values, WhenFull},
};

const VALUES: &[u8] = b"\x05\0\0\0value\0\0\0\0";

fn seeds() -> Vec<Seed> {
    let session = SessionId { slot: 7, index: 1 };
    let mut asks = Vec::new();
    for ask in [
        Request::Hello { version: VERSION },
        Request::Register { id: 1 },
        Request::Append {
            id: 2,
            session,
            sequence: 3,
            acknowledged_below: 2,
            values: Values::parse(VALUES, 5).expect("values"),
        },
        Request::Trim { id: 3, below: 9 },
        Request::Sync { id: 4 },
        Request::Status { id: 5 },
        Request::Deliver { delivery_epoch: 1, from: Cursor::Oldest },
        Request::Taken { delivery_epoch: 1, slot: 8 },
    ] {
        ask.encode(&mut asks);
    }
    let mut answers = Vec::new();
    let text = "no\nhint";
    for answer in [
        Answer::Welcome { version: VERSION, cluster_id: 7, node_id: 1, value_bytes_max: 100 },
        Answer::Registered { id: 1, session },
        Answer::Done { id: 2, code: NO_SESSION, slot: 4, text },
        Answer::Value { delivery_epoch: 1, slot: 4, value: b"" },
        Answer::Forgotten { delivery_epoch: 1, first_retained: 9 },
        Answer::Alive,
        Answer::Appended { id: 2, slot: 4, count: 1, text },
    ] {
        answer.encode(&mut answers);
    }
    let append = |value: &'static [u8], when_full| {
        let held_max = 1000;
        Command::Append { retained_bytes_max: held_max, when_full, value }
    };
    let commands = [
        append(b"one", WhenFull::Refuse),
        append(b"", WhenFull::ForgetOldest),
        Command::Trim { below: 2 },
        Command::Bundle {
            retained_bytes_max: 1000,
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
    Reply::Full { first_retained: 1, retained_bytes: 2 }.encode(&mut reply);
    let mut bundled = Vec::new();
    Reply::Bundled { first_slot: 1, appended_count: 2, first_retained: 3, retained_bytes: 4 }
        .encode(&mut bundled);
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
