//! `quorate bench log --trace`: sends one command at a time, and collects the stamps of all nodes
//! and devices involved.

use std::{
    io::{self, Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    time::{Duration, Instant},
};

use quorate_node::hops;

use super::{
    RunTime,
    session::{Cluster, NodeSession},
};
use crate::{
    frames::{self, CommandStatus, LENGTH_BYTES, ParsedFrame},
    life::{CommandTimeline, TracedCommand, command_timeline},
    problem::{Kind, Problem},
};

/// Number of commands analysed. The nodes' ring buffers have space for the stamps of more commands.
const COMMAND_COUNT: usize = 3000;
/// Maximum number of attempts. On a busy machine the leader may change during an attempt, so the
/// next attempt uses the new leader.
const ATTEMPTS_MAX: u32 = 3;
/// Maximum time to wait for the reply to a command.
const REPLY_TIMEOUT: Duration = Duration::from_secs(5);
const REPLY_BYTES_MAX: usize = 1 << 10;

/// Traces commands in a new cluster of the session whose nodes record stamps, then stops the nodes.
pub(super) fn trace_commands(
    session: &mut NodeSession,
    cluster: &Cluster,
    value_bytes: usize,
    time: &RunTime,
) -> Result<CommandTimeline, Problem> {
    let (leader, commands) = send_until_one_leader(cluster, value_bytes, time)?;
    let folders = session.stop()?;
    let mut nodes = Vec::new();
    for (node, folder) in folders {
        let stamps = hops::read_saved_stamps(&folder).map_err(|error| {
            Problem::io_error(format_args!("read the stamps of node {node}"), &error)
        })?;
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
            .with_hint("the leader may have changed meanwhile: try again")
    })
}

/// Sends commands until a single leader has handled all of them. Returns the commands and the
/// leader.
fn send_until_one_leader(
    cluster: &Cluster,
    value_bytes: usize,
    time: &RunTime,
) -> Result<(u32, Vec<TracedCommand>), Problem> {
    let failed = |what: String| Problem::new(Kind::Failed, "command_failed", what);
    let mut why = failed("the leader changed, again and again".to_owned());
    for _ in 0..ATTEMPTS_MAX {
        let leader = cluster.wait_for_leader()?;
        let at = cluster
            .client_address(leader)
            .ok_or_else(|| failed(format!("node {leader} leads, and is unknown")))?;
        match send_commands(at, value_bytes, time) {
            Ok(commands) if cluster.wait_for_leader()? == leader => return Ok((leader, commands)),
            Ok(_) => {}
            Err(error) => why = failed(format!("a command failed: {error}")),
        }
    }
    Err(why)
}

/// Sends commands one after another. Returns all except those of the warm-up.
fn send_commands(
    at: SocketAddr,
    value_bytes: usize,
    time: &RunTime,
) -> io::Result<Vec<TracedCommand>> {
    let mut stream = TcpStream::connect_timeout(&at, REPLY_TIMEOUT)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(REPLY_TIMEOUT))?;
    let mut request = Vec::new();
    frames::append_command(&vec![b'x'; value_bytes], &mut request);
    let began = Instant::now();
    while began.elapsed() < time.warmup {
        send_one(&mut stream, &request)?;
    }
    let began = Instant::now();
    let mut commands = Vec::with_capacity(COMMAND_COUNT);
    while commands.len() < COMMAND_COUNT && began.elapsed() < time.duration {
        commands.push(send_one(&mut stream, &request)?);
    }
    Ok(commands)
}

fn send_one(stream: &mut TcpStream, request: &[u8]) -> io::Result<TracedCommand> {
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
                    (status, Ok(slot)) if status == CommandStatus::Done as u8 => {
                        Ok(TracedCommand { sent_ns, replied_ns, slot })
                    }
                    (status, _) => Err(io::Error::other(CommandStatus::name(status))),
                };
            }
        }
    }
}
