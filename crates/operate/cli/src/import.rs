//! `quorate import`: copies the keys of a Redis or Valkey server into the cluster, from its RDB
//! file, or from a full copy of the running server ([`server`]).
//!
//! A first pass reads the whole file and reports what cannot be taken over ([`survey`]). A second
//! pass writes ([`load`]): each key at once or not at all, so that an import that was killed can be
//! run again.

mod args;
mod commands;
mod load;
mod server;
mod survey;

use std::{
    fs::File,
    io::Seek as _,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use quorate_admin::units::format_bytes as size;
use quorate_client::{Client, Error, Options, Reply};
use serde::Serialize;

pub(crate) use self::args::ImportArgs;
use self::{
    args::Existing,
    load::{LoadVisitor, Loaded},
    server::SourceServer,
    survey::{SurveyVisitor, Surveyed},
};
use crate::{
    output::{Exit, Output, Problem},
    proof,
    rdb::{
        read::{FileSummary, VERSION_MAX, read_file},
        types::{RdbVisitor, ReadError},
    },
    signals,
};

/// Time for which a question to the cluster is repeated.
const QUESTION_TIMEOUT: Duration = Duration::from_secs(3);
/// Time for which a write is repeated, so that an election does not end the import.
const WRITE_TIMEOUT: Duration = Duration::from_secs(60);
/// Largest command of a node by default.
const DEFAULT_COMMAND_MAX: usize = 8 << 20;
/// Limit of a copy of a server.
const LATER_CHANGES_NOTE: &str = "changes made at the source after its copy began are not included: stop \
                             its writers before, or import again with --existing replace";

/// Result of `quorate import`.
#[derive(Debug, Serialize)]
struct Report {
    file: String,
    version: u32,
    bytes: u64,
    /// True if the file has a checksum, which was compared. A wrong one is an error.
    checksum: bool,
    #[serde(flatten)]
    found: Surveyed,
    /// Null with `--dry-run`.
    written: Option<Loaded>,
    /// Advice about later changes, for a copy of a server.
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<&'static str>,
    seconds: f64,
}

impl Report {
    fn human(&self) -> String {
        let Self { file, version, found, .. } = self;
        let checksum = if self.checksum { "checksum right" } else { "no checksum" };
        let mut text = format!("{file}: RDB version {version}, {}, {checksum}\n", size(self.bytes));
        text += &found.human();
        text += &match &self.written {
            None => "nothing was written (--dry-run)".to_owned(),
            Some(written) => written.human(self.seconds),
        };
        text += &self.note.map(|note| format!("\nnote: {note}")).unwrap_or_default();
        text
    }
}

pub(crate) fn run(args: &ImportArgs, output: Output) -> Result<Exit, Problem> {
    let Some(server) = args.file.to_str().and_then(SourceServer::parse_url) else {
        if args.source_password_file.is_some() {
            return Err(Problem::usage_error(
                "--source-password-file needs a running server, not a file",
            )
            .with_hint("give redis://HOST:PORT"));
        }
        let file = File::open(&args.file);
        let file = file.map_err(|error| {
            Problem::io_error(format_args!("open {}", args.file.display()), &error)
        })?;
        return import_file(args, &file, None, output);
    };
    let mut server = server?;
    server.find_password(args.source_password_file.as_deref())?;
    // Without a name, so that nothing is left if the process is killed.
    let copy = tempfile::tempfile().map_err(|error| Problem::io_error("create a file", &error))?;
    server.copy_to(&copy)?;
    import_file(args, &copy, Some(&server), output)
}

/// Imports a file, which may be the copy of a server.
fn import_file(
    args: &ImportArgs,
    file: &File,
    server: Option<&SourceServer>,
    output: Output,
) -> Result<Exit, Problem> {
    let began = Instant::now();
    let shown =
        server.map_or_else(|| args.file.display().to_string(), SourceServer::url_without_password);
    let now_ms = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
    let now_ms = u64::try_from(now_ms).unwrap_or(u64::MAX);
    let mut client = Client::new(&args.client, client_options(QUESTION_TIMEOUT));
    let asked = args.dry_run || args.existing == Existing::Refuse;
    let limits = (now_ms, query_command_max(&mut client));
    let mut survey = SurveyVisitor::new(args, limits, asked.then_some(&mut client))?;
    let summary = read_from_start(file, &shown, &mut survey)?;
    let (found, unsupported) = survey.finish()?;
    let mut report = Report {
        file: shown.clone(),
        version: summary.version,
        bytes: summary.bytes,
        checksum: summary.has_checksum,
        found,
        written: None,
        note: server.map(|_| LATER_CHANGES_NOTE),
        seconds: 0.0,
    };
    let obstacle =
        import_obstacle(args, &report.found).or_else(|| check_level(&mut client, &report.found));
    if args.dry_run {
        output.print_result(&report, || report.human());
        return Ok(obstacle.map_or(Exit::Done, |problem| problem.exit));
    }
    if let Some(problem) = obstacle {
        return Err(problem);
    }
    let again = retry_advice(server.is_some());
    let done = report_on_interrupt(output, again)?;
    let mut client = Client::new(&args.client, client_options(WRITE_TIMEOUT));
    let mut load =
        LoadVisitor::new(&mut client, args, limits, unsupported, summary.bytes, (done, again))?;
    read_from_start(file, &shown, &mut load)?;
    let written = load.finish()?;
    let appeared = if args.existing == Existing::Refuse { written.existed } else { 0 };
    report.written = Some(written);
    report.seconds = began.elapsed().as_secs_f64();
    output.print_result(&report, || report.human());
    Ok(if appeared > 0 { Exit::Failed } else { Exit::Done })
}

/// Returns the largest command of the nodes, or the default one if they do not answer.
fn query_command_max(client: &mut Client) -> usize {
    let parts = match client.read(&[b"CONFIG", b"GET", b"proto-max-bulk-len"]) {
        Ok(Reply::Array(parts)) => parts,
        _ => return DEFAULT_COMMAND_MAX,
    };
    let digits = parts.get(1).and_then(Reply::bytes);
    let number = digits.and_then(|digits| std::str::from_utf8(digits).ok()?.parse().ok());
    number.unwrap_or(DEFAULT_COMMAND_MAX)
}

fn client_options(deadline: Duration) -> Options {
    let (tls, login) = (proof::certificate(), proof::login());
    Options { tls, login, command_timeout: deadline, ..Options::default() }
}

/// Returns the advice after an import that did not reach its end.
const fn retry_advice(is_server: bool) -> &'static str {
    if is_server {
        "import again with --existing replace"
    } else {
        "continue with the same file and --existing skip"
    }
}

/// Makes an interrupt report how far the import is. Returns the counter of written keys.
fn report_on_interrupt(output: Output, again: &'static str) -> Result<Arc<AtomicU64>, Problem> {
    let done = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&done);
    signals::end_at_first_signal(move || {
        let keys = counted.load(Ordering::SeqCst);
        let what =
            format_args!("interrupted; at least {keys} keys are imported, each of them whole");
        let problem = Problem::new(Exit::Interrupted, "interrupted", what);
        output.print_problem(&problem.with_hint(again));
    })?;
    Ok(done)
}

/// Returns the reason why nothing must be written, if any.
fn import_obstacle(args: &ImportArgs, found: &Surveyed) -> Option<Problem> {
    if !found.unsupported.is_empty() && !args.skip_unsupported {
        let what = format_args!("cannot be taken over: {}", found.unsupported_text("; "));
        return Some(Problem::new(Exit::Failed, "unsupported", what).with_hint(
            "nothing was written; --skip-unsupported imports the rest, and --dry-run shows all of it",
        ));
    }
    let existing = found.existing.as_ref().filter(|existing| existing.count > 0)?;
    (args.existing == Existing::Refuse).then(|| {
        let what = format_args!("the cluster already has {}", existing.text());
        Problem::new(Exit::Failed, "exists", what).with_hint(
            "nothing was written; --existing skip keeps them, also to continue an import that was \
             interrupted, and --existing replace overwrites them",
        )
    })
}

/// Returns the refusal of a cluster that cannot take streams yet.
fn check_level(client: &mut Client, found: &Surveyed) -> Option<Problem> {
    let has_streams = found.keys.contains_key("stream") && found.cluster.is_none();
    match has_streams.then(|| client.read(&[b"XLEN", b"quorate:import"]))? {
        Err(Error::Refused(text)) => {
            let what = format_args!("the cluster refuses streams: {text}");
            Some(Problem::new(Exit::Failed, "level", what).with_hint("nothing was written"))
        }
        _ => None,
    }
}

/// Reads the whole file.
fn read_from_start(
    mut file: &File,
    shown: &str,
    visitor: &mut dyn RdbVisitor,
) -> Result<FileSummary, Problem> {
    let rewound = file.rewind().map_err(ReadError::Io);
    let outcome = rewound.and_then(|()| read_file(file, visitor));
    outcome.map_err(|error| unreadable_file(shown, error))
}

/// Converts an error of reading the file.
fn unreadable_file(shown: &str, error: ReadError) -> Problem {
    const COPY: &str = "nothing more was written; copy the file again, or write a new one with SAVE; \
                        'redis-check-rdb FILE' examines it";
    let problem = |code, what: String, hint: &str| {
        Problem::new(Exit::Failed, code, format_args!("{shown}{what}")).with_hint(hint)
    };
    match error {
        ReadError::VisitorFailed(problem) => problem,
        ReadError::Io(error) => Problem::io_error(format_args!("read {shown}"), &error),
        ReadError::NotRdb => problem(
            "not_rdb",
            " is not an RDB file".to_owned(),
            "give the file that SAVE or BGSAVE writes, such as dump.rdb",
        ),
        ReadError::UnknownVersion(version) => problem(
            "version",
            format!(" has RDB version {version}; versions up to {VERSION_MAX} can be read"),
            "write it with Redis 7.4 or earlier, or Valkey 8 or earlier",
        ),
        ReadError::Malformed(at, what) => {
            problem("damaged", format!(" is damaged at byte {at}: {what}"), COPY)
        }
        ReadError::UnknownCode(at, what, code) => problem(
            "unsupported",
            format!(" has {what} with the unknown code {code} at byte {at}"),
            "it is of a newer server or of a module; remove such keys, or use an older server",
        ),
        ReadError::WrongChecksum => {
            problem("damaged", " is damaged: its checksum is wrong".to_owned(), COPY)
        }
    }
}
