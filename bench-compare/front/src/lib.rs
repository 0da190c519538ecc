//! Minimal server around a library under comparison; it speaks the frames of `quorate bench log`.
//!
//! A request is a length (32 bits, little-endian) and a command. A reply is a length, a status and,
//! if the command was executed, its place in the log. Clients may pipeline commands on a
//! connection; replies are in the same order.
#![forbid(unsafe_code)]

use std::{
    collections::HashMap,
    env,
    future::Future,
    io,
    path::PathBuf,
    process,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use serde::{Deserialize, Serialize};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    signal::unix::{SignalKind, signal},
    sync::{mpsc, oneshot},
};

/// A longer command ends the connection.
const COMMAND_BYTES_MAX: usize = 1 << 20;
/// Number of unanswered commands per connection above which the connection is not read.
const UNANSWERED_MAX: usize = 4096;
/// Bytes of replies to collect before they are written.
const OUTPUT_BYTES_MIN: usize = 64 << 10;
/// Outstanding commands in a comparison.
const COMMANDS_PER_ENTRY: usize = 256;
const LENGTH_BYTES: usize = 4;
const NUMBER_BYTES: usize = 8;
const DONE_STATUS: u8 = 0;
const UNKNOWN_STATUS: u8 = 5;
/// Interval at which the leader is polled.
const LEADER_POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Flags common to all programs under comparison.
#[derive(Clone, Debug)]
pub struct NodeFlags {
    /// Number of this node, from 1.
    pub node_number: u64,
    /// Addresses at which the nodes reach each other.
    pub peer_addresses: Vec<String>,
    /// Address for clients.
    pub client_address: String,
    /// Initially empty.
    pub data_folder: PathBuf,
    /// Acknowledges a command only once it is on the disks of a majority.
    pub is_durable: bool,
    /// Commands that may share a log entry, in programs that support that.
    pub commands_per_entry: usize,
}

impl NodeFlags {
    /// Parses the command line and exits on errors.
    pub fn parse() -> Self {
        let words: Vec<String> = env::args().skip(1).collect();
        let pairs = words.chunks_exact(2);
        let mut values: HashMap<&str, &str> =
            pairs.map(|pair| (pair[0].as_str(), pair[1].as_str())).collect();
        let mut flags = || {
            let peers = values.remove("--peers")?.split(',').map(str::to_owned);
            let flags = Self {
                node_number: values.remove("--node")?.parse().ok()?,
                peer_addresses: peers.collect(),
                client_address: values.remove("--client")?.to_owned(),
                data_folder: values.remove("--folder")?.into(),
                is_durable: match values.remove("--class")? {
                    "durable" => true,
                    "volatile" => false,
                    _ => return None,
                },
                commands_per_entry: match values.remove("--commands-per-entry") {
                    Some(text) => text.parse().ok().filter(|most| *most > 0)?,
                    None => COMMANDS_PER_ENTRY,
                },
            };
            let place = usize::try_from(flags.node_number).ok()?.checked_sub(1)?;
            flags.peer_addresses.get(place)?;
            Some(flags)
        };
        flags().unwrap_or_else(|| {
            eprintln!(
                "--node N --peers ADDR,… --client ADDR --folder DIR --class durable|volatile [--commands-per-entry N]"
            );
            process::exit(2);
        })
    }

    /// Returns this node's address for its peers.
    pub fn own_address(&self) -> &str {
        let place = usize::try_from(self.node_number).expect("checked when it was parsed");
        &self.peer_addresses[place - 1]
    }

    /// Returns the ids and addresses of the other nodes.
    pub fn other_nodes(&self) -> impl Iterator<Item = (u64, &String)> {
        let all = (1..).zip(&self.peer_addresses);
        all.filter(|(node, _)| *node != self.node_number)
    }
}

/// Outcome of a command: its place in the log, once it is committed and applied here. If the sender
/// is dropped, the outcome is unknown.
pub type CommandOutcome = oneshot::Receiver<u64>;

/// Serves clients until the process ends. `submit` passes a command to the library.
pub async fn serve_clients<S>(address: &str, submit: S) -> io::Result<()>
where
    S: Fn(Vec<u8>) -> CommandOutcome + Clone + Send + 'static,
{
    let listener = TcpListener::bind(address).await?;
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let submit = submit.clone();
            tokio::spawn(async move {
                // A client may disconnect at any time.
                let _ = serve_client(stream, submit).await;
            });
        }
    });
    Ok(())
}

async fn serve_client<S>(stream: TcpStream, submit: S) -> io::Result<()>
where
    S: Fn(Vec<u8>) -> CommandOutcome,
{
    stream.set_nodelay(true)?;
    let (mut from, to) = stream.into_split();
    let (under, outcomes) = mpsc::channel(UNANSWERED_MAX);
    tokio::spawn(write_replies(to, outcomes));
    let mut input = Vec::with_capacity(OUTPUT_BYTES_MIN);
    loop {
        if from.read_buf(&mut input).await? == 0 {
            return Ok(());
        }
        let mut used = 0;
        while let Some((bytes, command)) = parse_command(&input[used..])? {
            used += bytes;
            if under.send(submit(command)).await.is_err() {
                return Ok(());
            }
        }
        input.drain(..used);
    }
}

/// Returns the first complete command in `input`, and the length of its frame.
fn parse_command(input: &[u8]) -> io::Result<Option<(usize, Vec<u8>)>> {
    let Some((length, rest)) = input.split_first_chunk::<LENGTH_BYTES>() else {
        return Ok(None);
    };
    let length = usize::try_from(u32::from_le_bytes(*length)).unwrap_or(usize::MAX);
    if length > COMMAND_BYTES_MAX {
        return Err(io::Error::other("a command is too long"));
    }
    let command = rest.get(..length).map(<[u8]>::to_vec);
    Ok(command.map(|command| (LENGTH_BYTES + length, command)))
}

/// Writes replies in the order of the commands; replies that are ready are written together.
async fn write_replies(
    mut to: impl tokio::io::AsyncWrite + Unpin,
    mut outcomes: mpsc::Receiver<CommandOutcome>,
) -> io::Result<()> {
    let mut output = Vec::with_capacity(OUTPUT_BYTES_MIN);
    while let Some(mut outcome) = outcomes.recv().await {
        loop {
            match outcome.try_recv() {
                Ok(place) => encode_reply(Some(place), &mut output),
                Err(oneshot::error::TryRecvError::Closed) => encode_reply(None, &mut output),
                Err(oneshot::error::TryRecvError::Empty) => {
                    // Flush before waiting for the next reply.
                    write_output(&mut to, &mut output).await?;
                    encode_reply(outcome.await.ok(), &mut output);
                }
            }
            match outcomes.try_recv() {
                Ok(next) if output.len() < OUTPUT_BYTES_MIN => outcome = next,
                Ok(next) => {
                    write_output(&mut to, &mut output).await?;
                    outcome = next;
                }
                Err(_) => break,
            }
        }
        write_output(&mut to, &mut output).await?;
    }
    Ok(())
}

fn encode_reply(place: Option<u64>, output: &mut Vec<u8>) {
    match place {
        Some(place) => {
            output.extend_from_slice(&9_u32.to_le_bytes());
            output.push(DONE_STATUS);
            output.extend_from_slice(&place.to_le_bytes());
        }
        None => {
            output.extend_from_slice(&1_u32.to_le_bytes());
            output.push(UNKNOWN_STATUS);
        }
    }
}

async fn write_output(
    to: &mut (impl tokio::io::AsyncWrite + Unpin),
    output: &mut Vec<u8>,
) -> io::Result<()> {
    if !output.is_empty() {
        to.write_all(output).await?;
        output.clear();
    }
    Ok(())
}

/// Commands that share a log entry, each after its length.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EntryCommands(#[serde(with = "serde_bytes")] Vec<u8>);

impl EntryCommands {
    /// Appends a command.
    pub fn push(&mut self, command: &[u8]) {
        let length = u32::try_from(command.len()).expect("commands are bounded where they come in");
        self.0.extend_from_slice(&length.to_le_bytes());
        self.0.extend_from_slice(command);
    }

    /// Returns the commands in order.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let mut rest = self.0.as_slice();
        std::iter::from_fn(move || {
            let (length, after) = rest.split_first_chunk::<LENGTH_BYTES>()?;
            let length = usize::try_from(u32::from_le_bytes(*length)).ok()?;
            let (command, next) = after.split_at_checked(length)?;
            rest = next;
            Some(command)
        })
    }
}

/// Number of applied commands, and a digest that depends on their order.
#[derive(Clone, Debug, Default)]
pub struct AppliedCommands(Arc<Mutex<(u64, u64)>>);

impl AppliedCommands {
    /// Applies the next commands.
    pub fn apply_commands<'a>(&self, commands: impl IntoIterator<Item = &'a [u8]>) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (count, digest) = &mut *state;
        for command in commands {
            *count += 1;
            let number = command.first_chunk::<NUMBER_BYTES>();
            let number = number.map_or(0, |bytes| u64::from_le_bytes(*bytes));
            *digest = digest.wrapping_mul(31).wrapping_add(number);
        }
    }

    /// Returns (commands, digest).
    pub fn state(&self) -> (u64, u64) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Restores the state of a snapshot.
    pub fn restore(&self, state: (u64, u64)) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = state;
    }
}

/// Reports the leader (0 if there is none) until SIGTERM, and then what was applied.
pub async fn run<L, F>(applied: AppliedCommands, leader: L) -> io::Result<()>
where
    L: Fn() -> F,
    F: Future<Output = u64>,
{
    let mut stop = signal(SignalKind::terminate())?;
    let mut known = 0;
    loop {
        tokio::select! {
            _ = stop.recv() => {
                let (count, digest) = applied.state();
                println!("applied {count} {digest:x}");
                process::exit(0);
            }
            () = tokio::time::sleep(LEADER_POLL_INTERVAL) => {
                let now = leader().await;
                if now != known {
                    known = now;
                    println!("leader {now}");
                }
            }
        }
    }
}
