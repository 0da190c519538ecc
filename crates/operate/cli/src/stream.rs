//! `quorate stream`: writes, reads and manages byte streams of a cluster.

mod cat;
mod keep;
mod ls;
mod progress;
mod put;
mod retain;
mod rm;
mod stat;
mod trim;

use std::fmt;

use clap::{Args, Subcommand};
use quorate_admin::{client::tls_remedy, units::format_date};
use quorate_client::stream::{Error, ErrorCode, Options, Retention, StreamInfo, Streams};
use serde::Serialize;

use crate::{
    addresses::address_argument,
    certificate, login,
    output::{Exit, Output, Problem},
    reporting::report_waiting,
};

/// Default stream address of a node.
const DEFAULT_STREAM_ADDRESS: &str = "127.0.0.1:7453";

/// Subcommands of `quorate stream`.
#[derive(Debug, Subcommand)]
pub(crate) enum StreamCommand {
    /// Write a file or standard input to a stream; ends when every byte is durable
    ///
    /// Bytes that are not yet known to be durable are kept, and sent again after a lost connection,
    /// node or leader; no byte is lost or repeated. The stream must be new, unless --append,
    /// --resume or --takeover is given. It is closed at the end of the input, unless --no-close is
    /// given. Progress goes to standard error. A signal stops the command, which then reports how
    /// much is durable.
    Put(put::PutArgs),
    /// Write the durable bytes of a stream to standard output
    ///
    /// Stops at the current end of the stream; with --follow, when the stream is closed. A --from
    /// below the first byte that is left or beyond the end is an error. With a single address, only
    /// that node is read.
    Cat(cat::CatArgs),
    /// List the streams
    #[command(visible_alias = "list")]
    Ls(ls::LsArgs),
    /// Show the state of one stream
    Stat(OneStream),
    /// Delete a stream, even if it is being written or read
    Rm(OneStream),
    /// Set the retention of a stream: by size, by age, or both
    ///
    /// The nodes agree on where the stream starts. A bound that you do not give stays unchanged.
    Retain(retain::RetainArgs),
    /// Delete the bytes of a stream below a position
    Trim(trim::TrimArgs),
}

/// Nodes to contact.
#[derive(Args, Clone, Debug)]
pub(crate) struct Place {
    /// Stream addresses of one or more nodes
    #[arg(long, env = "QUORATE_STREAM", value_name = "ADDR[,…]", value_delimiter = ',', default_value = DEFAULT_STREAM_ADDRESS, value_parser = address_argument)]
    stream: Vec<String>,
}

impl Place {
    fn streams_client(&self) -> Streams {
        Streams::new(&self.stream, client_options())
    }
}

/// A stream's name, with the nodes to contact.
#[derive(Args, Clone, Debug)]
pub(crate) struct OneStream {
    /// Name of the stream
    name: String,
    #[command(flatten)]
    place: Place,
}

/// JSON document about one stream.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct StreamView {
    name: String,
    /// State of the stream: `open` or `closed`.
    state: &'static str,
    /// Position of the first retained byte.
    start: u64,
    /// Position below which all bytes are durable.
    durable: u64,
    /// Number of bytes retained.
    bytes: u64,
    /// Node to which the stream's writer is connected.
    writer: Option<u32>,
    pieces: u32,
    /// Time of creation, in UTC.
    created: String,
    /// Maximum number of retained bytes. Null means no limit.
    keep_bytes: Option<u64>,
    /// Time for which bytes are retained, in milliseconds. Null means no limit.
    keep_ms: Option<u64>,
}

impl StreamView {
    fn from_info(info: StreamInfo) -> Self {
        Self {
            name: info.name,
            state: match info.is_finished {
                true => "closed",
                false => "open",
            },
            start: info.start,
            durable: info.durable_end,
            bytes: info.durable_end.saturating_sub(info.start),
            writer: info.writer_node,
            pieces: info.piece_count,
            created: format_time(info.created_ms / 1000),
            keep_bytes: info.retention.bytes,
            keep_ms: info.retention.age_max_ms,
        }
    }

    /// Formats both retention limits in a short form.
    fn format_retention(&self) -> String {
        keep::format_limits(Retention { bytes: self.keep_bytes, age_max_ms: self.keep_ms })
    }
}

/// Formats a Unix time in seconds as an ISO 8601 date and time.
pub(crate) fn format_time(seconds: u64) -> String {
    let (hours, minutes) = (seconds / 3600 % 24, seconds / 60 % 60);
    let day = format_date(seconds);
    format!("{day}T{hours:02}:{minutes:02}:{:02}Z", seconds % 60)
}

/// Returns the options of a stream client, including the certificate and the login.
fn client_options() -> Options {
    Options { tls: certificate(), login: login(), ..Options::default() }
}

pub(crate) fn run(command: &StreamCommand, output: Output) -> Result<Exit, Problem> {
    let has_progress = matches!(command, StreamCommand::Put(_) | StreamCommand::Cat(_));
    let _waiting = (!has_progress).then(|| report_waiting(client_options().open));
    match command {
        StreamCommand::Put(args) => put::run(args, output),
        StreamCommand::Cat(args) => cat::run(args, output),
        StreamCommand::Ls(args) => ls::run(args, output),
        StreamCommand::Stat(args) => stat::run(args, output),
        StreamCommand::Retain(args) => retain::run(args, output),
        StreamCommand::Rm(args) => rm::run(args, output),
        StreamCommand::Trim(args) => trim::run(args, output),
    }
}

/// Converts a client error to a problem. `what` describes the failed operation.
pub(crate) fn client_problem(error: &Error, what: impl fmt::Display) -> Problem {
    let found = |exit, code| Problem::new(exit, code, format_args!("{what}: {error}"));
    match error {
        Error::Unreachable(why) => found(Exit::Unreachable, "unreachable")
            .with_hint(tls_remedy(why).unwrap_or("check that this is the --stream address of a running node, and that the cluster has a quorum")),
        Error::AcknowledgedLost { .. } => found(Exit::Violation, "data_loss")
            .with_hint("acknowledged bytes are lost; run 'quorate log verify' and read the logs of the nodes"),
        Error::NodeAhead { .. } | Error::ClosedEarly { .. } | Error::WrongPosition { .. } => {
            found(Exit::Violation, "bad_answer").with_hint("a node contradicts an earlier answer: please report this")
        }
        Error::StreamReplaced => found(Exit::Failed, "replaced"),
        Error::LocalResource(_) => found(Exit::Failed, "io"),
        Error::Refused(refusal) => {
            let hint = match (refusal.hint.as_str(), error.code()) {
                ("", Some(code)) => error_hint(code, refusal.position),
                (given, _) => given.to_owned(),
            };
            found(Exit::Failed, error.code().map_or("refused", error_code_name)).with_hint(hint)
        }
    }
}

/// Returns the machine-readable code of an error.
const fn error_code_name(code: ErrorCode) -> &'static str {
    match code {
        ErrorCode::Malformed => "malformed",
        ErrorCode::Version => "version",
        ErrorCode::OutOfOrder => "out_of_order",
        ErrorCode::Name => "bad_name",
        ErrorCode::Unknown => "unknown_stream",
        ErrorCode::Exists => "exists",
        ErrorCode::Finished => "closed",
        ErrorCode::InUse => "in_use",
        ErrorCode::Fenced => "fenced",
        ErrorCode::TooManyStreams => "too_many_streams",
        ErrorCode::TooManyPieces => "too_many_pieces",
        ErrorCode::PastEnd => "behind_end",
        ErrorCode::Trimmed => "trimmed",
        ErrorCode::Forbidden => "forbidden",
        ErrorCode::WrongPassword => "wrong_password",
        ErrorCode::Busy => "busy",
        ErrorCode::NoQuorum => "no_quorum",
        ErrorCode::Stopping => "stopping",
        ErrorCode::Unavailable => "unavailable",
        ErrorCode::Uncertain => "uncertain",
    }
}

/// Returns the hint for an error that the node sent without one.
fn error_hint(code: ErrorCode, position: u64) -> String {
    match code {
        ErrorCode::Exists => {
            "use --append to write at its end, or --resume to continue the same file".to_owned()
        }
        ErrorCode::InUse => "--takeover locks out the current writer permanently".to_owned(),
        ErrorCode::Unknown => "'quorate stream ls' lists the streams".to_owned(),
        ErrorCode::Trimmed => format!("it starts at {position}: use --from {position}"),
        ErrorCode::PastEnd => format!("it ends at {position}"),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use quorate_admin::client::NEEDS_TLS;

    use super::*;

    #[test]
    fn times_are_in_utc() {
        assert_eq!(format_time(0), "1970-01-01T00:00:00Z");
        assert_eq!(format_time(1_700_000_000), "2023-11-14T22:13:20Z");
    }

    #[test]
    fn a_node_that_expects_tls_has_its_own_hint() {
        let unreachable =
            |why: &str| client_problem(&Error::Unreachable(why.to_owned()), "list streams");
        assert_eq!(unreachable(&format!("h:1: {NEEDS_TLS}")).hint, tls_remedy(NEEDS_TLS).unwrap());
        assert!(unreachable("h:1: refused").hint.contains("quorum"));
    }

    #[test]
    fn json_has_retention_and_writer() {
        let info = StreamInfo {
            name: "a".to_owned(),
            id: 7,
            is_finished: false,
            writer_node: Some(2),
            start: 10,
            durable_end: 25,
            piece_count: 3,
            created_ms: 1_700_000_000_999,
            retention: Retention { bytes: Some(4096), age_max_ms: None },
        };
        let view = serde_json::to_string(&StreamView::from_info(info)).unwrap();
        assert_eq!(
            view,
            r#"{"name":"a","state":"open","start":10,"durable":25,"bytes":15,"writer":2,"pieces":3,"created":"2023-11-14T22:13:20Z","keep_bytes":4096,"keep_ms":null}"#
        );
    }
}
