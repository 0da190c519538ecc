//! Behaviour when no file descriptors are free. The test runs in its own process because the limit
//! applies to the whole process.
#![allow(clippy::unwrap_used, reason = "a test may fail by panic")]

#[path = "../suite/common/mod.rs"]
mod common;

use std::{
    fs::File,
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
};

use crate::common::{Raw, hello, lone};
use quorate_net::Limits;
use rustix::{
    net::{AddressFamily, SocketFlags, SocketType, socket_with},
    process::{Resource, Rlimit, getrlimit, setrlimit},
};

fn echo(client: &mut (impl Read + Write)) {
    client.write_all(b"echo\n").unwrap();
    client.read_exact(&mut [0; 5]).unwrap();
}

#[test]
fn accepting_pauses_while_descriptors_run_out_and_nothing_crashes_or_spins() {
    let old = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(400), maximum: old.maximum }).unwrap();
    let node = lone(Limits { accept_pause_ms: 10, ..Limits::default() }, &[2]);
    let patient = lone(Limits { accept_pause_ms: 3_600_000, ..Limits::default() }, &[2]);
    let (mut here, mut there) = (node.client(), patient.client());
    echo(&mut here);
    echo(&mut there);

    // Other files use up all descriptors. The sockets created before have theirs, but accepting
    // their connections needs new ones.
    let [one, two, three] = [(); 3].map(|()| unconnected());
    let mut hoard = Vec::new();
    while let Ok(file) = File::open("/dev/null") {
        hoard.push(file);
    }
    let mut late = connect(one, &node.client);
    let mut raw = Raw::from_stream(connect(two, &node.peer));
    let _waiting = connect(three, &patient.client);
    node.wait_stats("pauses of both listeners", |stats| stats.accept_pauses >= 4);
    patient.wait_stats("a pause", |stats| stats.accept_pauses == 1);

    // Connected clients are still served. A listener that stayed ready would pause each turn.
    for _ in 0..50 {
        echo(&mut here);
        echo(&mut there);
    }
    assert_eq!(patient.handle.metrics().unwrap().stats.accept_pauses, 1);

    // The waiting clients are admitted when descriptors are free again.
    drop(hoard);
    echo(&mut late);
    raw.send_hello(&hello(2));
    assert_eq!(raw.next_answer(), "welcome");
}

fn unconnected() -> TcpStream {
    let socket = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None);
    common::patient(TcpStream::from(socket.unwrap()))
}

/// Connects to the node. The kernel completes the connection before the node accepts it.
fn connect(socket: TcpStream, address: &str) -> TcpStream {
    let address: SocketAddr = address.parse().unwrap();
    rustix::net::connect(&socket, &address).unwrap();
    socket
}
