//! The generator over real sockets, against servers that misbehave in known ways. Tests check
//! counts, never times.

use std::{
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpListener},
    thread,
};

use quorate_bench::{
    generator::RunningLoad,
    load::{LoadPlan, OfferedLoad},
    protocol::resp::RespEncoder,
    samples::Samples,
    schedule::SECOND,
};

/// Starts a server that replies to each SET with `answer` of its number, or closes the connection
/// for `None`.
fn server(answer: fn(u64) -> Option<&'static [u8]>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for socket in listener.incoming() {
            let mut socket = socket.unwrap();
            thread::spawn(move || {
                let (mut seen, mut input) = (0, vec![0; 1 << 16]);
                while let Ok(count) = socket.read(&mut input)
                    && count > 0
                {
                    // Each request has one array marker.
                    let requests = input[..count].iter().filter(|byte| **byte == b'*').count();
                    for _ in 0..requests {
                        seen += 1;
                        let Some(answer) = answer(seen) else { return };
                        if socket.write_all(answer).is_err() {
                            return;
                        }
                    }
                }
            });
        }
    });
    address
}

fn run(address: SocketAddr, offer: OfferedLoad, connections: u32) -> Samples {
    let plan = LoadPlan {
        offer,
        connections,
        warmup_ns: 0,
        measure_ns: SECOND / 4,
        reply_timeout_ns: 10 * SECOND,
    };
    let running =
        RunningLoad::start(plan, vec![address.into()], RespEncoder::new(8, 100, 0)).unwrap();
    assert!(running.wait_started().is_some());
    running.finish().unwrap()
}

#[test]
fn every_command_gets_its_reply() {
    let address = server(|_| Some(b"+OK\r\n"));
    let open = run(address, OfferedLoad::Open { per_second: 4000 }, 4);
    assert_eq!((open.sent_count, open.latencies.count()), (1000, 1000));
    assert_eq!((open.errors, open.lost), (0, 0));
    let closed = run(address, OfferedLoad::Closed { outstanding: 10 }, 3);
    assert_eq!((closed.errors, closed.lost), (0, 0));
    assert_eq!(closed.latencies.count(), closed.sent_count);
    assert!(closed.completed > 0);
}

#[test]
fn errors_are_counted_with_their_words() {
    let address =
        server(|number| Some(if number % 10 == 0 { b"-BUSY later\r\n" } else { b"+OK\r\n" }));
    let samples = run(address, OfferedLoad::Open { per_second: 4000 }, 1);
    assert_eq!((samples.errors, samples.lost), (100, 0));
    assert_eq!(samples.first_error.as_deref(), Some("BUSY later"));
}

#[test]
fn a_connection_that_breaks_loses_what_was_outstanding() {
    let address = server(|number| (number <= 5).then_some(b"+OK\r\n"));
    let samples = run(address, OfferedLoad::Closed { outstanding: 8 }, 2);
    assert_eq!(samples.lost, 8);
    assert!(samples.first_error.is_some());
}

#[test]
fn a_system_that_is_not_redis_is_told_apart() {
    let address = server(|_| Some(b"HTTP/1.1 400 Bad Request\r\n"));
    let samples = run(address, OfferedLoad::Closed { outstanding: 1 }, 1);
    assert_eq!(samples.lost, 1);
    let why = samples.first_error.unwrap();
    assert!(why.contains("neither a line nor a value"), "{why}");
}

#[test]
fn nobody_there_is_an_error_with_the_address() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let plan = LoadPlan {
        offer: OfferedLoad::Closed { outstanding: 1 },
        connections: 1,
        warmup_ns: 0,
        measure_ns: SECOND,
        reply_timeout_ns: SECOND,
    };
    let running =
        RunningLoad::start(plan, vec![address.into()], RespEncoder::new(8, 100, 0)).unwrap();
    assert!(running.wait_started().is_none());
    let error = running.finish().unwrap_err().to_string();
    assert!(error.contains(&address.to_string()), "{error}");
}
