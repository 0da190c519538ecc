//! Tests of TLS clients, served by the reactor and by I/O threads.

use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
};

use quorate_net::{IoSpread, IoThreads, Limits};
use quorate_tls::{
    ClientFiles, ClientTrust, NodeFiles, NodeTrust, Protection, authority,
    session::{ReadOutcome, Session},
};

use crate::common::{Node, Start, patient};

struct TlsClient {
    socket: TcpStream,
    session: Session,
}

impl TlsClient {
    fn connect(node: &Node, trust: &ClientTrust) -> Self {
        let socket = patient(TcpStream::connect(&node.client).unwrap());
        let mut client = Self { socket, session: trust.session_to_host("127.0.0.1").unwrap() };
        while !client.session.is_established() {
            client.session.flush(&mut client.socket).unwrap();
            client.receive();
            let _ = client.session.read_plaintext(&mut []);
        }
        client
    }

    /// Sends bytes in one write. The announcement that no more follow is part of it if `is_last`.
    fn send(&mut self, bytes: &[u8], is_last: bool) {
        let mut rest = bytes;
        while !rest.is_empty() {
            let mut sealed = Vec::new();
            let count = self.session.encrypt(rest);
            rest = &rest[count..];
            if rest.is_empty() && is_last {
                self.session.finish();
            }
            self.session.flush(&mut sealed).unwrap();
            self.socket.write_all(&sealed).unwrap();
        }
    }

    fn receive(&mut self) {
        let mut bytes = [0; 16 << 10];
        let count = self.socket.read(&mut bytes).unwrap();
        assert!(count > 0, "the connection ended");
        self.session.input_buffer().extend_from_slice(&bytes[..count]);
    }

    /// Reads exactly `count` bytes.
    fn read(&mut self, count: usize) -> Vec<u8> {
        let mut all = Vec::new();
        let mut into = [0; 16 << 10];
        while all.len() < count {
            match self.session.read_plaintext(&mut into) {
                ReadOutcome::Bytes(taken) => all.extend_from_slice(&into[..taken]),
                ReadOutcome::NeedsMore => self.receive(),
                other => panic!("{other:?} after {} bytes", all.len()),
            }
        }
        all
    }
}

fn run(limits: Limits) {
    let folder = tempfile::tempdir().unwrap();
    authority::create_authorities(folder.path(), "a-cluster", 30, false).unwrap();
    let node =
        authority::issue_node_certificates(folder.path(), 1, &["127.0.0.1".to_owned()], 30, false)
            .unwrap();
    let ann = authority::issue_client_certificate(folder.path(), "ann", 30, false).unwrap();
    let trust = NodeTrust::load(NodeFiles::in_folder(&node)).unwrap();
    let ann = ClientTrust::load(&ClientFiles::in_folder(&ann)).unwrap();
    let threads = usize::from(limits.io_threads != IoThreads::Fixed(0));
    let protection = Protection::Tls(trust);
    let bound = Start { limits, protection, ..Start::node(1) }.bind();
    let peers = [bound.peer_address()];
    let node = bound.run(&peers);
    let mut clients = [(); 3].map(|()| TlsClient::connect(&node, &ann));
    for round in 0..30 {
        for client in &mut clients {
            let line = format!("round {round}\n");
            client.send(line.as_bytes(), false);
            assert_eq!(client.read(line.len()), line.as_bytes());
        }
    }
    // More than one read takes from the network, and than one record holds.
    let lines: String = (0..20_000).map(|number| format!("line {number}\n")).collect();
    for client in &mut clients {
        let mut writer = client.socket.try_clone().unwrap();
        let mut sealed = Vec::new();
        let mut rest = lines.as_bytes();
        while !rest.is_empty() {
            let count = client.session.encrypt(rest);
            rest = &rest[count..];
            client.session.flush(&mut sealed).unwrap();
        }
        let writer = std::thread::spawn(move || writer.write_all(&sealed).unwrap());
        assert!(client.read(lines.len()) == lines.as_bytes());
        writer.join().unwrap();
    }
    let moves = node.handle.metrics().unwrap().stats.io_thread_moves;
    assert!(moves >= 3 * threads as u64 && (threads > 0 || moves == 0), "{moves}");
    // The last request comes together with the end of the session, while the socket stays open.
    for mut client in clients {
        client.send(b"the last\n", true);
        assert_eq!(client.read(9), b"the last\n");
        let mut end = Vec::new();
        client.socket.read_to_end(&mut end).unwrap();
    }
    node.shared.wait_until("all gone", |world| world.clients.is_empty());
}

#[test]
fn tls_clients_are_served_by_the_reactor() {
    run(Limits::default());
}

/// [io-8] [io-9] Threads serve TLS clients.
#[test]
fn tls_clients_are_served_by_threads() {
    run(Limits {
        io_threads: IoThreads::Fixed(2),
        io_spread: IoSpread::Always,
        ..Limits::default()
    });
}
