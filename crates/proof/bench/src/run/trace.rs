//! `quorate bench log --trace`: sends one command at a time, and collects the stamps of all nodes
//! and devices involved.

use std::{
    io::{self, Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    time::{Duration, Instant},
};

use quorate_node::hops;

use super::{
    Time,
    session::{Cluster, Session},
};
use crate::{
    frames::{self, LENGTH_BYTES, ParsedFrame, Status},
    life::{Command, CommandTimeline, command_timeline},
    problem::{Kind, Problem},
};

/// Number of commands analysed. The nodes' ring buffers have space for the stamps of more commands.
const COMMANDS: usize = 3000;
/// Maximum number of attempts. On a busy machine the leader may change during an attempt, so the
/// next attempt uses the new leader.
const TRIES: u32 = 3;
/// Maximum time to wait for the reply to a command.
const PATIENCE: Duration = Duration::from_secs(5);
const REPLY_BYTES_MAX: usize = 1 << 10;

/// Traces commands in a new cluster of the session whose nodes record stamps, then stops the nodes.
pub(super) fn trace(
    session: &mut Session,
    cluster: &Cluster,
    value_bytes: usize,
    time: &Time,
) -> Result<CommandTimeline, Problem> {
    let (leader, commands) = asked(cluster, value_bytes, time)?;
    let folders = session.stop()?;
    let mut nodes = Vec::new();
    for (node, folder) in folders {
        let stamps = hops::left_in(&folder)
            .map_err(|error| Problem::io(format_args!("read the stamps of node {node}"), &error))?;
        let leads = node == leader;
        let name = if leads { "leader".to_owned() } else { format!("node {node}") };
        nodes.push((!leads, name, stamps));
    }
    nodes.sort_by_key(|(follows, ..)| *follows);
    let nodes: Vec<_> = nodes.into_iter().map(|(_, name, stamps)| (name, stamps)).collect();
    let found = command_timeline(&commands, &nodes);
    found.ok_or_else(|| {
        let what = "the stamps of the nodes are of none of the commands";
        Problem::new(Kind::Failed, "no_stamps", what)
            .hint("the leader may have changed meanwhile: try again")
    })
}

/// Sends commands until a single leader has handled all of them. Returns the commands and the
/// leader.
fn asked(
    cluster: &Cluster,
    value_bytes: usize,
    time: &Time,
) -> Result<(u32, Vec<Command>), Problem> {
    let failed = |what: String| Problem::new(Kind::Failed, "command_failed", what);
    let mut why = failed("the leader changed, again and again".to_owned());
    for _ in 0..TRIES {
        let leader = cluster.leader()?;
        let at = cluster
            .client_of(leader)
            .ok_or_else(|| failed(format!("node {leader} leads, and is unknown")))?;
        match ask(at, value_bytes, time) {
            Ok(commands) if cluster.leader()? == leader => return Ok((leader, commands)),
            Ok(_) => {}
            Err(error) => why = failed(format!("a command failed: {error}")),
        }
    }
    Err(why)
}

/// Sends commands one after another. Returns all except those of the warm-up.
fn ask(at: SocketAddr, value_bytes: usize, time: &Time) -> io::Result<Vec<Command>> {
    let mut stream = TcpStream::connect_timeout(&at, PATIENCE)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut request = Vec::new();
    frames::command(&vec![b'x'; value_bytes], &mut request);
    let began = Instant::now();
    while began.elapsed() < time.warmup {
        one(&mut stream, &request)?;
    }
    let began = Instant::now();
    let mut commands = Vec::with_capacity(COMMANDS);
    while commands.len() < COMMANDS && began.elapsed() < time.duration {
        commands.push(one(&mut stream, &request)?);
    }
    Ok(commands)
}

fn one(stream: &mut TcpStream, request: &[u8]) -> io::Result<Command> {
    let sent_ns = hops::monotonic_ns();
    stream.write_all(request)?;
    let mut input = [0; LENGTH_BYTES + REPLY_BYTES_MAX];
    let mut filled = 0;
    loop {
        match stream.read(&mut input[filled..])? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            more => filled += more,
        }
        let replied_ns = hops::monotonic_ns();
        match frames::parse_frame(&input[..filled], REPLY_BYTES_MAX) {
            ParsedFrame::Incomplete => {}
            ParsedFrame::TooLong => return Err(io::Error::other("a very long reply")),
            ParsedFrame::Frame(reply) => {
                let (status, slot) = reply.split_first().unwrap_or((&u8::MAX, &[]));
                let slot = slot.try_into().map(u64::from_le_bytes);
                return match (*status, slot) {
                    (status, Ok(slot)) if status == Status::Done as u8 => {
                        Ok(Command { sent_ns, replied_ns, slot })
                    }
                    (status, _) => Err(io::Error::other(Status::name(status))),
                };
            }
        }
    }
}
