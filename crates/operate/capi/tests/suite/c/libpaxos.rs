//! LibPaxos3's interface and wire format, tested with programs that use the interface and with the
//! byte streams of its clients and learners.

use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead as _, BufReader, ErrorKind, Read as _, Write as _},
    net::{TcpListener, TcpStream},
    path::PathBuf,
    process::Stdio,
    sync::mpsc::Receiver,
    time::{Duration, Instant},
};

use quorate_capi::evpaxos::message::{DecodeResult, Message};
use quorate_testbed::process::free_port;
use tempfile::TempDir;

use crate::c::{build::Built, program::Program};

const PATIENCE: Duration = Duration::from_secs(60);
/// Offset between an acceptor's port and its peer port.
const PEERS: u16 = 1000;
const ATTACHED: u16 = 2000;

/// A folder that contains a configuration with free ports.
struct Group {
    folder: TempDir,
    acceptors: Vec<u16>,
    proposers: Vec<u16>,
}

/// Returns ports that are currently free, as are the two ports derived from each.
fn free_ports(count: usize) -> Vec<u16> {
    let mut ports = Vec::new();
    let mut kept = Vec::new();
    while ports.len() < count {
        let bind = |port: u16| TcpListener::bind(("127.0.0.1", port));
        let port = free_port().expect("a port");
        let first = bind(port);
        let others = port.checked_add(ATTACHED).map(|last| [bind(port + PEERS), bind(last)]);
        if let (Ok(first), Some([Ok(peers), Ok(attached)])) = (first, others) {
            ports.push(port);
            kept.extend([first, peers, attached]);
        }
    }
    ports
}

impl Group {
    fn new(role: &str, acceptors: usize, proposers: usize, more: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let mut ports = free_ports(acceptors + proposers);
        let proposers = ports.split_off(acceptors);
        let mut text = format!(
            "# for a test\nverbosity error\nlmdb-env-path {}/acceptor\nquorate-peer-offset {PEERS}\n\
             quorate-attach-offset {ATTACHED}\n{more}\n",
            folder.path().display()
        );
        for (id, port) in ports.iter().enumerate() {
            text += &format!("{role} {id} 127.0.0.1 {port}\n");
        }
        for (id, port) in proposers.iter().enumerate() {
            text += &format!("proposer {id} 127.0.0.1 {port}\n");
        }
        fs::write(folder.path().join("paxos.conf"), text).expect("written");
        Self { folder, acceptors: ports, proposers }
    }

    fn conf(&self) -> PathBuf {
        self.folder.path().join("paxos.conf")
    }

    fn start(&self, built: &Built, arguments: &[&str]) -> Program {
        let conf = self.conf();
        let conf = conf.to_str().expect("a name");
        let arguments: Vec<&str> = arguments
            .iter()
            .map(|argument| if *argument == "CONF" { conf } else { argument })
            .collect();
        Program::start(built, &arguments)
    }

    /// Starts a program. Also returns the lines that it writes to standard error.
    fn overheard(&self, built: &Built, arguments: &[&str]) -> (Program, Receiver<String>) {
        let conf = self.conf();
        let conf = conf.to_str().expect("a name");
        let arguments: Vec<&str> = arguments
            .iter()
            .map(|argument| if *argument == "CONF" { conf } else { argument })
            .collect();
        Program::overheard(built, &arguments)
    }

    fn started(&self, built: &Built, arguments: &[&str]) -> Program {
        let mut program = self.start(built, arguments);
        assert_eq!(program.line(), "started");
        program
    }
}

/// The roles work as separate processes: acceptors, a proposer, a learner and clients. An acceptor
/// is killed and restarted, and every learner learns the same values.
#[test]
fn acceptors_proposers_and_learners_work_as_processes() {
    let Some(built) = Built::of_libpaxos("paxos_roles") else {
        return;
    };
    let group = Group::new("acceptor", 3, 2, "storage-backend lmdb");
    let acceptor = |id: &str| group.started(&built, &["acceptor", id, "CONF"]);
    let mut acceptors = ["0", "1", "2"].map(acceptor);
    let mut proposers = ["0", "1"].map(|id| group.started(&built, &["proposer", id, "CONF"]));
    let mut learner = group.started(&built, &["learner", "CONF"]);
    let mut client = group.start(&built, &["client", "CONF", "0", "300", "a"]);
    assert_eq!(client.line(), "learned 300");
    acceptors[2].kill();
    let mut client = group.start(&built, &["client", "CONF", "1", "300", "b"]);
    assert_eq!(client.line(), "learned 300");
    acceptors[2] = acceptor("2");
    acceptors[1].kill();
    let mut client = group.start(&built, &["client", "CONF", "0", "300", "c"]);
    assert_eq!(client.line(), "learned 300");
    let learned: Vec<String> = (0..900).map(|_| learner.line()).collect();
    let mut late = group.started(&built, &["learner", "CONF"]);
    let again: Vec<String> = (0..900).map(|_| late.line()).collect();
    assert_eq!(learned, again, "every learner learns the same");
    let mut values: Vec<&str> = (1..)
        .zip(&learned)
        .map(|(iid, line)| line.strip_prefix(&format!("{iid} ")).expect("in order"))
        .collect();
    values.sort_unstable();
    values.dedup();
    assert_eq!(values.len(), 900, "each once");
    // A learner resumes after the instance that it is given.
    let mut rest = group.started(&built, &["learner", "CONF", "890"]);
    assert_eq!(rest.line(), learned[890]);
    for program in proposers.iter_mut().chain([&mut learner, &mut late, &mut acceptors[0]]) {
        program.terminate();
        assert!(program.wait(PATIENCE).success());
    }
}

/// All replicas are killed. They restart with the values that they delivered, and forget trimmed
/// instances.
#[test]
fn replicas_restart_and_trim() {
    let Some(built) = Built::of_libpaxos("paxos_roles") else {
        return;
    };
    let group = Group::new("replica", 3, 0, "storage-backend lmdb\nlmdb-sync yes");
    let replica = |id: &str| group.started(&built, &["replica", id, "CONF"]);
    let mut replicas = ["0", "1", "2"].map(replica);
    for number in 1..=20 {
        replicas[number % 3].write(&format!("submit value{number}"));
        for replica in &mut replicas {
            assert_eq!(replica.line(), format!("{number} value{number}"));
        }
    }
    replicas.iter_mut().for_each(Program::kill);
    let mut replicas = ["0", "1", "2"].map(replica);
    for number in 1..=20 {
        for replica in &mut replicas {
            assert_eq!(replica.line(), format!("{number} value{number}"));
        }
    }
    replicas[1].write("trim 15");
    replicas[1].write("submit more");
    replicas.iter_mut().for_each(|replica| assert_eq!(replica.line(), "21 more"));
    let mut learner = group.started(&built, &["learner", "CONF", "15"]);
    assert_eq!(learner.line(), "16 value16");
    let mut foreign = Foreign::connect(group.acceptors[0]);
    assert_eq!(foreign.first_of(15, 16), 16, "15 was the last to be forgotten");
    for replica in &mut replicas {
        replica.terminate();
        assert!(replica.wait(PATIENCE).success());
    }
}

/// Runs LibPaxos3's sample client, a closed loop, `times` times with each number of outstanding
/// values.
fn closed_loops(times: usize) {
    let Some(built) = Built::of_libpaxos("paxos_roles") else {
        return;
    };
    let group = Group::new("replica", 3, 0, "storage-backend memory");
    let mut replicas = ["0", "1", "2"].map(|id| group.started(&built, &["replica", id, "CONF"]));
    let mut iid = 0;
    for outstanding in ["1", "2", "32"] {
        for time in 0..times {
            let (to, name) = ((time % 3).to_string(), format!("{outstanding}-{time}"));
            let client = ["client", "CONF", &to, "40", &name, outstanding];
            let mut client = group.start(&built, &client);
            let said = client.line_within(Duration::from_secs(20));
            assert_eq!(said.as_deref(), Some("learned 40"), "{name}");
            // A learner that does not catch up receives no earlier values. The replicas receive all
            // values.
            for replica in &mut replicas {
                (1..=40).for_each(|more| {
                    let line = replica.line();
                    let begin = format!("{} {name} ", iid + more);
                    assert!(line.starts_with(&begin), "{line}, not {begin}");
                });
            }
            iid += 40;
        }
    }
}

#[test]
fn closed_loops_run_to_their_end() {
    closed_loops(8);
}

#[test]
#[ignore = "half a minute: cargo test -p quorate-capi --test suite closed_loops -- --include-ignored"]
fn closed_loops_run_to_their_end_a_hundred_times() {
    closed_loops(100);
}

/// A learner that starts after a trim begins with the first retained instance and reports that. A
/// request for a trimmed instance gets no answer.
#[test]
fn a_learner_begins_with_the_first_instance_that_is_held() {
    let Some(built) = Built::of_libpaxos("paxos_roles") else {
        return;
    };
    let group = Group::new("replica", 1, 0, "storage-backend lmdb");
    let mut replica = group.started(&built, &["replica", "0", "CONF"]);
    for number in 1..=8 {
        replica.write(&format!("submit value{number}"));
        assert_eq!(replica.line(), format!("{number} value{number}"));
    }
    replica.write("trim 5");
    replica.write("submit more");
    assert_eq!(replica.line(), "9 more");
    let mut foreign = Foreign::connect(group.acceptors[0]);
    let until = Instant::now() + PATIENCE;
    while foreign.first_of(5, 6) != 6 {
        foreign = Foreign::connect(group.acceptors[0]);
        assert!(Instant::now() < until, "5 was the last to be forgotten");
    }
    let (mut learner, said) = group.overheard(&built, &["learner", "CONF"]);
    assert_eq!(learner.line(), "started");
    for line in ["6 value6", "7 value7", "8 value8", "9 more"] {
        assert_eq!(learner.line(), line);
    }
    let line = said.recv_timeout(PATIENCE).expect("it says what is missing");
    assert_eq!(
        line,
        "instances 1 to 5 were trimmed before delivery began: the first one delivered is 6"
    );
    let (mut learner, said) = group.overheard(&built, &["learner", "CONF", "3"]);
    assert_eq!(learner.line(), "started");
    let line = said.recv_timeout(PATIENCE).expect("it says what is missing");
    assert!(line.starts_with("delivery ends") && line.contains("slot 4 "), "{line}");
    replica.write("submit last");
    assert_eq!(replica.line(), "10 last");
    assert_eq!(learner.line_within(Duration::from_millis(300)), None);
    // The replica itself also does so after a restart.
    replica.terminate();
    assert!(replica.wait(PATIENCE).success());
    let (mut replica, said) = group.overheard(&built, &["replica", "0", "CONF"]);
    assert_eq!(replica.line(), "started");
    assert_eq!(replica.line(), "6 value6");
    let line = said.recv_timeout(PATIENCE).expect("it says what is missing");
    assert!(line.starts_with("instances 1 to 5 were trimmed"), "{line}");
}

/// With `trash-files yes`, a group in which all processes are restarted begins with instance 1,
/// whatever its backend. A process that is restarted alone is refused and keeps its files.
#[test]
fn trashed_files_begin_a_new_group() {
    let Some(built) = Built::of_libpaxos("paxos_roles") else {
        return;
    };
    for backend in ["memory", "lmdb"] {
        let more = format!("storage-backend {backend}");
        let group = Group::new("replica", 3, 0, &more);
        let text = fs::read_to_string(group.conf()).expect("written");
        let replica = |id: &str| group.started(&built, &["replica", id, "CONF"]);
        let end = |replica: &mut Program| {
            replica.terminate();
            assert!(replica.wait(PATIENCE).success());
        };
        let mut replicas = ["0", "1", "2"].map(replica);
        replicas[0].write("submit old");
        for replica in &mut replicas {
            assert_eq!(replica.line(), "1 old");
        }
        // An acceptor that restarts alone and without its memory must not join the old group.
        for id in ["1", "0"] {
            let own: usize = id.parse().expect("a number");
            end(&mut replicas[own]);
            fs::write(group.conf(), format!("{text}trash-files yes\n")).expect("written");
            let (mut alone, said) = group.overheard(&built, &["replica", id, "CONF"]);
            let line = said.recv_timeout(PATIENCE).expect("it says why");
            assert!(line.contains("trash-files"), "{line}");
            alone.terminate();
            alone.wait(PATIENCE);
            fs::write(group.conf(), &text).expect("written");
            replicas[own] = replica(id);
            assert_eq!(replicas[own].line(), "1 old", "its files are there again");
        }
        replicas.iter_mut().for_each(end);
        fs::write(group.conf(), format!("{text}acceptor-trash-files yes\n")).expect("written");
        let mut replicas = ["0", "1", "2"].map(replica);
        replicas[2].write("submit new");
        for replica in &mut replicas {
            assert_eq!(replica.line(), "1 new");
        }
        // Without the option, the acceptors keep their memory.
        replicas.iter_mut().for_each(end);
        fs::write(group.conf(), &text).expect("written");
        let mut replicas = ["0", "1", "2"].map(replica);
        for replica in &mut replicas {
            assert_eq!(replica.line(), "1 new");
        }
        let left = fs::read_dir(group.folder.path()).expect("a folder");
        assert_eq!(left.count(), 4, "three folders and the configuration");
    }
}

/// Callback for a vote, with the instance, acceptor, ballot and value.
type Hears<'a> = dyn FnMut(u32, u32, u32, &[u8]) + 'a;

/// A connection that sends and receives the same bytes as LibPaxos3's own code.
struct Foreign {
    socket: TcpStream,
    heard: Vec<u8>,
}

impl Foreign {
    fn connect(port: u16) -> Self {
        let socket = TcpStream::connect(("127.0.0.1", port)).expect("listens");
        socket.set_read_timeout(Some(Duration::from_millis(100))).expect("set");
        Self { socket, heard: Vec::new() }
    }

    fn say(&mut self, message: &Message<'_>) {
        let mut bytes = Vec::new();
        message.encode(&mut bytes);
        self.write(&bytes);
    }

    fn write(&mut self, bytes: &[u8]) {
        self.socket.write_all(bytes).expect("sent");
    }

    /// Reads the bytes that have arrived. Returns `false` if the connection has ended.
    fn hear(&mut self, each: &mut Hears<'_>) -> bool {
        let mut piece = [0; 4096];
        match self.socket.read(&mut piece) {
            Ok(0) => return false,
            Ok(length) => self.heard.extend(&piece[..length]),
            Err(error) => match error.kind() {
                ErrorKind::WouldBlock | ErrorKind::TimedOut => {}
                _ => return false,
            },
        }
        while let DecodeResult::Message(message, used) = Message::decode(&self.heard, 1 << 23) {
            match message {
                Message::Accepted { aid, iid, ballot, value, .. } => each(iid, aid, ballot, value),
                other => panic!("a learner hears {other:?}"),
            }
            self.heard.drain(..used);
        }
        true
    }

    /// Requests two instances and returns the one that arrives first.
    fn first_of(&mut self, one: u32, other: u32) -> u32 {
        for iid in [one, other] {
            self.say(&Message::Repeat { from: iid, last_missing: iid });
        }
        let mut heard = Vec::new();
        let until = Instant::now() + PATIENCE;
        while heard.is_empty() {
            assert!(Instant::now() < until, "nothing is sent");
            self.hear(&mut |iid, _, _, _| heard.push(iid));
        }
        heard[0]
    }

    /// Returns whether the other side closes the connection.
    fn is_ended(&mut self) -> bool {
        let until = Instant::now() + PATIENCE;
        while Instant::now() < until {
            if !self.hear(&mut |_, _, _, _| {}) {
                return true;
            }
        }
        false
    }
}

/// Learns as LibPaxos3's learner does: the values of instances for which a majority of acceptors
/// voted in one ballot. Requests missing instances.
fn learn(acceptors: &mut [Foreign], wanted: u32) -> Vec<Vec<u8>> {
    let mut votes: BTreeMap<u32, BTreeMap<u32, (u32, Vec<u8>)>> = BTreeMap::new();
    let mut learned: Vec<Vec<u8>> = Vec::new();
    let until = Instant::now() + PATIENCE;
    while learned.len() < wanted as usize {
        assert!(Instant::now() < until, "only {} are learned", learned.len());
        for acceptor in acceptors.iter_mut() {
            let from = u32::try_from(learned.len()).expect("few") + 1;
            acceptor.say(&Message::Repeat { from, last_missing: wanted });
            acceptor.hear(&mut |iid, aid, ballot, value| {
                votes.entry(iid).or_default().insert(aid, (ballot, value.to_vec()));
            });
        }
        let majority = acceptors.len() / 2 + 1;
        loop {
            let next = u32::try_from(learned.len()).expect("few") + 1;
            let votes: Vec<_> = votes.get(&next).into_iter().flat_map(BTreeMap::values).collect();
            let equal = |vote: &&&(u32, Vec<u8>)| {
                votes.iter().filter(|other| other == vote).count() >= majority
            };
            let Some((_, value)) = votes.iter().find(equal) else {
                break;
            };
            learned.push(value.clone());
        }
    }
    learned
}

/// Handcrafted frames from an unmodified LibPaxos3 client and learner are understood: with old and
/// new versions of MessagePack, in fragments, and of all lengths.
#[test]
fn the_wire_of_libpaxos_is_understood() {
    let Some(built) = Built::of_libpaxos("paxos_roles") else {
        return;
    };
    let group = Group::new("acceptor", 3, 1, "storage-backend memory");
    let mut acceptors = ["0", "1", "2"].map(|id| group.started(&built, &["acceptor", id, "CONF"]));
    let _proposer = group.started(&built, &["proposer", "0", "CONF"]);
    let mut client = Foreign::connect(group.proposers[0]);
    let large = vec![b'l'; 300_000];
    let long = [b'm'; 200];
    let mut values: Vec<&[u8]> = vec![b"raw", b"", b"str 8", &long, &large, b"bin 8"];
    // Each value is learned before the next one is sent, which determines the order.
    let sent: [Vec<u8>; 6] = [
        b"\x92\x08\xa3raw".to_vec(),
        b"\x92\x08\xa0".to_vec(),
        b"\x92\x08\xd9\x05str 8".to_vec(),
        [b"\x92\x08\xda\x00\xc8", &long[..]].concat(),
        [b"\x92\x08\xdb\x00\x04\x93\xe0", &large[..]].concat(),
        b"\x92\xd2\0\0\0\x08\xc4\x05bin 8".to_vec(),
    ];
    let mut learners: Vec<Foreign> =
        group.acceptors.iter().map(|port| Foreign::connect(*port)).collect();
    for (at, bytes) in (1..).zip(&sent) {
        // The message arrives in two fragments.
        let (first, second) = bytes.split_at(bytes.len() / 2);
        client.write(first);
        client.write(second);
        assert_eq!(learn(&mut learners, at), values[..at as usize]);
    }
    // Many messages arrive in a single write.
    let mut bytes = Vec::new();
    for _ in 0..500 {
        Message::ClientValue { value: b"many" }.encode(&mut bytes);
    }
    client.write(&bytes);
    values.extend([&b"many"[..]; 500]);
    assert_eq!(learn(&mut learners, 506), values);
    // Two acceptors are a majority.
    acceptors[1].kill();
    let mut two = vec![Foreign::connect(group.acceptors[0]), Foreign::connect(group.acceptors[2])];
    client.say(&Message::ClientValue { value: b"last" });
    values.push(b"last");
    assert_eq!(learn(&mut two, 507), values);
    // After a trim, all acceptors forget earlier instances and no longer answer requests for them.
    two[0].say(&Message::Trim { iid: 506 });
    let mut learner = group.started(&built, &["learner", "CONF", "506"]);
    assert_eq!(learner.line(), "507 last");
    // Waits until the trim is applied.
    let mut foreign = Foreign::connect(group.acceptors[0]);
    let until = Instant::now() + PATIENCE;
    while foreign.first_of(506, 507) != 507 {
        foreign = Foreign::connect(group.acceptors[0]);
        assert!(Instant::now() < until, "506 was the last to be forgotten");
    }
    // A proposer of LibPaxos3 is refused, and so are invalid messages.
    for bytes in [
        &b"\x93\x00\x01\x01"[..],
        b"\x94\x02\x01\x01\xa1x",
        b"\x96\x03\x00\x01\x01\x01\xa1x",
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x92\x08\xdb\xff\xff\xff\xff",
        b"\xc1",
    ] {
        let mut stranger = Foreign::connect(group.acceptors[0]);
        stranger.write(bytes);
        assert!(stranger.is_ended(), "{bytes:?}");
    }
    client.say(&Message::ClientValue { value: b"still" });
    assert_eq!(learner.line(), "508 still");
}

/// A learner that does not read gets at most as many bytes as its buffer limit, and the rest on
/// request.
#[test]
fn a_learner_that_reads_nothing_holds_up_nobody() {
    let Some(built) = Built::of_libpaxos("paxos_roles") else {
        return;
    };
    let group = Group::new("replica", 1, 0, "");
    let mut replica = group.started(&built, &["replica", "0", "CONF"]);
    let mut slow = Foreign::connect(group.acceptors[0]);
    let mut client = Foreign::connect(group.acceptors[0]);
    let value = vec![b'v'; 100_000];
    for number in 1..=300 {
        client.say(&Message::ClientValue { value: &value });
        assert!(replica.line().starts_with(&format!("{number} v")));
        client.hear(&mut |_, _, _, _| {});
    }
    let learned = learn(std::slice::from_mut(&mut slow), 300);
    assert!(learned.iter().all(|learned| *learned == value));
}

/// Values without capacity wait for a trim, in order, and each arrives once.
#[test]
fn values_wait_for_room() {
    let Some(built) = Built::of_libpaxos("paxos_roles") else {
        return;
    };
    let more = "quorate-held-max 1kb\nquorate-when-full refuse";
    let group = Group::new("replica", 1, 0, more);
    let mut replica = group.started(&built, &["replica", "0", "CONF"]);
    let mut client = Foreign::connect(group.acceptors[0]);
    // More values than may wait, so the client is paused, and its input is read again later.
    for number in 0..1400 {
        client.say(&Message::ClientValue { value: format!("{number}").as_bytes() });
    }
    let mut values = Vec::new();
    for iid in 1..=1400 {
        let line = replica.line();
        let value = line.strip_prefix(&format!("{iid} ")).expect("in order").to_owned();
        values.push(value.parse::<u32>().expect("a number"));
        replica.write(&format!("trim {iid}"));
    }
    values.sort_unstable();
    assert_eq!(values, (0..1400).collect::<Vec<_>>(), "each once");
}

/// An acceptor cannot run twice, and two acceptors cannot share a folder.
#[test]
fn an_acceptor_does_not_run_twice() {
    let Some(built) = Built::of_libpaxos("paxos_roles") else {
        return;
    };
    let group = Group::new("acceptor", 1, 0, "");
    let _first = group.started(&built, &["acceptor", "0", "CONF"]);
    let mut second = group.start(&built, &["acceptor", "0", "CONF"]);
    assert_eq!(second.line(), "not started");
    let mut refused = group.start(&built, &["acceptor", "1", "CONF"]);
    assert_eq!(refused.line(), "not started");
    let mut refused = group.start(&built, &["proposer", "0", "CONF"]);
    assert_eq!(refused.line(), "not started");
}

/// An acceptor in memory that was stopped cleanly resumes after a restart, and the others do not
/// wait for it.
#[test]
fn acceptors_in_memory_come_back() {
    let Some(built) = Built::of_libpaxos("paxos_roles") else {
        return;
    };
    let group = Group::new("replica", 3, 0, "storage-backend memory");
    let replica = |id: &str| group.started(&built, &["replica", id, "CONF"]);
    let mut replicas = ["0", "1", "2"].map(replica);
    let mut number = 0;
    let mut submit = |replicas: &mut [Program], by: usize| {
        number += 1;
        replicas[by].write(&format!("submit v{number}"));
        let line = format!("{number} v{number}");
        replicas.iter_mut().for_each(|replica| assert_eq!(replica.line(), line));
        line
    };
    let first = submit(&mut replicas, 0);
    replicas[2].terminate();
    assert!(replicas[2].wait(PATIENCE).success());
    let second = submit(&mut replicas[..2], 1);
    replicas[2] = replica("2");
    assert_eq!([replicas[2].line(), replicas[2].line()], [first, second]);
    submit(&mut replicas, 2);
    // An acceptor that was killed learns again. Meanwhile the group continues.
    replicas[0].kill();
    submit(&mut replicas[1..], 0);
    replicas[0] = replica("0");
    for number in 1..=4 {
        assert_eq!(replicas[0].line(), format!("{number} v{number}"));
    }
    submit(&mut replicas, 0);
}

/// Unsafe or meaningless options are refused with the line and the reason.
#[test]
fn options_that_are_not_safe_are_refused() {
    let Some(built) = Built::of_libpaxos("paxos_roles") else {
        return;
    };
    for (line, reason) in [
        ("acceptor-trash-files often", "yes or no"),
        ("quorum-1 2", "majorities"),
        ("nonsense 1", "no such option"),
        ("lmdb-mapsize many", "a number"),
        ("acceptor 0 127.0.0.1 1", "already"),
        ("acceptor 7 localhost 1", "an IPv4 address"),
        ("acceptor 70 127.0.0.1 1", "ids are"),
        ("acceptor 7 127.0.0.1 70000", "a port"),
        ("acceptor 7 127.0.0.1 7", "no gaps"),
        ("verbosity loud", "is wanted"),
    ] {
        let group = Group::new("acceptor", 1, 0, "");
        let text = fs::read_to_string(group.conf()).expect("written");
        fs::write(group.conf(), format!("{text}{line}\n")).expect("written");
        let conf = group.conf();
        let conf = conf.to_str().expect("a name");
        let mut command = built.command();
        command.args(["acceptor", "0", conf]).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut acceptor = command.spawn().expect("starts");
        let mut first = String::new();
        let output = acceptor.stdout.take().expect("piped");
        BufReader::new(output).read_line(&mut first).expect("it says whether it starts");
        acceptor.kill().expect("ended");
        let output = acceptor.wait_with_output().expect("ended");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(first == "not started\n" && said.contains(reason), "{line}: {first}{said}");
    }
}
