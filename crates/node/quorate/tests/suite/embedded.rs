//! Replicas embedded in this process, with real sockets, disks and threads.

use std::{
    io::{Read as _, Write as _},
    net::{Shutdown, TcpListener, TcpStream},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::channel,
    },
    thread,
};

use quorate::{
    Builder, CommandId, Device, Embedded, Failure, Place, RequestError, STOPPED_CODE, Sequenced,
    StateMachine,
};
use quorate_testbed::process::free_port;
use quorate_wire::streams::{ClientFrame, DecodedFrame, NodeFrame, VERSION, decode_node_frame};

/// A service whose state is the concatenation of all commands.
#[derive(Default)]
struct Journal(Vec<u8>);

impl StateMachine for Journal {
    fn apply(&mut self, _: CommandId, command: &[u8], reply: &mut Vec<u8>) {
        self.0.extend_from_slice(command);
        self.0.push(b' ');
        reply.extend_from_slice(self.0.len().to_string().as_bytes());
    }

    fn query(&self, query: &[u8], _: u64, reply: &mut Vec<u8>) {
        reply.extend_from_slice(query);
        reply.extend_from_slice(&self.0);
    }
}

fn alone(folder: &Path) -> Embedded {
    Builder::new(folder).start(Journal::default).expect("starts")
}

/// A restart rebuilds the state from the log. Commands may contain zero bytes (G19).
#[test]
fn a_replica_alone_remembers() {
    let folder = tempfile::tempdir().expect("a folder");
    let replica = alone(folder.path());
    assert_eq!(replica.execute("one").expect("executed"), b"4");
    assert_eq!(replica.execute(*b"\0\0").expect("executed"), b"7");
    assert_eq!(replica.query("? ").expect("answered"), b"? one \0\0 ");
    replica.stop().expect("stops cleanly");
    let replica = alone(folder.path());
    assert_eq!(replica.query("").expect("answered"), b"one \0\0 ");
    assert_eq!(replica.execute("two").expect("executed"), b"11");
}

/// Concurrent commands from one thread get one notification each, even if the node ends first.
#[test]
fn commands_are_submitted_without_waiting() {
    let folder = tempfile::tempdir().expect("a folder");
    let replica = alone(folder.path());
    let (tell, told) = channel();
    for _ in 0..100 {
        let tell = tell.clone();
        let done = move |result| tell.send(result).expect("the test listens");
        replica.submit("a", done).expect("taken");
    }
    let mut replies: Vec<u64> = (0..100)
        .map(|_| told.recv().expect("told").expect("executed"))
        .map(|reply| String::from_utf8_lossy(&reply).parse().expect("a number"))
        .collect();
    let (answer, answered) = channel();
    let done = move |result| answer.send(result).expect("the test listens");
    replica.submit_query("", done).expect("taken");
    let story = answered.recv().expect("told").expect("answered");
    assert_eq!(story.len(), 200, "it sees all that was acknowledged");
    replies.sort_unstable();
    assert_eq!(replies, (1..=100).map(|n| 2 * n).collect::<Vec<_>>());
    for _ in 0..100 {
        let tell = tell.clone();
        let done = move |result| tell.send(result).expect("the test listens");
        replica.submit("b", done).expect("taken");
    }
    drop(tell);
    replica.stop().expect("stops cleanly");
    assert_eq!(told.iter().count(), 100, "each is heard of once");
}

/// A numbered session command is executed once, and retries return the first reply.
#[test]
fn a_numbered_command_is_executed_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let replica = alone(folder.path());
    let session = replica.register().expect("registered");
    let at = |sequence| Sequenced { session, sequence, acknowledged_below: 1 };
    let once = |sequence| {
        let (tell, told) = channel();
        let done = move |result| tell.send(result).expect("the test listens");
        replica.submit_once(at(sequence), "a", done).expect("taken");
        told.recv().expect("told")
    };
    assert_eq!(once(1), Ok(b"2".to_vec()));
    assert_eq!(once(1), Ok(b"2".to_vec()));
    assert_eq!(once(2), Ok(b"4".to_vec()));
    let mut stranger = at(1);
    stranger.session.slot += 1000;
    let (tell, told) = channel();
    let done = move |result| tell.send(result).expect("the test listens");
    replica.submit_once(stranger, "a", done).expect("taken");
    assert_eq!(told.recv(), Ok(Err(RequestError(Failure::NoSession))));
}

/// A start whose founder never responds can be aborted.
#[test]
fn a_start_can_be_given_up() {
    let folder = tempfile::tempdir().expect("a folder");
    let port = TcpListener::bind("127.0.0.1:0").expect("a port");
    let closed = port.local_addr().expect("bound").to_string();
    drop(port);
    let give_up = Arc::new(AtomicBool::new(false));
    let builder = Builder::new(folder.path())
        .node(2)
        .cluster([(1, closed), (2, "127.0.0.1:0".to_owned())])
        .abort_start_when(Arc::clone(&give_up));
    let start = thread::spawn(move || builder.start(Journal::default).map(drop));
    give_up.store(true, Ordering::Release);
    let why = start.join().expect("ends").expect_err("not started");
    assert_eq!(why.code, STOPPED_CODE);
}

#[test]
fn a_replica_serves_byte_streams_where_it_is_told_to() {
    let folder = tempfile::tempdir().expect("a folder");
    let builder = Builder::new(folder.path()).streams("127.0.0.1:0");
    let replica = builder.start(Journal::default).expect("starts");
    assert_eq!(replica.execute("one").expect("executed"), b"4");
    let status = replica.status().expect("answered");
    let stream = &status.peers[0].addresses.stream;
    let mut client = TcpStream::connect(stream).expect("listens");
    let mut hello = Vec::new();
    ClientFrame::Hello { version: VERSION }.encode(&mut hello);
    client.write_all(&hello).expect("sent");
    client.shutdown(Shutdown::Write).expect("half-closed");
    let mut heard = Vec::new();
    client.read_to_end(&mut heard).expect("answered");
    let welcome = NodeFrame::Welcome { version: VERSION, node: status.member.node, leader: "" };
    let found = DecodedFrame::Frame(welcome, heard.len());
    assert_eq!(decode_node_frame(&heard), Ok(found));
    assert_eq!(replica.execute("two").expect("executed"), b"8");
    replica.stop().expect("stops cleanly");

    let replica = alone(folder.path());
    let status = replica.status().expect("answered");
    assert_eq!(status.peers[0].addresses.stream, "", "it was not asked for");
}

#[test]
fn a_second_replica_on_a_folder_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let _first = alone(folder.path());
    let second = Builder::new(folder.path()).start(Journal::default).expect_err("refused");
    assert_eq!(second.code, "folder_in_use");
}

#[test]
fn a_command_that_is_too_big_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let builder = Builder::new(folder.path()).settings(|settings| settings.command_bytes_max = 100);
    let replica = builder.start(Journal::default).expect("starts");
    assert_eq!(replica.execute(vec![1; 101]), Err(RequestError(Failure::TooBig)));
    assert!(replica.execute(vec![1; 100]).is_ok());
}

/// Starts the three replicas of a group, each with a device of kind `device`.
fn three(folder: &Path, device: &Device) -> Vec<Embedded> {
    let address = |node| (node, format!("127.0.0.1:{}", free_port().expect("a port")));
    let cluster: Vec<(u32, String)> = (1..=3).map(address).collect();
    let start = |node: u32| {
        let builder = Builder::new(folder.join(node.to_string()));
        builder
            .node(node)
            .cluster(cluster.clone())
            .device(device.clone(), Place::default())
            .start(Journal::default)
            .expect("starts")
    };
    (1..=3).map(start).collect()
}

/// [offload-5] Embedded replicas own devices as nodes do.
#[test]
fn devices_vote_for_replicas() {
    let folder = tempfile::tempdir().expect("a folder");
    let nodes = three(folder.path(), &Device::Udp);
    let given = |node: &Embedded| {
        let device = node.status().expect("answers").device;
        device.expect("it has one").assigned_slots
    };
    let mut executed = 0;
    while nodes.iter().map(given).sum::<u64>() < 10 {
        nodes[0].execute("x").expect("executed");
        executed += 1;
        assert!(executed < 100_000, "no device gives out slots");
    }
    let story = nodes[2].query("").expect("answered");
    assert_eq!(story.len(), 2 * executed);
}

/// Three replicas run in one process. Every node accepts commands, all nodes agree, and two
/// continue without the third.
#[test]
fn three_replicas_agree() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut nodes = three(folder.path(), &Device::Off);
    thread::scope(|scope| {
        for (name, node) in ["a", "b", "c"].iter().zip(&nodes) {
            scope.spawn(move || {
                for _ in 0..20 {
                    node.execute(*name).expect("executed");
                }
            });
        }
    });
    let stories: Vec<Vec<u8>> =
        nodes.iter().map(|node| node.query("").expect("answered")).collect();
    assert_eq!(stories[0].len(), 2 * 60);
    assert!(stories.iter().all(|story| *story == stories[0]));
    nodes.pop().expect("three").stop().expect("stops cleanly");
    for node in &nodes {
        node.execute("d").expect("executed by the two that are left");
    }
}
