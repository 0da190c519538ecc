//! Handshakes succeed only with the right certificates, and bytes arrive intact however the network
//! splits them.

use std::{
    fs,
    path::Path,
    thread,
    time::{Duration, SystemTime},
};

use quorate_access::Who;
use quorate_core::dice::Dice;
use quorate_tls::{
    ClientFiles, ClientTrust, NodeFiles, NodeTrust, authority,
    session::{ReadOutcome, Session},
};

/// Creates an authority in this folder, and the files for node 1, node 2 and a client.
fn cluster(folder: &Path, name: &str) {
    authority::create_authorities(folder, name, 30, false).expect("works");
    for node in [1, 2] {
        authority::issue_node_certificates(folder, node, &["127.0.0.1".to_owned()], 30, false)
            .expect("works");
    }
    authority::issue_client_certificate(folder, "ann", 30, false).expect("works");
}

fn trust(folder: &Path) -> NodeTrust {
    NodeTrust::load(NodeFiles::in_folder(folder)).expect("works")
}

/// Transfers one side's output to the other in steps of `step` bytes, and collects what that side
/// decrypts. Returns whether there was any output.
fn carry(from: &mut Session, to: &mut Session, step: usize, got: &mut Vec<u8>) -> bool {
    let mut bytes = Vec::new();
    from.flush(&mut bytes).expect("works");
    let mut into = [0; 1000];
    for piece in bytes.chunks(step) {
        to.input_buffer().extend_from_slice(piece);
        while let ReadOutcome::Bytes(count) = to.read_plaintext(&mut into) {
            got.extend_from_slice(&into[..count]);
        }
    }
    !bytes.is_empty()
}

/// Exchanges output until neither side has any. Returns the bytes decrypted on each side.
fn converse(one: &mut Session, other: &mut Session, step: usize) -> (Vec<u8>, Vec<u8>) {
    let (mut at_one, mut at_other) = (Vec::new(), Vec::new());
    loop {
        let said = carry(one, other, step, &mut at_other);
        let answered = carry(other, one, step, &mut at_one);
        if !said && !answered {
            return (at_one, at_other);
        }
    }
}

/// Returns why the handshake failed, from the side that noticed first.
fn refused(mut dials: Session, mut listens: Session) -> String {
    converse(&mut dials, &mut listens, usize::MAX);
    assert!(!listens.is_established(), "the one who came is let in");
    assert_eq!((listens.peer_node(), listens.peer_identity()), (None, Who::Anonymous));
    let why = listens.failure().or(dials.failure());
    why.expect("it ends with a reason").to_owned()
}

#[test]
fn two_nodes_of_a_cluster_prove_who_they_are() {
    let folder = tempfile::tempdir().unwrap();
    cluster(folder.path(), "orders");
    let (one, two) = (trust(&folder.path().join("node-1")), trust(&folder.path().join("node-2")));
    assert_eq!(one.own_name().to_string(), "node-1.orders.quorate.internal");
    for node in [Some(1), None] {
        let (mut dials, mut listens) =
            (two.outgoing_peer_session(node), one.incoming_peer_session());
        converse(&mut dials, &mut listens, 7);
        assert!(dials.is_established() && listens.is_established());
        assert_eq!((dials.peer_node(), listens.peer_node()), (Some(1), Some(2)));
        assert_eq!(listens.peer_identity(), Who::Node(2));
    }
    let refusal = refused(two.outgoing_peer_session(Some(3)), one.incoming_peer_session());
    assert!(refusal.contains("alert") || refusal.contains("name"), "{refusal}");
}

#[test]
fn bytes_arrive_as_they_were_given() {
    let folder = tempfile::tempdir().unwrap();
    cluster(folder.path(), "orders");
    let (one, two) = (trust(&folder.path().join("node-1")), trust(&folder.path().join("node-2")));
    let bytes: Vec<u8> = (0..300_000u32).map(|at| ((at * 7) >> 3) as u8).collect();
    for step in [1, 5, 1000, 16_384, usize::MAX] {
        let (mut dials, mut listens) =
            (two.outgoing_peer_session(Some(1)), one.incoming_peer_session());
        assert_eq!(dials.encrypt(b"too early"), 0);
        converse(&mut dials, &mut listens, step);
        let (mut sealed, mut got) = (0, Vec::new());
        while sealed < bytes.len() {
            let count = dials.encrypt(&bytes[sealed..]);
            assert!(count > 0, "there is room once the network took all");
            sealed += count;
            got.extend(converse(&mut dials, &mut listens, step).1);
        }
        assert!(got == bytes, "in steps of {step}");
        // The other direction still works after this one has ended.
        dials.finish();
        assert_eq!(dials.encrypt(b"more"), 0);
        converse(&mut dials, &mut listens, step);
        assert_eq!(listens.read_plaintext(&mut [0; 8]), ReadOutcome::PeerClosed);
        assert_eq!(listens.encrypt(b"an answer"), 9);
        listens.finish();
        assert_eq!(converse(&mut dials, &mut listens, step).0, b"an answer");
        assert_eq!(dials.read_plaintext(&mut [0; 8]), ReadOutcome::PeerClosed);
        assert_eq!((dials.failure(), listens.failure()), (None, None));
    }
}

#[test]
fn what_is_ahead_of_the_network_is_bounded() {
    let folder = tempfile::tempdir().unwrap();
    cluster(folder.path(), "orders");
    let (one, two) = (trust(&folder.path().join("node-1")), trust(&folder.path().join("node-2")));
    let (mut dials, mut listens) =
        (two.outgoing_peer_session(Some(1)), one.incoming_peer_session());
    converse(&mut dials, &mut listens, usize::MAX);
    let bytes = vec![1; 1 << 20];
    let mut sealed = 0;
    loop {
        let count = dials.encrypt(&bytes[sealed..]);
        sealed += count;
        if count == 0 {
            break;
        }
    }
    assert!((32 << 10..=66 << 10).contains(&sealed), "{sealed}");
    assert_eq!(converse(&mut dials, &mut listens, usize::MAX).1.len(), sealed);
}

#[test]
fn nobody_else_is_let_in_as_a_peer() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    cluster(&at("a"), "orders");
    cluster(&at("b"), "orders");
    let node = trust(&at("a/node-1"));
    // Another authority whose cluster has the same name.
    let stranger = trust(&at("b/node-2"));
    refused(stranger.outgoing_peer_session(Some(1)), node.incoming_peer_session());
    // It trusts this cluster's authority, but another one signed its own certificate.
    fs::copy(at("a/ca.crt"), at("b/node-2/ca.crt")).unwrap();
    let refusal = refused(
        trust(&at("b/node-2")).outgoing_peer_session(Some(1)),
        node.incoming_peer_session(),
    );
    assert!(refusal.starts_with("invalid peer certificate"), "{refusal}");
    // A client of the cluster is not a node, whatever its certificate is used for.
    fs::copy(at("a/ca.crt"), at("a/client-ann/ca.crt")).unwrap();
    let mut files = NodeFiles::in_folder(&at("a/node-2"));
    (files.server_cert, files.server_key) =
        (at("a/client-ann/client.crt"), at("a/client-ann/client.key"));
    // Its key does not match the node's certificate.
    files.key = at("a/client-ann/client.key");
    let error = NodeTrust::load(files.clone()).unwrap_err();
    assert!(error.to_string().contains("client.key"), "{error}");
}

#[test]
fn another_cluster_of_the_same_authority_is_a_stranger() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    cluster(&at("a"), "orders");
    cluster(&at("b"), "stock");
    // One company uses one authority for both, so only the names differ.
    let node = trust(&at("a/node-1"));
    for file in ["ca.crt", "ca.key"] {
        fs::copy(at("b").join(file), at("c").join(file)).unwrap_or_else(|_| {
            fs::create_dir_all(at("c")).unwrap();
            fs::copy(at("b").join(file), at("c").join(file)).unwrap()
        });
    }
    let both = [fs::read(at("a/ca.crt")).unwrap(), fs::read(at("b/ca.crt")).unwrap()].concat();
    fs::write(at("a/node-1/ca.crt"), &both).unwrap();
    fs::write(at("b/node-2/ca.crt"), &both).unwrap();
    assert!(node.reload().unwrap());
    let refusal =
        refused(trust(&at("b/node-2")).outgoing_peer_session(None), node.incoming_peer_session());
    assert!(!refusal.is_empty());
}

#[test]
fn clients_are_let_in_by_their_authority_and_named() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    cluster(&at("a"), "orders");
    let node = trust(&at("a/node-1"));
    let ann = ClientTrust::load(&ClientFiles::in_folder(&at("a/client-ann"))).unwrap();
    let dial = |trust: &ClientTrust, host: &str| trust.session_to_host(host).unwrap();
    let (mut dials, mut listens) = (dial(&ann, "127.0.0.1"), node.incoming_client_session());
    converse(&mut dials, &mut listens, 100);
    assert_eq!(
        (listens.peer_identity(), listens.peer_node()),
        (Who::Client("ann".to_owned()), None)
    );
    // The node's certificate does not name this host.
    let refusal = refused(dial(&ann, "10.1.2.3"), node.incoming_client_session());
    assert!(refusal.contains("alert") || refusal.contains("name"), "{refusal}");
    // A node is also accepted, and identified as a node.
    let two = ClientTrust::load(&ClientFiles::in_folder(&at("a/node-2"))).unwrap();
    let (mut dials, mut listens) = (dial(&two, "127.0.0.1"), node.incoming_client_session());
    converse(&mut dials, &mut listens, 100);
    assert_eq!((listens.peer_identity(), listens.peer_node()), (Who::Node(2), Some(2)));
    // A client with the same name, from another authority.
    cluster(&at("b"), "orders");
    fs::copy(at("a/clients-ca.crt"), at("b/client-ann/clients-ca.crt")).unwrap();
    let other = ClientTrust::load(&ClientFiles::in_folder(&at("b/client-ann"))).unwrap();
    let refusal = refused(dial(&other, "127.0.0.1"), node.incoming_client_session());
    assert!(refusal.starts_with("invalid peer certificate"), "{refusal}");
}

#[test]
fn an_expired_certificate_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    cluster(&at("a"), "orders");
    // It expires in the second in which it is created.
    authority::issue_client_certificate(&at("a"), "ann", 0, true).unwrap();
    let made = SystemTime::now();
    while made.elapsed().unwrap_or_default() < Duration::from_millis(1100) {
        thread::yield_now();
    }
    let ann = ClientTrust::load(&ClientFiles::in_folder(&at("a/client-ann"))).unwrap();
    let refusal = refused(
        ann.session_to_host("127.0.0.1").unwrap(),
        trust(&at("a/node-1")).incoming_client_session(),
    );
    assert!(refusal.contains("expired"), "{refusal}");
}

#[test]
fn authorities_are_exchanged_while_both_are_trusted() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    cluster(&at("a"), "orders");
    let (one, two) = (trust(&at("a/node-1")), trust(&at("a/node-2")));
    let meets = |dials: &NodeTrust, listens: &NodeTrust| {
        let (mut dials, mut listens) =
            (dials.outgoing_peer_session(None), listens.incoming_peer_session());
        converse(&mut dials, &mut listens, usize::MAX);
        listens.is_established()
    };
    assert!(!one.reload().unwrap(), "nothing has changed");
    let before = one.expiries();
    authority::create_authorities(&at("a"), "orders", 60, true).unwrap();
    // Node 1 gets a new certificate before node 2 trusts the new authority.
    authority::issue_node_certificates(&at("a"), 1, &["127.0.0.1".to_owned()], 60, true).unwrap();
    assert!(one.reload().unwrap());
    assert_ne!(one.expiries(), before);
    assert!(!meets(&one, &two));
    // Node 2 trusts the new authority, and keeps its certificate from the old one.
    fs::copy(at("a/ca.crt"), at("a/node-2/ca.crt")).unwrap();
    assert!(two.reload().unwrap());
    assert!(meets(&one, &two) && meets(&two, &one));
    // An invalid file changes nothing.
    fs::write(at("a/node-2/ca.crt"), "nonsense").unwrap();
    let error = two.reload().unwrap_err();
    assert!(error.to_string().contains("ca.crt: it contains no certificate"), "{error}");
    assert!(meets(&one, &two));
}

#[test]
fn nonsense_on_the_network_ends_a_session_with_a_reason() {
    let folder = tempfile::tempdir().unwrap();
    cluster(folder.path(), "orders");
    let one = trust(&folder.path().join("node-1"));
    for nonsense in [
        &b"GET / HTTP/1.1\r\n\r\n"[..],
        b"*1\r\n$4\r\nPING\r\n",
        &[0x16, 3, 1, 0xff, 0xff, 0],
        &[0; 100],
    ] {
        let mut session = one.incoming_client_session();
        session.input_buffer().extend_from_slice(nonsense);
        assert_eq!(session.read_plaintext(&mut [0; 10]), ReadOutcome::Failed);
        assert!(session.failure().is_some());
        assert_eq!(session.read_plaintext(&mut [0; 10]), ReadOutcome::Failed, "it stays over");
    }
}

/// Changing any byte in transit ends the connection, and no wrong bytes arrive.
#[test]
fn what_was_changed_on_its_way_is_not_taken() {
    let folder = tempfile::tempdir().unwrap();
    cluster(folder.path(), "orders");
    let (one, two) = (trust(&folder.path().join("node-1")), trust(&folder.path().join("node-2")));
    // The first bytes, a type and a version, have no meaning in this version of TLS.
    for at in 3..80 {
        let (mut dials, mut listens) =
            (two.outgoing_peer_session(Some(1)), one.incoming_peer_session());
        converse(&mut dials, &mut listens, usize::MAX);
        dials.encrypt(b"a command of thirty-eight bytes, sealed");
        let mut bytes = Vec::new();
        dials.flush(&mut bytes).unwrap();
        if at >= bytes.len() {
            break;
        }
        bytes[at] ^= 1;
        listens.input_buffer().extend_from_slice(&bytes);
        let mut into = [0; 100];
        let taken = listens.read_plaintext(&mut into);
        assert!(!matches!(taken, ReadOutcome::Bytes(_)), "byte {at} was changed: {taken:?}");
    }
}

/// Handshake bytes from strangers, valid or not, get no one accepted and break nothing.
#[test]
fn hostile_bytes_at_any_point_of_a_handshake_break_nothing() {
    let folder = tempfile::tempdir().unwrap();
    cluster(folder.path(), "orders");
    let at = |name: &str| folder.path().join(name);
    let (one, two) = (trust(&at("node-1")), trust(&at("node-2")));
    let mut dice = Dice::new(11);
    let (mut met, mut refused) = (0, 0);
    for _ in 0..1500 {
        let (mut dials, mut listens) =
            (two.outgoing_peer_session(Some(1)), one.incoming_peer_session());
        let spoiled = dice.below(5);
        for flight in 0..6 {
            let (from, to) = if flight % 2 == 0 {
                (&mut dials, &mut listens)
            } else {
                (&mut listens, &mut dials)
            };
            let mut bytes = Vec::new();
            from.flush(&mut bytes).unwrap();
            if flight == spoiled && !bytes.is_empty() {
                match dice.below(4) {
                    0 => {
                        let place = dice.below(bytes.len() as u64) as usize;
                        bytes[place] ^= 1 << dice.below(8);
                    }
                    1 => bytes.truncate(dice.below(bytes.len() as u64) as usize),
                    2 => {
                        let place = dice.below(bytes.len() as u64) as usize;
                        let piece = bytes[place..].to_vec();
                        bytes.extend(piece);
                    }
                    _ => bytes = (0..200).map(|_| dice.below(256) as u8).collect(),
                }
            }
            to.input_buffer().extend_from_slice(&bytes);
            let mut into = [0; 64];
            while let ReadOutcome::Bytes(count) = to.read_plaintext(&mut into) {
                assert!(count == 0, "no peer said anything");
                if !to.has_buffered_input() {
                    break;
                }
            }
        }
        // An accepted peer is the node it claims to be, whatever happened to the bytes.
        match listens.is_established() {
            true => {
                met += 1;
                assert_eq!(listens.peer_node(), Some(2));
            }
            false => refused += 1,
        }
    }
    assert!(met > 50 && refused > 300, "{met} met, {refused} did not");
}

/// Damaged files are refused with a reason, or make no difference.
#[test]
fn damaged_files_break_nothing() {
    let folder = tempfile::tempdir().unwrap();
    cluster(folder.path(), "orders");
    let own = folder.path().join("node-1");
    let node = trust(&own);
    let mut dice = Dice::new(12);
    for file in ["node.crt", "node.key", "ca.crt", "server.crt", "clients-ca.crt"] {
        let whole = fs::read(own.join(file)).unwrap();
        for _ in 0..100 {
            let mut bytes = whole.clone();
            let place = dice.below(bytes.len() as u64) as usize;
            match dice.below(3) {
                0 => bytes.truncate(place),
                1 => bytes[place] = dice.below(256) as u8,
                _ => bytes.extend_from_slice(&whole[place..]),
            }
            fs::write(own.join(file), &bytes).unwrap();
            if let Err(bad) = node.reload() {
                let said = bad.to_string();
                assert!(said.contains(".crt") || said.contains(".key"), "{said}");
            }
        }
        fs::write(own.join(file), &whole).unwrap();
        node.reload().unwrap();
    }
}
