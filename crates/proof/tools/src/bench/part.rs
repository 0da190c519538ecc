//! `quorate bench part`: one process of a probe. The probe starts it, and the help does not list
//! it.

use std::{io, net::SocketAddr, path::Path, process, thread, time::Duration};

use clap::Subcommand;
use quorate_bench::{
    lan::{
        DatagramTransport,
        receiver::{self, ReceiverOptions},
        sender::{self, SenderOptions},
    },
    probe::{
        commit,
        disk::LogFile,
        round_trip::{self, WaitMethod},
        stream,
        wire::ProbeTransport,
    },
    wan,
};

use quorate_cli::output::{Exit, Problem, print_line};
use quorate_cli::values::{Number, Unit};

/// One process of a probe.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum PartCommand {
    /// Echoes every message
    Echo { wait: String, over: String },
    /// Writes, flushes and acknowledges batches
    Follower { file: String, flush_us: u64, over: String },
    /// Far end of an emulated link
    WanServer { address: SocketAddr },
    /// Near end of an emulated link; prints the measured result
    WanClient { address: SocketAddr },
    /// Sends datagrams on a segment, as fast as its link allows
    LanSender {
        interface: String,
        ms: u64,
        /// Index of the sender, starting at 0
        #[arg(long, default_value_t = 0)]
        sender: u32,
        /// Number of datagrams per second, if limited
        #[arg(long)]
        per_second: Option<u64>,
        /// Number of datagrams per system call
        #[arg(long, default_value_t = sender::DATAGRAMS_PER_CALL_MAX,
              value_parser = Number::between(1, sender::DATAGRAMS_PER_CALL_MAX as u64, Unit::Count).argument::<u32>())]
        burst: u32,
        /// Receivers that each get a copy, instead of the multicast group
        #[arg(long)]
        to: Vec<SocketAddr>,
    },
    /// Receives datagrams on a segment and prints its counts
    LanReceiver {
        interface: String,
        ms: u64,
        /// Number of senders to receive from before counting starts
        #[arg(long, default_value_t = 1, value_parser = Number::between(1, 64, Unit::Count).argument::<u32>())]
        senders: u32,
        /// Warm-up time after that, in milliseconds
        #[arg(long, default_value_t = 500)]
        warmup_ms: u64,
        /// Receive unicast instead of multicast datagrams
        #[arg(long)]
        unicast: bool,
    },
    /// Receives bytes, forwards them to a follower if there is one, writes them with a record, and
    /// returns counts
    StreamNode { folder: String, flush_us: u64, follower: Option<SocketAddr> },
    /// Receives commands, forwards them, writes, flushes and replies
    Leader {
        file: String,
        flush_us: u64,
        value_bytes: usize,
        over: String,
        followers: Vec<SocketAddr>,
    },
}

/// Runs the part until it has finished its work or the probe has ended.
pub(super) fn run(command: &PartCommand) -> Result<Exit, Problem> {
    let ran = match command {
        PartCommand::Echo { wait, over } => {
            let wait =
                WaitMethod::from_name(wait).ok_or_else(|| Problem::usage_error("block or spin"))?;
            round_trip::run_echo(wait, parse_transport(over)?)
        }
        PartCommand::WanServer { address } => {
            exit_with_parent()?;
            wan::run_far_end(*address)
        }
        PartCommand::WanClient { address } => {
            wan::run_near_end(*address).map(|measured| print_line(&measured.to_string()))
        }
        PartCommand::LanSender { interface, ms, sender, per_second, burst, to } => {
            exit_with_parent()?;
            sender::run_sender(&SenderOptions {
                interface: interface.clone(),
                sender_index: *sender,
                receivers: to.clone(),
                datagrams_per_second: *per_second,
                burst_datagrams: *burst,
                duration: Duration::from_millis(*ms),
            })
        }
        PartCommand::LanReceiver { interface, ms, senders, warmup_ms, unicast } => {
            exit_with_parent()?;
            let way =
                if *unicast { DatagramTransport::Unicast } else { DatagramTransport::Multicast };
            receiver::run_receiver(&ReceiverOptions {
                interface: interface.clone(),
                transport: way,
                sender_count: *senders,
                warmup: Duration::from_millis(*warmup_ms),
                duration: Duration::from_millis(*ms),
            })
        }
        PartCommand::Follower { file, flush_us, over } => {
            let over = parse_transport(over)?;
            open(file, *flush_us).and_then(|file| commit::run_follower(file, over))
        }
        PartCommand::StreamNode { folder, flush_us, follower } => {
            let folder = (folder != "-").then(|| Path::new(folder));
            stream::node::run(folder, Duration::from_micros(*flush_us), *follower)
        }
        PartCommand::Leader { file, flush_us, value_bytes, over, followers } => {
            let followers = (parse_transport(over)?, &followers[..]);
            open(file, *flush_us)
                .and_then(|file| commit::run_leader((*value_bytes).max(1), followers, file))
        }
    };
    match ran {
        Ok(()) => Ok(Exit::Done),
        // The probe has ended.
        Err(error) if error.kind() == io::ErrorKind::ConnectionReset => Ok(Exit::Done),
        Err(error) => Err(Problem::io_error("a part of the probe", &error)),
    }
}

fn parse_transport(name: &str) -> Result<ProbeTransport, Problem> {
    ProbeTransport::from_name(name).ok_or_else(|| Problem::usage_error("tcp or udp"))
}

/// Makes this process end with its parent. The parent never writes to the pipe, so the end of the
/// input means that the parent has ended.
pub fn exit_with_parent() -> Result<(), Problem> {
    let wait = || {
        let _ = io::copy(&mut io::stdin(), &mut io::sink());
        process::exit(0);
    };
    thread::Builder::new()
        .name("parent".to_owned())
        .spawn(wait)
        .map(|_| ())
        .map_err(|error| Problem::io_error("watch the parent", &error))
}

/// Opens the log file. Returns `None` if the name is `-`.
fn open(file: &str, flush_us: u64) -> io::Result<Option<LogFile>> {
    if file == "-" {
        return Ok(None);
    }
    LogFile::create(Path::new(file), Duration::from_micros(flush_us)).map(Some)
}
