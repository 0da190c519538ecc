//! Strangers on the port for attached programs, and impostors in place of nodes.

use std::{
    io::{ErrorKind, Read as _, Write as _},
    net::{Shutdown, TcpListener, TcpStream},
    thread,
};

use quorate::SessionId;
use quorate_capi::{
    attach::frames::{Answer, Request, VERSION, read_frame},
    error::Code,
    source::Cursor,
    submits::BUNDLE_BYTES_MAX,
    values::command::Values,
};

use super::{
    PATIENCE,
    attached::{address, attach},
    next, start, submit,
};

fn frame(ask: &Request<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    ask.encode(&mut bytes);
    bytes
}

fn hello() -> Vec<u8> {
    frame(&Request::Hello { version: VERSION })
}

#[test]
fn strangers_are_shown_out_and_nobody_else_notices() {
    let folder = tempfile::tempdir().expect("a folder");
    let more = [("listen", "127.0.0.1:0"), ("value-max", "1000")];
    let node = start(folder.path(), &more);
    let at = address(&node);
    let program = attach(&at, &[]);
    let after_hello = |bytes: &[u8]| [&hello()[..], bytes].concat();
    let too_long = after_hello(&u32::MAX.to_le_bytes());
    let append = |values| Request::Append {
        id: 1,
        session: SessionId::default(),
        sequence: 1,
        acknowledged_below: 1,
        values,
    };
    let (mut much, mut large) = (Vec::new(), Vec::new());
    Values::push(&[0; 1001], &mut large);
    Values::push(&[0; BUNDLE_BYTES_MAX], &mut much);
    let values = |bytes| Values::parse(bytes, usize::MAX).expect("values");
    let (much, large) = (append(values(&much)), append(values(&large)));
    let mut none = frame(&large);
    none.truncate(4 + 37);
    none[..4].copy_from_slice(&37_u32.to_le_bytes());
    for bytes in [
        b"GET / HTTP/1.1\r\n\r\n".to_vec(),
        vec![0; 100],
        vec![0xff; 100],
        too_long,
        after_hello(&hello()),
        after_hello(&[1, 0, 0, 0, 99]),
        after_hello(&frame(&much)),
        after_hello(&frame(&large)),
        after_hello(&none),
        frame(&Request::Sync { id: 1 }),
    ] {
        let mut stranger = TcpStream::connect(&at).expect("listens");
        stranger.set_read_timeout(Some(PATIENCE / 10)).expect("set");
        stranger.write_all(&bytes).expect("sent");
        let mut heard = Vec::new();
        // The connection may end with a reset.
        let mut some = (&stranger).take(100);
        if let Err(error) = some.read_to_end(&mut heard) {
            assert_eq!(error.kind(), ErrorKind::ConnectionReset, "it is kept");
        }
        assert!(heard.len() < 100, "no more than a greeting");
    }
    // The client disconnects in the middle of a frame.
    let mut stranger = TcpStream::connect(&at).expect("listens");
    stranger.write_all(&after_hello(&[50, 0, 0, 0, 2, 1])).expect("sent");
    stranger.shutdown(Shutdown::Both).expect("gone");
    // The session is unknown.
    let mut stranger = TcpStream::connect(&at).expect("listens");
    let mut bytes = hello();
    Request::Append {
        id: 7,
        session: SessionId { slot: 99, index: 9 },
        sequence: 1,
        acknowledged_below: 1,
        values: Values::parse(b"\x01\0\0\0x", 1).expect("a value"),
    }
    .encode(&mut bytes);
    stranger.write_all(&bytes).expect("sent");
    let mut kept = Vec::new();
    read_frame(&mut stranger, 1000, &mut kept).expect("a greeting");
    loop {
        read_frame(&mut stranger, 1000, &mut kept).expect("an answer");
        match Answer::decode(&kept).expect("makes sense") {
            Answer::Alive => {}
            Answer::Done { id, code, .. } => break assert_eq!((id, code), (7, 255)),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(submit(&program, b"x"), Ok(1));
}

#[test]
fn no_more_programs_attach_than_may() {
    let folder = tempfile::tempdir().expect("a folder");
    let more = [("listen", "127.0.0.1:0"), ("attached-max", "2")];
    let node = start(folder.path(), &more);
    let at = address(&node);
    let (first, second) = (attach(&at, &[]), attach(&at, &[]));
    let mut third = TcpStream::connect(&at).expect("listens");
    third.set_read_timeout(Some(PATIENCE)).expect("set");
    let mut heard = Vec::new();
    third.read_to_end(&mut heard).expect("shown out");
    assert_eq!(heard, b"");
    first.close().expect("ends well");
    // Its capacity is available again once the node has noticed the disconnect.
    let again = attach(&at, &[]);
    assert_eq!(submit(&again, b"x"), Ok(1));
    assert_eq!(submit(&second, b"y"), Ok(2));
}

/// Runs a server that greets as a node of the given cluster, sends prepared answers, and waits for
/// the end of the connection.
fn impostor(cluster: u128, version: u8, answers: &[Answer<'_>]) -> String {
    let port = TcpListener::bind("127.0.0.1:0").expect("a port");
    let at = port.local_addr().expect("bound").to_string();
    let mut bytes = Vec::new();
    Answer::Welcome { version, cluster_id: cluster, node_id: 1, value_bytes_max: u64::MAX }
        .encode(&mut bytes);
    answers.iter().for_each(|answer| answer.encode(&mut bytes));
    thread::spawn(move || {
        while let Ok((mut program, _)) = port.accept() {
            let mut kept = Vec::new();
            let _ = program.write_all(&bytes);
            while read_frame(&mut program, 1000, &mut kept).is_ok() {}
        }
    });
    at
}

#[test]
fn nodes_of_another_cluster_or_version_are_refused() {
    let own = impostor(7, VERSION, &[]);
    let other = impostor(8, VERSION, &[]);
    // The first node does not answer, so the client tries the other one.
    let program = attach(&format!("{own},{other}"), &[("request-ms", "300")]);
    program.deliver_from(Cursor::Oldest).expect("attached");
    let (tell, told) = std::sync::mpsc::channel();
    let done = Box::new(move |outcome| tell.send(outcome).expect("the test listens"));
    program.trim(1, done).expect("taken");
    let failed = next(&program).expect_err("another cluster");
    assert_eq!(failed.code, Code::Refused);
    assert!(failed.detail.contains("another cluster"), "{failed:?}");
    assert_eq!(submit(&program, b"x").expect_err("it is over").code, Code::Refused);
    program.close().expect("ends");
    program.drain_completions(|(done, outcome)| done(outcome));
    assert!(told.recv().expect("told").is_err());

    let newer = impostor(7, VERSION + 1, &[]);
    let failed = super::attached::options(&newer, &[]);
    let failed = quorate_capi::handle::Handle::attach(failed).err().expect("refused");
    assert_eq!(failed.code, Code::Refused);
    assert!(failed.detail.contains("version"), "{failed:?}");
}
