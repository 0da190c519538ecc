//! `quorate bench part`: a process of the probe. Hidden; the probe starts it.

use std::{io, net::SocketAddr, path::Path, process, thread, time::Duration};

use clap::Subcommand;
use quorate_bench::{
    lan,
    probe::{
        commit,
        disk::LogFile,
        round_trip::{self, Wait},
        stream,
        wire::Over,
    },
    wan,
};

use crate::output::{Exit, Problem, print};

/// Which.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum PartCommand {
    /// Sends back what it gets
    Echo { wait: String, over: String },
    /// Writes, flushes, answers
    Follower {
        file: String,
        flush_us: u64,
        over: String,
    },
    /// The far end of an emulated link
    WanServer { address: SocketAddr },
    /// The near end: says what it found
    WanClient { address: SocketAddr },
    /// One sender of a segment, as fast as its link
    LanSender { interface: String, ms: u64 },
    /// One of its receivers: says what it got
    LanReceiver { interface: String, ms: u64 },
    /// Takes bytes, sends them on if there is somebody, writes them and a record, counts
    StreamNode {
        folder: String,
        flush_us: u64,
        follower: Option<SocketAddr>,
    },
    /// Takes commands, sends them on, writes, flushes, answers
    Leader {
        file: String,
        flush_us: u64,
        value_bytes: usize,
        over: String,
        followers: Vec<SocketAddr>,
    },
}

/// Runs it until its one client is gone.
pub(super) fn run(command: &PartCommand) -> Result<Exit, Problem> {
    let ran = match command {
        PartCommand::Echo { wait, over } => {
            let wait = Wait::named(wait).ok_or_else(|| Problem::usage("block or spin"))?;
            round_trip::echo(wait, over_named(over)?)
        }
        PartCommand::WanServer { address } => {
            die_with_parent()?;
            wan::serve(*address)
        }
        PartCommand::WanClient { address } => {
            wan::measure(*address).map(|measured| print(&measured.to_string()))
        }
        PartCommand::LanSender { interface, ms } => {
            die_with_parent()?;
            lan::send(interface, Duration::from_millis(*ms))
        }
        PartCommand::LanReceiver { interface, ms } => {
            die_with_parent()?;
            lan::receive(interface, Duration::from_millis(*ms))
        }
        PartCommand::Follower {
            file,
            flush_us,
            over,
        } => {
            let over = over_named(over)?;
            open(file, *flush_us).and_then(|file| commit::follower(file, over))
        }
        PartCommand::StreamNode {
            folder,
            flush_us,
            follower,
        } => {
            let folder = (folder != "-").then(|| Path::new(folder));
            stream::node::run(folder, Duration::from_micros(*flush_us), *follower)
        }
        PartCommand::Leader {
            file,
            flush_us,
            value_bytes,
            over,
            followers,
        } => {
            let followers = (over_named(over)?, &followers[..]);
            open(file, *flush_us)
                .and_then(|file| commit::leader((*value_bytes).max(1), followers, file))
        }
    };
    match ran {
        Ok(()) => Ok(Exit::Done),
        // The probe has what it wanted.
        Err(error) if error.kind() == io::ErrorKind::ConnectionReset => Ok(Exit::Done),
        Err(error) => Err(Problem::io("a part of the probe", &error)),
    }
}

fn over_named(name: &str) -> Result<Over, Problem> {
    Over::named(name).ok_or_else(|| Problem::usage("tcp or udp"))
}

/// The parent never writes; the end of this pipe is the end of the parent.
fn die_with_parent() -> Result<(), Problem> {
    let wait = || {
        let _ = io::copy(&mut io::stdin(), &mut io::sink());
        process::exit(0);
    };
    thread::Builder::new()
        .name("parent".to_owned())
        .spawn(wait)
        .map(|_| ())
        .map_err(|error| Problem::io("watch the parent", &error))
}

/// `-` is no file.
fn open(file: &str, flush_us: u64) -> io::Result<Option<LogFile>> {
    if file == "-" {
        return Ok(None);
    }
    LogFile::create(Path::new(file), Duration::from_micros(flush_us)).map(Some)
}
