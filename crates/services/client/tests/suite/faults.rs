//! The client against a server that drops connections, delays, refuses and forgets.

use std::{
    collections::{BTreeMap, VecDeque},
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    sync::{Arc, Mutex},
    thread,
    time::Duration,
};

use quorate_client::{Client, Error, Options, Reply, Transaction, stream};
use quorate_tls::stream::NEEDS_TLS;

/// Fault of the fake server at the next numbered command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// Closes the connection without executing the command.
    DropBefore,
    /// Executes the command and closes the connection without a reply.
    DropAfter,
    /// Executes the command and never replies.
    Silent,
    /// Replies with this error without executing the command.
    Refuse(&'static str),
    /// Executes the command and replies that the outcome is unknown.
    Unknown,
    Fine,
}

#[derive(Default)]
struct World {
    faults: VecDeque<Fault>,
    executed: Vec<(String, u64, Vec<u8>)>,
    replies: BTreeMap<(String, u64), i64>,
    sessions: u64,
    /// Error reply to a request for a session.
    forbids: Option<&'static str>,
    acknowledged: Vec<u64>,
    /// Error replies to the next queued commands.
    refused_queued: VecDeque<&'static str>,
    /// Databases selected by new connections.
    selected: Vec<String>,
    /// Error replies to the next SELECT commands.
    refused_selections: VecDeque<&'static str>,
}

#[derive(Clone)]
struct Fake {
    world: Arc<Mutex<World>>,
    address: String,
}

impl Fake {
    fn start(faults: &[Fault]) -> Self {
        let world = Arc::new(Mutex::new(World::default()));
        world.lock().unwrap().faults.extend(faults);
        Self::listen(&world)
    }

    /// Starts another node of the same cluster.
    fn listen(world: &Arc<Mutex<World>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let fake = Self { world: Arc::clone(world), address };
        let node = fake.clone();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let node = node.clone();
                thread::spawn(move || node.serve(stream.unwrap()));
            }
        });
        fake
    }

    fn serve(&self, mut stream: TcpStream) {
        let mut session = String::new();
        let mut input = Vec::new();
        // Set after MULTI: whether every command was queued.
        let mut queued = None;
        while let Some(arguments) = command(&mut stream, &mut input) {
            let words: Vec<&str> =
                arguments.iter().map(|word| std::str::from_utf8(word).unwrap()).collect();
            match &words[..] {
                ["QUORATE", "SESSION"] => {
                    let mut world = self.world.lock().unwrap();
                    if let Some(text) = world.forbids {
                        stream.write_all(format!("-{text}\r\n").as_bytes()).unwrap();
                        continue;
                    }
                    world.sessions += 1;
                    session = format!("{}.0", world.sessions);
                    let reply = format!("${}\r\n{session}\r\n", session.len());
                    stream.write_all(reply.as_bytes()).unwrap();
                }
                ["QUORATE", "SESSION", id] => {
                    session = (*id).to_owned();
                    stream.write_all(b"+OK\r\n").unwrap();
                }
                ["QUORATE", "ACK", below] => {
                    self.world.lock().unwrap().acknowledged.push(below.parse().unwrap());
                    stream.write_all(b"+OK\r\n").unwrap();
                }
                ["SELECT", number] if queued.is_none() => {
                    let mut world = self.world.lock().unwrap();
                    world.selected.push((*number).to_owned());
                    let refused = world.refused_selections.pop_front();
                    let reply = refused.map_or("+OK\r\n".to_owned(), |text| format!("-{text}\r\n"));
                    stream.write_all(reply.as_bytes()).unwrap();
                }
                ["MULTI"] if queued.is_some() => {
                    queued = Some(false);
                    stream.write_all(b"-ERR MULTI calls can not be nested\r\n").unwrap();
                }
                ["MULTI"] => {
                    queued = Some(true);
                    stream.write_all(b"+OK\r\n").unwrap();
                }
                ["QUORATE", "SEQ", _, "EXEC"] if queued == Some(false) => {
                    queued = None;
                    stream.write_all(b"-EXECABORT previous errors\r\n").unwrap();
                }
                ["QUORATE", "SEQ", number, what] => {
                    let answer = self.numbered(&session, number.parse().unwrap(), what.as_bytes());
                    match answer {
                        None => return,
                        Some(text) => {
                            // A forbidden EXEC does not end the transaction.
                            queued = queued.filter(|_| text.starts_with("-NOPERM"));
                            if stream.write_all(text.as_bytes()).is_err() {
                                return;
                            }
                        }
                    }
                }
                _ if queued.is_some() => {
                    let refused = self.world.lock().unwrap().refused_queued.pop_front();
                    queued = queued.map(|all| all && refused.is_none());
                    let reply =
                        refused.map_or("+QUEUED\r\n".to_owned(), |text| format!("-{text}\r\n"));
                    stream.write_all(reply.as_bytes()).unwrap();
                }
                _ => stream.write_all(b"-WRONGTYPE not a counter\r\n").unwrap(),
            }
        }
    }

    fn numbered(&self, session: &str, number: u64, what: &[u8]) -> Option<String> {
        let mut world = self.world.lock().unwrap();
        let fault = world.faults.pop_front().unwrap_or(Fault::Fine);
        match fault {
            Fault::DropBefore => return None,
            Fault::Refuse(text) => return Some(format!("-{text}\r\n")),
            Fault::DropAfter | Fault::Silent | Fault::Unknown | Fault::Fine => {}
        }
        let key = (session.to_owned(), number);
        if !world.replies.contains_key(&key) {
            world.executed.push((session.to_owned(), number, what.to_vec()));
            let reply = i64::try_from(world.executed.len()).unwrap();
            world.replies.insert(key.clone(), reply);
        }
        match fault {
            Fault::DropAfter => None,
            Fault::Silent => Some(String::new()),
            Fault::Unknown => Some("-UNKNOWN may have been executed\r\n".to_owned()),
            _ => Some(format!(":{}\r\n", world.replies[&key])),
        }
    }

    fn executed(&self) -> usize {
        self.world.lock().unwrap().executed.len()
    }
}

fn command(stream: &mut TcpStream, input: &mut Vec<u8>) -> Option<Vec<Vec<u8>>> {
    loop {
        if let Some((arguments, used)) = parse(input) {
            input.drain(..used);
            return Some(arguments);
        }
        let mut buffer = [0; 4096];
        match stream.read(&mut buffer) {
            Ok(0) | Err(_) => return None,
            Ok(read) => input.extend_from_slice(&buffer[..read]),
        }
    }
}

fn parse(input: &[u8]) -> Option<(Vec<Vec<u8>>, usize)> {
    let mut at = 0;
    let mut line = |prefix: u8| {
        let end = at + input.get(at..)?.windows(2).position(|pair| pair == b"\r\n")?;
        assert_eq!(input[at], prefix);
        let number: usize = std::str::from_utf8(&input[at + 1..end]).unwrap().parse().unwrap();
        at = end + 2;
        if prefix == b'$' {
            at += number + 2;
        }
        (at <= input.len()).then_some((number, at))
    };
    let (count, _) = line(b'*')?;
    let mut arguments = Vec::new();
    let mut end = 0;
    for _ in 0..count {
        let (length, after) = line(b'$')?;
        arguments.push(input[after - 2 - length..after - 2].to_vec());
        end = after;
    }
    Some((arguments, end))
}

fn hasty() -> Options {
    Options {
        attempt_timeout: Duration::from_millis(100),
        backoff_min: Duration::from_millis(1),
        backoff_max: Duration::from_millis(5),
        ..Options::default()
    }
}

/// [session-2] A command runs once and has one reply, whatever happens to its connection.
#[test]
fn a_command_runs_once_whatever_happens_to_its_connection() {
    use Fault::{DropAfter, DropBefore, Fine, Refuse, Silent, Unknown};
    let schedules: [&[Fault]; 6] = [
        &[DropBefore, Fine],
        &[DropAfter, Fine],
        &[DropAfter, DropAfter, DropBefore, Fine],
        &[Silent, Fine],
        &[Unknown, Unknown, Fine],
        &[Refuse("BUSY later"), Refuse("NOQUORUM no leader"), DropAfter, Fine],
    ];
    for faults in schedules {
        let fake = Fake::start(faults);
        let mut client = Client::new(&[fake.address.as_str()], hasty());
        assert_eq!(client.run(&[b"incr"]), Ok(Reply::Integer(1)), "{faults:?}");
        assert_eq!(client.run(&[b"incr"]), Ok(Reply::Integer(2)), "{faults:?}");
        assert_eq!(fake.executed(), 2, "{faults:?}");
        assert_eq!(client.session_id(), Some("1.0"), "{faults:?}");
    }
}

/// Every connection selects the client's database, before its session is attached.
#[test]
fn a_new_connection_is_in_the_database_of_the_client() {
    use Fault::{DropAfter, DropBefore, Fine};
    for (database, selected) in [(5, vec!["5"; 3]), (0, vec![])] {
        let fake = Fake::start(&[Fine, DropBefore, DropAfter, Fine]);
        let options = Options { database, ..hasty() };
        let mut client = Client::new(&[fake.address.as_str()], options);
        for reply in 1..=2 {
            assert_eq!(client.run(&[b"incr"]), Ok(Reply::Integer(reply)));
        }
        assert_eq!(fake.world.lock().unwrap().selected, selected);
    }
}

/// A node that refuses the database is left for another one, but not for ever.
#[test]
fn a_refused_database_is_reported_once_all_nodes_refused_it() {
    let (lagging, fake) = {
        let fake = Fake::start(&[]);
        (Fake::listen(&fake.world), fake)
    };
    let addresses = [lagging.address, fake.address.clone()];
    let needs = "ERR not executed: databases other than the first need feature level 10";
    let refuse = |count: usize| {
        let mut world = fake.world.lock().unwrap();
        world.refused_selections = vec![needs; count].into();
    };
    let options = || Options { database: 5, ..patient() };
    refuse(1);
    let mut client = Client::new(&addresses, options());
    assert_eq!(client.run(&[b"incr"]), Ok(Reply::Integer(1)));
    refuse(2);
    let mut client = Client::new(&addresses, options());
    let refused = Err(Error::Refused(format!("SELECT refused: {needs}")));
    assert_eq!(client.run(&[b"incr"]), refused);
    assert_eq!(fake.executed(), 1);
    assert_eq!(client.run(&[b"incr"]), Ok(Reply::Integer(2)), "it is not refused for ever");
}

/// A later command may need a new connection, which knows nothing of a SELECT.
#[test]
fn commands_that_change_the_database_of_a_connection_are_not_sent() {
    let fake = Fake::start(&[]);
    let mut client = Client::new(&[fake.address.as_str()], hasty());
    for words in [&[&b"SELECT"[..], b"5"][..], &[b"select", b"0"], &[b"Reset"]] {
        let mut transaction = Transaction::default();
        transaction.push(&[b"incr"]);
        transaction.push(words);
        for refused in [
            client.run(words).unwrap_err(),
            client.read(words).unwrap_err(),
            client.send(words).unwrap_err(),
            client.prepare_read(words).unwrap_err(),
            client.send_transaction(transaction).unwrap_err(),
        ] {
            assert!(
                matches!(&refused, Error::Refused(text) if text.contains("an option of the client")),
                "{refused}"
            );
        }
    }
    assert_eq!(client.open(), 0);
    assert_eq!(client.run(&[b"incr"]), Ok(Reply::Integer(1)));
    let world = fake.world.lock().unwrap();
    assert_eq!(world.executed, [("1.0".to_owned(), 1, b"incr".to_vec())], "no number was used up");
}

#[test]
fn a_silent_node_is_left_for_another_one() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let fake = Fake::start(&[]);
    let addresses = [silent.local_addr().unwrap().to_string(), fake.address.clone()];
    let mut client = Client::new(&addresses, hasty());
    assert_eq!(client.run(&[b"incr"]), Ok(Reply::Integer(1)));
}

/// Replies stay in the order of the commands across broken connections.
#[test]
fn pipelined_commands_keep_their_replies() {
    use Fault::{DropAfter, Fine, Refuse};
    let fake = Fake::start(&[Fine, Fine, DropAfter, Fine, Refuse("BUSY later"), Fine, DropAfter]);
    let mut client = Client::new(&[fake.address.as_str()], hasty());
    let names: Vec<String> = (0..50).map(|index| format!("c{index}")).collect();
    for name in &names {
        client.send(&[name.as_bytes()]).unwrap();
    }
    let replies: Vec<_> = names.iter().map(|_| client.receive()).collect();
    assert_eq!(client.receive(), Err(Error::NoneOutstanding));
    let world = fake.world.lock().unwrap();
    assert_eq!(world.executed.len(), 50);
    for (name, reply) in names.iter().zip(replies) {
        let ran = world.executed.iter().position(|(_, _, what)| what == name.as_bytes());
        let place = i64::try_from(ran.unwrap()).unwrap() + 1;
        assert_eq!(reply, Ok(Reply::Integer(place)), "{name}");
    }
}

#[test]
fn more_than_a_session_holds_is_refused_at_once() {
    let fake = Fake::start(&[]);
    let mut client = Client::new(&[fake.address.as_str()], hasty());
    for _ in 0..quorate_client::client::OUTSTANDING_MAX {
        client.send(&[b"incr"]).unwrap();
    }
    assert_eq!(client.send(&[b"incr"]), Err(Error::TooManyOutstanding));
    assert_eq!(client.receive(), Ok(Reply::Integer(1)));
    client.send(&[b"incr"]).unwrap();
}

/// Options for one attempt at each address. The deadline then passes between attempts, not during
/// one, which would leave the outcome in doubt.
fn one_attempt() -> Options {
    Options {
        command_timeout: Duration::from_secs(3),
        attempt_timeout: Duration::from_secs(3),
        backoff_min: Duration::from_secs(60),
        backoff_max: Duration::from_secs(60),
        ..hasty()
    }
}

#[test]
fn a_deadline_after_refusals_says_that_nothing_ran() {
    let busy = Fake::start(&[Fault::Refuse("BUSY later"); 100]);
    let mut client = Client::new(&[busy.address.as_str()], one_attempt());
    let error = client.run(&[b"incr"]).unwrap_err();
    assert_eq!(error, Error::NotExecuted("BUSY later".to_owned()));
    assert_eq!(busy.executed(), 0);
}

#[test]
fn a_deadline_after_a_lost_reply_leaves_a_doubt() {
    let lossy = Fake::start(&[Fault::DropAfter; 100]);
    let mut client = Client::new(&[lossy.address.as_str()], one_attempt());
    assert!(matches!(client.run(&[b"incr"]), Err(Error::UnknownOutcome(_))));
    assert_eq!(lossy.executed(), 1);
}

/// An unknown outcome stays unknown even if the last reply was a refusal.
#[test]
fn a_refusal_does_not_end_a_doubt() {
    let mut faults = vec![Fault::DropAfter];
    faults.extend([Fault::Refuse("BUSY later"); 100]);
    let doubtful = Fake::start(&faults);
    let also = Fake::listen(&doubtful.world);
    // With a second address the second attempt follows at once.
    let addresses = [doubtful.address.as_str(), also.address.as_str()];
    let mut client = Client::new(&addresses, one_attempt());
    let error = client.run(&[b"incr"]).unwrap_err();
    assert_eq!(error, Error::UnknownOutcome("BUSY later".to_owned()));
}

#[test]
fn a_deadline_without_a_node_says_that_nothing_ran() {
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let mut client = Client::new(&[closed], one_attempt());
    assert!(matches!(client.run(&[b"incr"]), Err(Error::NotExecuted(_))));
}

/// [session-4] A command that may have run in a lost session is never repeated in a new one.
#[test]
fn a_lost_session_is_told_and_not_papered_over() {
    let lost = Fault::Refuse("NOSESSION expired");
    let fake = Fake::start(&[Fault::DropAfter, lost, lost]);
    let mut client = Client::new(&[fake.address.as_str()], hasty());
    assert_eq!(client.run(&[b"incr"]), Err(Error::SessionLost { may_have_run: true }));
    assert_eq!(client.run(&[b"incr"]), Err(Error::SessionLost { may_have_run: false }));
    assert_eq!(client.run(&[b"incr"]), Ok(Reply::Integer(2)));
    assert_eq!(client.session_id(), Some("3.0"));
    assert_eq!(fake.executed(), 2);
}

/// [session-2] The number of an abandoned command is acknowledged, since it would otherwise occupy
/// the session permanently.
#[test]
fn what_was_given_up_is_acknowledged() {
    let short = Options { command_timeout: Duration::from_millis(50), ..hasty() };
    let busy = Fake::start(&[Fault::Refuse("BUSY later"); 10_000]);
    let mut client = Client::new(&[busy.address.as_str()], short);
    // An attempt may be in progress at the deadline.
    let abandoned = client.run(&[b"incr"]);
    assert!(
        matches!(abandoned, Err(Error::NotExecuted(_) | Error::UnknownOutcome(_))),
        "{abandoned:?}"
    );
    busy.world.lock().unwrap().faults.clear();
    assert_eq!(client.run(&[b"incr"]), Ok(Reply::Integer(1)));
    assert_eq!(busy.world.lock().unwrap().acknowledged, [2]);
}

#[test]
fn an_error_of_the_service_is_returned_as_it_is() {
    let fake = Fake::start(&[]);
    let mut client = Client::new(&[fake.address.as_str()], hasty());
    let refused = Error::Refused("WRONGTYPE not a counter".to_owned());
    assert_eq!(client.read(&[b"GET", b"x"]), Err(refused));
    assert_eq!(client.session_id(), None, "a read needs no session");
}

/// A command that is refused for lack of permission is not retried, since no other node would
/// accept the user.
#[test]
fn a_user_who_may_not_write_is_told_so() {
    let fake = Fake::start(&[]);
    let text = "NOPERM User ann has no permissions to run the 'quorate' command";
    fake.world.lock().unwrap().forbids = Some(text);
    let mut client = Client::new(&[fake.address.as_str()], patient());
    let named = "NOPERM User ann has no permissions to run the 'incr' command";
    fake.world.lock().unwrap().faults.push_back(Fault::Refuse(named));
    assert_eq!(client.run(&[b"incr"]), Err(Error::Refused(named.to_owned())));
    // A node that does not name the command, because the role was given in the meantime.
    fake.world.lock().unwrap().faults.push_back(Fault::Refuse("NOSESSION none"));
    assert_eq!(client.run(&[b"incr"]), Err(Error::Refused(text.to_owned())));
    assert_eq!(fake.executed(), 0);
}

/// Returns options for a test that must not depend on the deadline.
fn patient() -> Options {
    Options { command_timeout: Duration::from_secs(3600), ..hasty() }
}

#[test]
fn a_subscription_ends_when_it_is_not_wanted() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let mut client = Client::new(&[address], patient());
    assert_eq!(client.subscribe(&[b"SUBSCRIBE", b"x"], || false, |_| true), Ok(()));
    drop(listener);
}

/// A client without TLS does not retry, since every node expects TLS.
#[test]
fn a_node_that_expects_tls_is_left_at_once() {
    let foreign = || {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let _ = stream.read(&mut [0; 4096]).unwrap();
                stream.write_all(b"\x15\x03\x03\x00\x02\x02\x32").unwrap();
            }
        });
        address
    };
    let addresses = [foreign(), foreign()];
    let expected = || Err(Error::NotExecuted(NEEDS_TLS.to_owned()));
    let mut client = Client::new(&addresses, patient());
    assert_eq!(client.run(&[b"incr"]), expected());
    assert_eq!(client.read(&[b"GET", b"x"]), expected());
    let subscribed = client.subscribe(&[b"SUBSCRIBE", b"x"], || true, |_| true);
    assert_eq!(subscribed, expected().map(|_: Reply| ()));
    let wait = stream::Options { open: Duration::from_secs(3600), ..stream::Options::default() };
    let listed = stream::Streams::new(&addresses, wait).list();
    let told = format!("{}: {NEEDS_TLS}", addresses[1]);
    assert_eq!(listed, Err(stream::Error::Unreachable(told)));
    // Another node may still serve.
    let fake = Fake::start(&[]);
    let both = [addresses[0].clone(), fake.address.clone()];
    assert_eq!(Client::new(&both, patient()).run(&[b"incr"]), Ok(Reply::Integer(1)));
}

/// A second reply to a command would shift all later ones, so the client drops the connection.
#[test]
fn a_reply_too_many_is_noticed() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    thread::spawn(move || {
        for (round, stream) in listener.incoming().enumerate() {
            let mut stream = stream.unwrap();
            let mut input = Vec::new();
            while command(&mut stream, &mut input).is_some() {
                let reply: &[u8] = if round == 0 { b":1\r\n:1\r\n" } else { b":2\r\n" };
                if stream.write_all(reply).is_err() {
                    break;
                }
            }
        }
    });
    let mut client = Client::new(&[address], hasty());
    assert_eq!(client.read(&[b"GET", b"x"]), Ok(Reply::Integer(1)));
    assert_eq!(client.read(&[b"GET", b"y"]), Ok(Reply::Integer(2)));
}

/// A transaction is repeated under its number, as a whole, and the error of a queued command
/// decides whether it can be.
#[test]
fn a_transaction_is_executed_once() {
    let pair = || {
        let mut pair = Transaction::default();
        pair.push(&[b"SET", b"a", b"1"]);
        pair.push(&[b"SET", b"b", b"2"]);
        pair
    };
    let fake = Fake::start(&[Fault::DropAfter, Fault::Fine]);
    fake.world.lock().unwrap().refused_queued.push_back("BUSY not executed: memory");
    let mut client = Client::new(std::slice::from_ref(&fake.address), Options::default());
    for _ in 0..3 {
        client.send_transaction(pair()).unwrap();
    }
    // The second one was executed and its reply lost, while the first one was refused.
    for order in [2, 1, 3] {
        assert_eq!(client.receive(), Ok(Reply::Integer(order)));
    }
    assert_eq!(fake.world.lock().unwrap().executed.len(), 3);
    fake.world.lock().unwrap().refused_queued.push_back("TOOBIG the command is too large");
    client.send_transaction(pair()).unwrap();
    let refused = client.receive();
    assert_eq!(refused, Err(Error::Refused("TOOBIG the command is too large".to_owned())));
    assert_eq!(fake.world.lock().unwrap().executed.len(), 3);
}

#[test]
fn a_forbidden_transaction_does_not_harm_the_next() {
    const FORBIDDEN: &str = "NOPERM User ann has no permissions to run the 'set' command";
    let single = || {
        let mut single = Transaction::default();
        single.push(&[b"SET", b"a", b"1"]);
        single
    };
    let fake = Fake::start(&[Fault::Refuse(FORBIDDEN), Fault::Fine]);
    let mut client = Client::new(std::slice::from_ref(&fake.address), Options::default());
    client.send_transaction(single()).unwrap();
    assert_eq!(client.receive(), Err(Error::Refused(FORBIDDEN.to_owned())));
    client.send_transaction(single()).unwrap();
    assert_eq!(client.receive(), Ok(Reply::Integer(1)));
    // A user without a session gets the error of the command, not that of the session.
    let fake = Fake::start(&[]);
    fake.world.lock().unwrap().forbids = Some("NOPERM no sessions");
    fake.world.lock().unwrap().refused_queued.push_back(FORBIDDEN);
    let mut client = Client::new(std::slice::from_ref(&fake.address), Options::default());
    client.send_transaction(single()).unwrap();
    assert_eq!(client.receive(), Err(Error::Refused(FORBIDDEN.to_owned())));
}
