//! `quorate backup`: saves the state of a running node to one file.

use std::{
    fs::{self, File},
    io::{self, BufReader, Read, Write},
    path::{Path, PathBuf},
    sync::mpsc::{Receiver, RecvTimeoutError, sync_channel},
    thread,
    time::Duration,
};

use clap::Args;
use quorate_admin::{
    client,
    progress::{Progress, ProgressReport},
    units::format_bytes as size,
};
use quorate_log::disk::private_file;
use quorate_replica::backup::{BadBackup, CheckedBackup, check_backup};
use serde::Serialize;

use crate::{
    addresses::AnyOf,
    output::{Exit, Output, Problem, progress},
    snapshot::{self, REQUEST_TIMEOUT},
};

/// Time without data from the node after which the backup fails.
const STALL_TIMEOUT: Duration = Duration::from_secs(60);
/// Size of one read from the node, in bytes.
const READ_BYTES: usize = 256 << 10;
/// Maximum number of chunks buffered for writing.
const QUEUED_CHUNKS_MAX: usize = 4;

/// Arguments of `quorate backup`.
#[derive(Args, Clone, Debug)]
pub(crate) struct BackupArgs {
    /// File for the backup; - is standard output
    // No environment variable: `transfer --to` has a flag of the same name with another meaning.
    #[arg(long, value_name = "FILE")]
    to: PathBuf,
    #[command(flatten)]
    any: AnyOf,
    /// Include the bytes of byte streams
    #[arg(long)]
    streams: bool,
}

/// Result of a backup or restore.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Report {
    /// Id of the cluster that was backed up.
    pub(crate) cluster: String,
    /// Slot below which the backup contains every decision.
    pub(crate) decided: u64,
    /// Size of the backup file in bytes.
    pub(crate) bytes: u64,
    /// XXH3-128 checksum of the file without its trailer, which contains the checksum.
    pub(crate) checksum: String,
    /// Number of byte streams included with their bytes.
    pub(crate) streams: u64,
    pub(crate) stream_bytes: u64,
    /// Number of byte streams whose bytes are not included.
    pub(crate) streams_left_out: u64,
    pub(crate) stream_bytes_left_out: u64,
}

impl Report {
    pub(crate) fn from_checked_file(checked: &CheckedBackup) -> Self {
        let found = (checked.stream_count, checked.stream_bytes);
        let (with, without) = match checked.header.stream_bytes {
            Some(_) => (found, (0, 0)),
            None => ((0, 0), found),
        };
        Self {
            cluster: format!("{:032x}", checked.header.cluster),
            decided: checked.header.slot.0,
            bytes: checked.summary.bytes,
            checksum: format!("{:032x}", checked.summary.checksum),
            streams: with.0,
            stream_bytes: with.1,
            streams_left_out: without.0,
            stream_bytes_left_out: without.1,
        }
    }

    /// Describes the byte streams in the backup, for people. Returns an empty string if there are
    /// none.
    pub(crate) fn describe_streams(&self, to_have_them: &str) -> String {
        let Self { streams, stream_bytes, streams_left_out, stream_bytes_left_out, .. } = *self;
        match (streams, streams_left_out) {
            (0, 0) => String::new(),
            (0, left_out) => {
                let what = format_stream_count(left_out, stream_bytes_left_out);
                format!("\nnot in it: {what}; {to_have_them}")
            }
            (streams, _) => format!("\nwith {}", format_stream_count(streams, stream_bytes)),
        }
    }

    fn human(&self) -> String {
        let Self { cluster, decided, bytes, checksum, .. } = self;
        let size = size(*bytes);
        let streams = self.describe_streams("include their bytes with --streams");
        format!(
            "backup of cluster {cluster} at slot {decided}: {size}, checksum {checksum}{streams}"
        )
    }
}

/// Formats a number of byte streams with their size.
fn format_stream_count(streams: u64, bytes: u64) -> String {
    let name = match streams {
        1 => "byte stream",
        _ => "byte streams",
    };
    format!("{streams} {name} ({})", size(bytes))
}

pub(crate) fn run(args: &BackupArgs, output: Output) -> Result<Exit, Problem> {
    if args.to.as_os_str() == "-" {
        let (checked, _) = request_backup(args, io::stdout().lock())?;
        let report = Report::from_checked_file(&checked);
        // Standard output contains the backup.
        progress(&match output.json {
            true => serde_json::to_string(&report).expect("plain data"),
            false => report.human(),
        });
        return Ok(Exit::Done);
    }
    let mut part = args.to.clone().into_os_string();
    part.push(".part");
    let part = PathBuf::from(part);
    let taken = write_to_file(args, &part);
    if taken.is_err() {
        // A partial backup is useless.
        let _ = fs::remove_file(&part);
    }
    let report = Report::from_checked_file(&taken?);
    output.print_result(&report, || report.human());
    Ok(Exit::Done)
}

fn write_to_file(args: &BackupArgs, part: &Path) -> Result<CheckedBackup, Problem> {
    let failed = |action: &str, path: &Path, error: &io::Error| {
        Problem::io_error(format_args!("{action} {}", path.display()), error)
            .with_hint("check that the folder exists and is writable, and that the disk has space")
    };
    // An aborted backup of an earlier version may have left a file that others can read.
    let _ = fs::remove_file(part);
    let file = private_file().write(true).create_new(true).open(part);
    let file = file.map_err(|error| failed("create", part, &error))?;
    let (checked, file) = request_backup(args, file)?;
    file.sync_all().map_err(|error| failed("sync", part, &error))?;
    fs::rename(part, &args.to).map_err(|error| failed("rename to", &args.to, &error))?;
    let folder = match args.to.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let sync = || File::open(folder)?.sync_all();
    sync().map_err(|error| failed("sync", folder, &error))?;
    Ok(checked)
}

/// Requests a backup from the node, verifies it and writes it to `to`.
fn request_backup<W: Write>(args: &BackupArgs, to: W) -> Result<(CheckedBackup, W), Problem> {
    let admin = args.any.first_answering()?;
    let at = snapshot::query_status(admin)?.applied;
    let streams = if args.streams { "&streams" } else { "" };
    let path = format!("/backup?at={at}{streams}");
    let from = snapshot::repeat_until_taken(admin, &mut || {
        let answer = client::get_stream(admin, &path, REQUEST_TIMEOUT);
        let answer = answer.map_err(|error| Problem::unreachable_node(admin, error))?;
        Ok(answer.map_err(|response| {
            let refusal = response.parse_json::<serde_json::Value>().err();
            (response.status, refusal.unwrap_or_default())
        }))
    });
    let from = from?.map_err(|(status, refusal)| backup_refused(status, refusal))?;
    let mut copied = TeeReader {
        from: NodeDataReader::new(from)
            .map_err(|error| Problem::io_error("start a thread", &error))?,
        output: to,
        write_error: None,
    };
    let mut how_far = Progress::start();
    let checked = check_backup(
        BufReader::with_capacity(READ_BYTES, &mut copied),
        &mut |_, _| Ok(()),
        &mut |header, bytes| {
            how_far.report(|| ProgressReport::bytes("backup", bytes, header.content_bytes()))
        },
    );
    drop(how_far);
    let TeeReader { output: mut to, write_error: failed, .. } = copied;
    if let Some(error) = failed {
        return Err(Problem::io_error("write the backup", &error));
    }
    let checked = checked.map_err(|bad| transfer_broke(admin, &bad))?;
    to.flush().map_err(|error| Problem::io_error("write the backup", &error))?;
    Ok((checked, to))
}

fn backup_refused(status: u16, refusal: client::Refusal) -> Problem {
    let busy = refusal.code == "busy";
    let missing = refusal.code == "streams_missing";
    let mut problem = snapshot::refusal_problem(status, refusal);
    match problem.code {
        _ if busy => problem.code = "busy",
        _ if missing => problem.code = "streams_missing",
        "snapshot_failed" => problem.code = "backup_failed",
        _ => {}
    }
    problem
}

/// Returns the error for a failed transfer, which does not reveal the node's state.
fn transfer_broke(admin: &str, bad: &BadBackup) -> Problem {
    let what = match bad {
        BadBackup::NotABackup | BadBackup::NewerFormat(_) => {
            let what = format_args!("{admin} did not send a backup: {bad}");
            return Problem::new(Exit::Failed, "bad_answer", what)
                .with_hint("check that this is the --admin address of a node, and that the node runs this version");
        }
        BadBackup::Io(error) => format!("the backup from {admin} broke off: {error}"),
        BadBackup::Truncated(_) | BadBackup::Damaged { .. } => {
            format!("the backup from {admin} is incomplete: {bad}")
        }
    };
    Problem::new(Exit::Unreachable, "interrupted", what)
        .with_hint("try again; see also the log of the node")
}

/// Reader that also writes everything it reads to `output`.
struct TeeReader<R, W> {
    from: R,
    output: W,
    /// First error of a write to `output`.
    write_error: Option<io::Error>,
}

impl<R: Read, W: Write> Read for TeeReader<R, W> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.from.read(buffer)?;
        if let Err(error) = self.output.write_all(&buffer[..count]) {
            self.write_error = Some(error);
            return Err(io::Error::other("it could not be written"));
        }
        Ok(count)
    }
}

/// Reader of data from a node, with a timeout.
struct NodeDataReader {
    chunks: Receiver<io::Result<Vec<u8>>>,
    current_chunk: Vec<u8>,
    used_bytes: usize,
}

impl NodeDataReader {
    fn new(mut from: impl Read + Send + 'static) -> io::Result<Self> {
        let (sender, pieces) = sync_channel(QUEUED_CHUNKS_MAX);
        let receive = move || {
            loop {
                let mut piece = vec![0; READ_BYTES];
                let read = from.read(&mut piece).map(|count| {
                    piece.truncate(count);
                    piece
                });
                let last = !matches!(&read, Ok(piece) if !piece.is_empty());
                if sender.send(read).is_err() || last {
                    return;
                }
            }
        };
        // If the node stops sending, this thread ends with the process.
        thread::Builder::new().name("receive".to_owned()).spawn(receive)?;
        Ok(Self { chunks: pieces, current_chunk: Vec::new(), used_bytes: 0 })
    }
}

impl Read for NodeDataReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.used_bytes == self.current_chunk.len() {
            self.current_chunk = match self.chunks.recv_timeout(STALL_TIMEOUT) {
                Ok(piece) => piece?,
                Err(RecvTimeoutError::Disconnected) => Vec::new(),
                Err(RecvTimeoutError::Timeout) => {
                    return Err(io::Error::other("the node stopped sending"));
                }
            };
            self.used_bytes = 0;
        }
        let count = buffer.len().min(self.current_chunk.len() - self.used_bytes);
        buffer[..count]
            .copy_from_slice(&self.current_chunk[self.used_bytes..self.used_bytes + count]);
        self.used_bytes += count;
        Ok(count)
    }
}
