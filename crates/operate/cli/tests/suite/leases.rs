//! `--reads lease` with real processes. A leader that is stopped for longer than its lease, in the
//! middle of its work, answers no later read with outdated data ([read-6]).

use std::{
    collections::VecDeque,
    io::{self, BufReader, Write as _},
    net::TcpStream,
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst},
    },
    thread,
};

use crate::common::{Cluster, START_TIMEOUT, wait_for};

const FLAGS: [&str; 4] = ["--reads", "lease", "--election-ms", "300-600"];
/// Number of times that a leader is paused.
const ROUNDS: u64 = 12;
/// Number of connections that constantly send reads, so that the leader is always paused while
/// processing some.
const READERS: usize = 4;
/// Number of reads in flight per connection. The same number is added while the leader is paused,
/// and waits in its sockets.
const OUTSTANDING: usize = 64;
const GET: &[u8] = b"*2\r\n$3\r\nGET\r\n$1\r\nx\r\n";

/// State shared by the connections of a round.
#[derive(Default)]
struct Round {
    /// Last acknowledged value. A read sent now must return this value or a newer one.
    floor: AtomicU64,
    outstanding: AtomicUsize,
    stop: AtomicBool,
    answered: AtomicU64,
    /// Number of reads sent after the write that was made during the pause.
    behind: AtomicUsize,
    /// Number of connections that received the value written during the pause, an error, or the end
    /// of the connection.
    settled: AtomicUsize,
    /// Number of settled connections that received the value.
    fresh: AtomicUsize,
    wrong: Mutex<Option<String>>,
}

impl Round {
    /// Sends reads. Records the oldest value that each read may return.
    fn send(&self, mut stream: TcpStream, floors: &Mutex<VecDeque<u64>>, newest: u64) {
        while !self.stop.load(SeqCst) {
            if floors.lock().unwrap().len() >= self.outstanding.load(SeqCst) {
                thread::yield_now();
                continue;
            }
            let floor = self.floor.load(SeqCst);
            floors.lock().unwrap().push_back(floor);
            if stream.write_all(GET).is_err() {
                return;
            }
            self.behind.fetch_add(usize::from(floor == newest), SeqCst);
        }
    }

    /// Receives replies until one belongs to a read that was sent after the write made during the
    /// pause.
    fn receive(
        &self,
        stream: TcpStream,
        floors: &Mutex<VecDeque<u64>>,
        newest: u64,
    ) -> io::Result<()> {
        let mut replies = BufReader::new(stream);
        let mut last = 0;
        while !self.stop.load(SeqCst) {
            let found = reply(&mut replies)?;
            let floor = floors.lock().unwrap().pop_front().unwrap();
            if let Some(found) = found {
                if found < floor.max(last) {
                    let what = format!("found {found}; {floor} was acknowledged, {last} seen");
                    self.wrong.lock().unwrap().get_or_insert(what);
                }
                last = found;
                self.answered.fetch_add(1, SeqCst);
            }
            if floor == newest {
                self.fresh.fetch_add(usize::from(found.is_some()), SeqCst);
                return Ok(());
            }
        }
        Ok(())
    }

    fn read_on(&self, address: &str, newest: u64) {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(START_TIMEOUT)).unwrap();
        let sender = stream.try_clone().unwrap();
        let floors = Mutex::default();
        thread::scope(|scope| {
            scope.spawn(|| self.send(sender, &floors, newest));
            let ended = self.receive(stream.try_clone().unwrap(), &floors, newest);
            self.settled.fetch_add(1, SeqCst);
            // Shut down the connection for the sender as well.
            let _ = (ended, stream.shutdown(std::net::Shutdown::Both));
        });
    }
}

/// Reads a reply. Returns its number, or `None` for an error.
fn reply(replies: &mut impl io::BufRead) -> io::Result<Option<u64>> {
    let mut line = || -> io::Result<String> {
        let mut line = String::new();
        match replies.read_line(&mut line)? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(line),
        }
    };
    match line()?.as_bytes() {
        [b'$', b'1'..=b'9', ..] => Ok(Some(line()?.trim_end().parse().unwrap())),
        [b'-', ..] => Ok(None),
        other => panic!("{other:?}"),
    }
}

fn leased(cluster: &Cluster, node: u32) -> u64 {
    cluster.nodes.metric(node, "quorate_reads_leased_total ").unwrap()
}

fn set(cluster: &Cluster, from: u32, value: u64) {
    let value = value.to_string();
    let mut client = cluster.client_of(from);
    client.run(&[b"SET", b"x", value.as_bytes()]).unwrap();
}

/// Pauses the leader. Returns the number of connections that received the value written during the
/// pause, or `None` if leadership moved before.
fn pause(cluster: &mut Cluster, value: u64) -> Option<usize> {
    let leader = cluster.leader();
    let address = cluster.clients()[leader as usize - 1].clone();
    set(cluster, leader, value);
    let before = leased(cluster, leader);
    let round = Round::default();
    round.floor.store(value, SeqCst);
    round.outstanding.store(OUTSTANDING, SeqCst);
    thread::scope(|scope| {
        for _ in 0..READERS {
            scope.spawn(|| round.read_on(&address, value + 1));
        }
        wait_for("reads", || (round.answered.load(SeqCst) > 1000).then_some(()));
        // The pause counts only if reads used the lease. On a busy machine, leadership may have
        // moved.
        if leased(cluster, leader) == before {
            round.stop.store(true, SeqCst);
            return;
        }
        cluster.nodes.pause(leader).unwrap();
        // Another node leads and accepts a write, so the lease has expired. The client knows only
        // the other nodes.
        set(cluster, 1 + leader % 3, value + 1);
        round.floor.store(value + 1, SeqCst);
        round.outstanding.store(2 * OUTSTANDING, SeqCst);
        // All reads are in the leader's sockets before it resumes.
        wait_for("reads in its sockets", || {
            (round.behind.load(SeqCst) >= READERS * OUTSTANDING).then_some(())
        });
        cluster.nodes.resume(leader).unwrap();
        wait_for("replies", || (round.settled.load(SeqCst) == READERS).then_some(()));
        round.stop.store(true, SeqCst);
    });
    if let Some(wrong) = round.wrong.into_inner().unwrap() {
        panic!("after a pause of node {leader}: {wrong}");
    }
    cluster.wait_until_all_serve();
    let settled = round.settled.into_inner();
    (round.floor.into_inner() > value && settled == READERS).then(|| round.fresh.into_inner())
}

#[test]
fn a_leader_that_was_stopped_longer_than_its_lease_answers_nothing_old() {
    let mut cluster = Cluster::start(3, &FLAGS);
    let (mut paused, mut fresh) = (0, 0);
    for round in 1.. {
        if let Some(found) = pause(&mut cluster, 2 * round) {
            (paused, fresh) = (paused + 1, fresh + found);
        }
        assert!(round < 4 * ROUNDS, "no read is answered by lease");
        if paused == ROUNDS {
            break;
        }
    }
    assert!(fresh > 0, "no read was answered at all");
}
