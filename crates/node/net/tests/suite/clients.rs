//! Clients on loopback: back-pressure, limits, final messages, many connections.

use std::{
    io::{ErrorKind, Read, Write},
    net::{Shutdown, TcpStream},
    os::unix::net::UnixStream,
    sync::mpsc::channel,
    time::Instant,
};

use crate::common::{DEADLINE, Event, Node, Start, lone};
use quorate_net::{IoSpread, IoThreads, Limits};
use quorate_replica::{front::ListenerKind, pressure::Pressure};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Runs each test twice: with all sockets in the reactor, and with those of clients that have sent
/// something in I/O threads.
macro_rules! both {
    ($($name:ident,)+) => {
        mod here {
            $(#[test]
            fn $name() {
                super::$name(quorate_net::Limits::default());
            })+
        }

        mod away {
            $(#[test]
            fn $name() {
                super::$name(super::away_limits());
            })+
        }
    };
}

both! {
    pipelined_requests_are_answered_in_order_over_tcp_and_unix,
    the_front_is_told_by_which_listener_a_client_came,
    a_command_in_pieces_is_one_command,
    back_pressure_reaches_the_client_and_ends,
    a_full_host_reads_no_client_until_it_is_well_below,
    a_client_that_does_not_read_costs_its_output_and_no_other_client,
    a_client_that_closed_its_half_gets_its_answers,
    the_front_is_told_of_a_clients_last_byte_once_it_has_used_all,
    a_front_without_words_has_its_client_reset,
    the_last_error_reaches_a_client_that_keeps_sending,
    a_farewell_ends,
    bytes_that_make_no_command_are_bounded,
    who_holds_most_of_the_memory_for_clients_is_closed,
    a_thousand_idle_clients_cost_no_turns_and_each_still_works,
    more_clients_than_allowed_wait_for_a_place,
    hostile_bytes_on_the_client_port_are_the_fronts_to_judge,
    a_stop_finishes_what_was_accepted,
    a_stop_does_not_wait_for_ever,
}

fn away_limits() -> Limits {
    Limits { io_threads: IoThreads::Fixed(2), io_spread: IoSpread::Always, ..Limits::default() }
}

fn read(stream: &mut (impl Read + ?Sized), count: usize) -> Vec<u8> {
    let mut bytes = vec![0; count];
    stream.read_exact(&mut bytes).unwrap();
    bytes
}

fn read_to_end(stream: &mut impl Read) -> Vec<u8> {
    let mut bytes = Vec::new();
    let _ = stream.read_to_end(&mut bytes);
    bytes
}

/// Waits for a client whose answer is held back, and returns its id.
fn wait_slow(node: &Node) -> u64 {
    node.shared.wait_until("a slow request", |world| !world.slow.is_empty());
    node.shared.lock().slow[0]
}

fn pipelined_requests_are_answered_in_order_over_tcp_and_unix(limits: Limits) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("client.sock");
    let bound = Start { socket: Some(path.clone()), limits, ..Start::node(1) }.bind();
    let peers = [bound.peer_address()];
    let node = bound.run(&peers);
    let lines: String = (0..5000).map(|n| format!("line {n}\n")).collect();
    let mut tcp = node.client();
    let mut unix = UnixStream::connect(&path).unwrap();
    tcp.write_all(lines.as_bytes()).unwrap();
    unix.write_all(lines.as_bytes()).unwrap();
    assert!(read(&mut tcp, lines.len()) == lines.as_bytes());
    assert!(read(&mut unix, lines.len()) == lines.as_bytes());
    drop((tcp, unix));
    node.shared.wait_until("both gone", |world| world.clients.is_empty());
}

fn the_front_is_told_by_which_listener_a_client_came(limits: Limits) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("client.sock");
    let bound = Start { socket: Some(path.clone()), limits, ..Start::node(1) }.bind();
    let peers = [bound.peer_address()];
    let node = bound.run(&peers);
    let echo = |client: &mut dyn Talk| {
        client.write_all(b"hello\n").unwrap();
        assert_eq!(read(client, 6), b"hello\n");
    };
    let mut stream = TcpStream::connect(&node.stream).unwrap();
    echo(&mut stream);
    echo(&mut node.client());
    echo(&mut UnixStream::connect(&path).unwrap());
    echo(&mut TcpStream::connect(&node.stream).unwrap());
    echo(&mut TcpStream::connect(&node.raw).unwrap());
    let doors = node.shared.lock().doors.clone();
    let expected = [
        ListenerKind::Streams,
        ListenerKind::Commands,
        ListenerKind::Commands,
        ListenerKind::Streams,
        ListenerKind::StreamsRaw,
    ];
    assert_eq!(doors, expected);
    // A stopping node accepts no clients at either listener, and finishes its requests.
    node.stop();
    assert_eq!(read_to_end(&mut stream), b"");
}

trait Talk: Read + Write {}
impl<T: Read + Write> Talk for T {}

fn a_command_in_pieces_is_one_command(limits: Limits) {
    let node = lone(limits, &[]);
    let mut client = node.client();
    client.set_nodelay(true).unwrap();
    let mut line = vec![b'y'; 300_000];
    line.push(b'\n');
    for piece in line.chunks(7_001) {
        client.write_all(piece).unwrap();
    }
    assert!(read(&mut client, line.len()) == line);
}

/// While the front accepts no input, the reactor stops reading, TCP slows the client down, and
/// nothing accumulates in the node.
fn back_pressure_reaches_the_client_and_ends(limits: Limits) {
    let node = lone(limits, &[]);
    let mut client = node.client();
    client.write_all(b"hello\n").unwrap();
    assert_eq!(read(&mut client, 6), b"hello\n");
    node.shared.change(|world| world.hold = true);
    client.set_nonblocking(true).unwrap();
    let line = [b'z'; 1024];
    let mut sent = 0usize;
    let mut held = None;
    // At first the kernel's buffers fill up. They must stay full, because nothing is read any more.
    loop {
        match client.write(&line) {
            Ok(count) => {
                sent += count;
                held = None;
                assert!(sent < 256 << 20, "there is no end to what is taken");
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                let calls = node.handle.metrics().unwrap().stats.calls_client_read;
                if held.replace(calls) == Some(calls) {
                    break;
                }
            }
            Err(error) => panic!("{error}"),
        }
    }
    assert_eq!(node.shared.lock().received, 6);
    client.set_nonblocking(false).unwrap();
    let mut writer = client.try_clone().unwrap();
    let writer = std::thread::spawn(move || writer.write_all(b"\n").unwrap());
    node.shared.change(|world| world.hold = false);
    assert_eq!(read(&mut client, sent + 1).len(), sent + 1);
    writer.join().unwrap();
}

/// A full node reads from no client until its pressure is low again.
fn a_full_host_reads_no_client_until_it_is_well_below(limits: Limits) {
    let node = lone(limits, &[]);
    let mut clients = [node.client(), node.client()];
    for client in &mut clients {
        client.write_all(b"hello\n").unwrap();
        assert_eq!(read(client, 6), b"hello\n");
    }
    let set = |level| node.shared.change(|world| world.pressure = Some(level));
    let held = || node.handle.metrics().unwrap().stats.client_holds;
    set(Pressure::Medium);
    clients[0].write_all(b"below\n").unwrap();
    assert_eq!(read(&mut clients[0], 6), b"below\n");
    assert_eq!(held(), 0);
    set(Pressure::High);
    for client in &mut clients {
        client.write_all(b"wait!\n").unwrap();
    }
    let began = Instant::now();
    while held() < 2 {
        assert!(began.elapsed() < DEADLINE, "clients are read all the same");
    }
    // Each request is answered at the end of a turn in which clients could have been read.
    set(Pressure::Medium);
    (0..3).for_each(|_| assert_eq!(held(), 2, "once each"));
    assert_eq!(node.shared.lock().received, 18);
    set(Pressure::Low);
    for client in &mut clients {
        assert_eq!(read(client, 6), b"wait!\n");
    }
}

fn a_client_that_does_not_read_costs_its_output_and_no_other_client(limits: Limits) {
    let node = lone(limits, &[]);
    let mut greedy = node.client();
    for _ in 0..20 {
        greedy.write_all(b"big\n").unwrap();
    }
    let mut other = node.client();
    for _ in 0..100 {
        other.write_all(b"ping\n").unwrap();
        assert_eq!(read(&mut other, 5), b"ping\n");
    }
    for _ in 0..20 {
        assert_eq!(read(&mut greedy, 3 << 20).len(), 3 << 20);
    }
}

/// `printf 'GET k\r\n' | nc` half-closes its connection at once and still gets its reply.
fn a_client_that_closed_its_half_gets_its_answers(limits: Limits) {
    let node = lone(limits, &[]);
    node.shared.lock().hold_slow = true;
    let mut client = node.client();
    client.write_all(b"one\nslow\n").unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    assert_eq!(read(&mut client, 4), b"one\n");
    wait_slow(&node);
    // Turns in which the half-close is seen.
    node.handle.status().unwrap();
    node.handle.status().unwrap();
    node.shared.change(|world| world.hold_slow = false);
    assert_eq!(read_to_end(&mut client), b"slow answer\n");
    node.shared.wait_until("gone", |world| world.clients.is_empty());
}

/// The half-close, which is the only mark of a raw stream's end, is reported once, after all bytes,
/// and not by a stopping node.
fn the_front_is_told_of_a_clients_last_byte_once_it_has_used_all(limits: Limits) {
    let node = lone(limits, &[]);
    node.shared.lock().hold_slow = true;
    let mut client = node.client();
    client.write_all(b"slow\n").unwrap();
    wait_slow(&node);
    client.write_all(b"thr").unwrap();
    node.wait_stats("the beginning", |stats| stats.client_bytes_in == 8);
    // The rest and the end arrive together while the front accepts no input.
    let (entered, inside) = channel();
    let (leave, left) = channel::<()>();
    node.shared.change(|world| {
        world.hold = true;
        world.on_submit = Some(Box::new(move || {
            entered.send(()).unwrap();
            left.recv().unwrap();
        }));
    });
    inside.recv().unwrap();
    client.write_all(b"ee\nmore\nlines\n").unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    leave.send(()).unwrap();
    node.wait_stats("the rest", |stats| stats.client_bytes_in == 22);
    node.handle.status().unwrap();
    assert_eq!(node.shared.lock().half_closed, []);
    let mut other = node.client();
    other.write_all(b"x\n").unwrap();
    node.shared.change(|world| world.hold = false);
    assert_eq!(read(&mut client, 17), b"three\nmore\nlines\n");
    assert_eq!(read(&mut other, 2), b"x\n");
    node.shared.wait_until("the end", |world| !world.half_closed.is_empty());
    node.shared.change(|world| world.hold_slow = false);
    assert_eq!(read_to_end(&mut client), b"slow answer\n");
    let shared = node.shared.clone();
    node.stop();
    assert_eq!(read_to_end(&mut other), b"");
    let told = shared.lock().half_closed.clone();
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].1 >= 5 + 17, "{told:?}");
}

fn a_front_without_words_has_its_client_reset(limits: Limits) {
    let node = lone(limits, &[]);
    let mut client = node.client();
    client.write_all(b"one\n").unwrap();
    assert_eq!(read(&mut client, 4), b"one\n");
    client.write_all(b"break\n").unwrap();
    let error = client.read(&mut [0]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    node.wait_stats("a reset", |stats| stats.clients_reset == 1);
}

/// The last error reaches a client that keeps sending; closing with unread input would discard it.
fn the_last_error_reaches_a_client_that_keeps_sending(limits: Limits) {
    let node = lone(limits, &[]);
    let mut client = node.client();
    client.write_all(b"bye\n").unwrap();
    client.write_all(&vec![b'q'; 1 << 20]).unwrap();
    assert_eq!(read_to_end(&mut client), b"error: bye\n");
    drop(client);
    node.shared.wait_until("gone", |world| world.clients.is_empty());
}

/// A client that never closes its connection is disconnected after the farewell.
fn a_farewell_ends(limits: Limits) {
    let node = lone(Limits { close_timeout_ms: 20, ..limits }, &[]);
    let mut client = node.client();
    client.write_all(b"bye\n").unwrap();
    node.shared.wait_until("gone", |world| {
        world.events.iter().any(|event| matches!(event, Event::ClientClosed(_)))
    });
    assert_eq!(read_to_end(&mut client), b"error: bye\n");
}

fn bytes_that_make_no_command_are_bounded(limits: Limits) {
    let limits = Limits { client_backlog_bytes_max: 1 << 20, ..limits };
    let node = lone(limits, &[]);
    let mut client = node.client();
    let mut other = node.client();
    // The connection breaks at some point of this write.
    let _ = client.write_all(&vec![b'n'; 64 << 20]);
    node.shared.wait_until("gone", |world| world.clients.len() == 1);
    other.write_all(b"still here\n").unwrap();
    assert_eq!(read(&mut other, 11), b"still here\n");
}

/// All clients together have a memory limit. The client that uses the most is closed, whether it
/// does not read or does not end its command, and the other clients are not affected.
fn who_holds_most_of_the_memory_for_clients_is_closed(limits: Limits) {
    let limits = Limits { clients_bytes_max: 1 << 20, ..limits };
    let node = lone(limits, &[]);
    let mut clients: Vec<TcpStream> = (0..3).map(|_| node.client()).collect();
    for (client, bytes) in clients.iter_mut().zip([300_000, 100_000, 500_000]) {
        let _ = client.write_all(&vec![b'n'; bytes]);
    }
    node.wait_stats("one of them closed", |stats| stats.clients_shed == 1);
    assert!(read_to_end(&mut clients[2]).is_empty());
    for client in &mut clients[..2] {
        client.write_all(b"\n").unwrap();
    }
    assert_eq!(read(&mut clients[0], 300_001).last(), Some(&b'\n'));
    assert_eq!(read(&mut clients[1], 100_001).last(), Some(&b'\n'));

    // This client does not read its replies, until the kernel's buffers and the node's are full.
    let mut deaf = node.client();
    let line = [&[b'x'; 9_999][..], b"\n"].concat();
    while deaf.write_all(&line).is_ok() {}
    node.wait_stats("it is closed", |stats| stats.clients_shed == 2);
    clients[0].write_all(b"still here\n").unwrap();
    assert_eq!(read(&mut clients[0], 11), b"still here\n");
    assert_eq!(node.handle.metrics().unwrap().stats.clients_closed, 2);
}

fn a_thousand_idle_clients_cost_no_turns_and_each_still_works(limits: Limits) {
    // This process has both ends of each connection; the soft limit is often 1024.
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).unwrap();
    if maximum.is_some_and(|most| most < 2500) {
        return eprintln!("skipped: a thousand clients: only {maximum:?} files may be open");
    }
    let node = lone(limits, &[]);
    let mut clients: Vec<TcpStream> = (0..1000).map(|_| node.client()).collect();
    node.shared.wait_until("all", |world| world.clients.len() == 1000);
    // Each request costs a turn; idle clients cost none in between.
    let turns = || node.handle.metrics().unwrap().stats.turns;
    let before = turns();
    for _ in 0..10 {
        node.handle.status().unwrap();
    }
    assert!(turns() - before <= 12, "idle clients make the reactor turn");
    for (index, client) in clients.iter_mut().enumerate().step_by(37) {
        let line = format!("client {index}\n");
        client.write_all(line.as_bytes()).unwrap();
        assert_eq!(read(client, line.len()), line.as_bytes());
    }
    node.stop();
    for client in &mut clients {
        assert!(read_to_end(client).is_empty());
    }
}

fn more_clients_than_allowed_wait_for_a_place(limits: Limits) {
    let node = lone(Limits { clients_max: 2, ..limits }, &[]);
    let first = node.client();
    let _second = node.client();
    node.shared.wait_until("two", |world| world.clients.len() == 2);
    let mut third = node.client(); // the kernel takes it, the node does not
    third.write_all(b"me too\n").unwrap();
    node.wait_stats("a pause", |stats| stats.accept_pauses >= 1);
    assert_eq!(node.shared.lock().clients.len(), 2);
    drop(first);
    assert_eq!(read(&mut third, 7), b"me too\n");
}

fn hostile_bytes_on_the_client_port_are_the_fronts_to_judge(limits: Limits) {
    let node = lone(limits, &[]);
    let mut client = node.client();
    let noise: Vec<u8> =
        (0..100_000u32).map(|n| n.wrapping_mul(2_654_435_761).to_be_bytes()[0]).collect();
    client.write_all(&noise).unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    let whole = noise.iter().rposition(|byte| *byte == b'\n').unwrap() + 1;
    assert!(read_to_end(&mut client) == noise[..whole]);
}

fn a_stop_finishes_what_was_accepted(limits: Limits) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("client.sock");
    let bound = Start { socket: Some(path.clone()), limits, ..Start::node(1) }.bind();
    let peers = [bound.peer_address()];
    let node = bound.run(&peers);
    let handle = node.handle.clone();
    node.shared.lock().hold_slow = true;
    let (mut client, mut late) = (node.client(), node.client());
    client.write_all(b"slow\n").unwrap();
    node.shared.wait_until("both", |world| world.clients.len() == 2 && world.slow.len() == 1);
    handle.stop();
    node.shared.wait_event(&Event::Stop);
    assert!(!path.exists(), "the socket file is gone when the stop begins");
    let _ = late.write_all(b"too late\n");
    node.shared.change(|world| world.hold_slow = false);
    assert_eq!(read_to_end(&mut client), b"slow answer\n");
    assert!(read_to_end(&mut late).is_empty());
    node.wait_ended();
    assert_eq!(handle.status(), Err(quorate_net::Unanswered::Stopped));
}

fn a_stop_does_not_wait_for_ever(limits: Limits) {
    let node = lone(Limits { stop_timeout_ms: 20, ..limits }, &[]);
    node.shared.lock().hold_slow = true;
    let mut client = node.client();
    client.write_all(b"slow\n").unwrap();
    wait_slow(&node);
    node.stop();
    assert!(read_to_end(&mut client).is_empty());
}

/// [io-1] [io-2] [io-5] [io-7] Clients move to threads, and back for anything that threads do not
/// serve.
#[test]
fn clients_go_to_threads_and_come_back_with_what_threads_do_not_serve() {
    let node = lone(away_limits(), &[]);
    let moves = || node.handle.metrics().unwrap().stats.io_thread_moves;
    let mut clients: Vec<TcpStream> = (0..20).map(|_| node.client()).collect();
    for round in 0..50 {
        for (number, client) in clients.iter_mut().enumerate() {
            let line = format!("{round} of {number}\n");
            client.write_all(line.as_bytes()).unwrap();
            assert_eq!(read(client, line.len()), line.as_bytes());
        }
    }
    let stats = node.handle.metrics().unwrap().stats;
    assert_eq!(stats.io_thread_moves, 20);
    assert!(stats.io_thread_records >= 20 * 49, "{stats:?}");
    // A large command, and one with a large reply, bring their clients back for good.
    let large = [&vec![b'l'; 1 << 20][..], b"\n"].concat();
    clients[0].write_all(&large).unwrap();
    assert!(read(&mut clients[0], large.len()) == large);
    clients[1].write_all(b"big\n").unwrap();
    assert_eq!(read(&mut clients[1], 3 << 20).len(), 3 << 20);
    for client in &mut clients {
        client.write_all(b"again\n").unwrap();
        assert_eq!(read(client, 6), b"again\n");
    }
    assert_eq!(moves(), 20);
    let served = "18 of 20 clients are served by 2 I/O threads".to_owned();
    assert!(node.handle.status().unwrap().choices.contains(&served));
}

/// [io-3] A busy reactor hands clients over to threads, and takes them back once it is idle.
#[test]
fn a_busy_reactor_gives_clients_away_and_takes_them_back() {
    let limits = Limits { io_spread: IoSpread::ByLoad, ..away_limits() };
    let node = lone(limits, &[]);
    let mut lone = node.client();
    node.shared.lock().busy_us = 100;
    let mut clients: Vec<TcpStream> = (0..20).map(|_| node.client()).collect();
    let began = Instant::now();
    while node.handle.metrics().unwrap().stats.io_thread_moves < 21 {
        assert!(began.elapsed() < DEADLINE, "clients stay");
        for client in clients.iter_mut().chain([&mut lone]) {
            client.write_all(b"ping\n").unwrap();
        }
        for client in clients.iter_mut().chain([&mut lone]) {
            assert_eq!(read(client, 5), b"ping\n");
        }
    }
    node.shared.lock().busy_us = 0;
    let away = |node: &Node| {
        let choices = node.handle.status().unwrap().choices;
        !choices.contains(&"0 of 21 clients are served by 2 I/O threads".to_owned())
    };
    // Only these questions wake the reactor.
    while away(&node) {
        assert!(began.elapsed() < DEADLINE, "clients do not come back");
    }
    lone.write_all(b"ping\n").unwrap();
    assert_eq!(read(&mut lone, 5), b"ping\n");
}
