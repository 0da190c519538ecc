//! `quorate export`: writes the keys of the cluster to an RDB file. They are read one page after
//! another, so the file does not show one moment.

mod collect;

use std::{
    collections::BTreeMap,
    ffi::OsString,
    fs::{self, File},
    io::{self, BufWriter},
    path::{Path, PathBuf},
    time::Instant,
};

use clap::Args;
use quorate_admin::{
    progress::{Progress, ProgressReport},
    units::format_bytes as size,
};
use quorate_client::{Client, Error, Options, Reply};
use quorate_log::disk::private_file;
use serde::Serialize;

use self::collect::{Collected, Elements, collect_keys};
use crate::{
    addresses::address_argument,
    config::DEFAULT_CLIENT,
    kv,
    naming::{NameExamples, format_counts},
    output::{Exit, Output, Problem},
    proof,
    rdb::write::RdbWriter,
    signals,
};

/// Number of keys in a page of SCAN.
const SCAN_PAGE_KEYS: &[u8] = b"1000";

/// Arguments of `quorate export`.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = "\
quorate export --rdb dump.rdb

Keys are read one page after another while clients go on writing, so the file does not show one \
moment; quorate backup does.")]
pub(crate) struct ExportArgs {
    /// RDB file to write, for Redis 5 and later, and Valkey
    #[arg(long, value_name = "FILE")]
    rdb: PathBuf,
    /// Client addresses of one or more nodes; the next one is tried when one does not answer
    #[arg(long, env = "QUORATE_CLIENT", value_name = "ADDR[,…]", value_delimiter = ',', default_value = DEFAULT_CLIENT, value_parser = address_argument)]
    client: Vec<String>,
    /// Export the rest, leaving out what the file cannot hold, streams and hashes with fields that
    /// expire, and the keys of databases other than the first
    #[arg(long)]
    skip_unsupported: bool,
}

/// Result of `quorate export`.
#[derive(Debug, Default, Serialize)]
struct Report {
    file: String,
    bytes: u64,
    /// Number of keys written, by type.
    keys: BTreeMap<String, u64>,
    /// Keys that the file cannot hold.
    unsupported: BTreeMap<String, NameExamples>,
    /// Number of keys left out, by database.
    other_databases: BTreeMap<String, u64>,
    seconds: f64,
}

impl Report {
    fn unsupported_text(&self) -> String {
        let texts =
            self.unsupported.iter().map(|(what, which)| format!("{what}, {}", which.text()));
        texts.collect::<Vec<_>>().join("; ")
    }

    fn human(&self) -> String {
        let Self { file, bytes, keys, unsupported, other_databases, seconds } = self;
        let count: u64 = keys.values().sum();
        let by = if count > 0 { format!(" ({})", format_counts(keys)) } else { String::new() };
        let mut text = format!("{file}: {count} keys{by}, {} in {seconds:.1} s", size(*bytes));
        if !unsupported.is_empty() {
            text += &format!("\nleft out: {}", self.unsupported_text());
        }
        if !other_databases.is_empty() {
            text += &format!("\nleft out: {}", databases_text(other_databases));
        }
        text
    }
}

/// Formats numbers of keys by database.
fn databases_text(databases: &BTreeMap<String, u64>) -> String {
    let texts = databases.iter().map(|(name, keys)| {
        let number = name.trim_start_matches("db");
        format!("{keys} {} of database {number}", if *keys == 1 { "key" } else { "keys" })
    });
    texts.collect::<Vec<_>>().join(", ")
}

/// Returns the numbers of keys of the databases that have some, without the first one.
fn other_databases(args: &ExportArgs) -> Result<BTreeMap<String, u64>, Problem> {
    let count_keys = |database| Client::new(&args.client, options(database)).read(&[b"DBSIZE"]);
    // Linearizable, so the node that answers has applied what decides whether others are in use.
    count_keys(0).map_err(|error| kv::client_problem(&error))?;
    let mut others = BTreeMap::new();
    for number in 1..=15 {
        match count_keys(number) {
            Ok(Reply::Integer(0)) => {}
            Ok(Reply::Integer(keys)) => {
                others.insert(format!("db{number}"), keys.unsigned_abs());
            }
            Ok(reply) => return Err(collect::unexpected_reply(&reply)),
            Err(Error::Refused(text)) if number == 1 && has_one_database(&text) => break,
            Err(error) => return Err(kv::client_problem(&error)),
        }
    }
    Ok(others)
}

/// Returns whether the refusal of database 1 shows that clients have only the first one: the
/// cluster is below the level of others, or in cluster mode, or of release 0.2.0.
fn has_one_database(text: &str) -> bool {
    let refusals =
        ["not allowed in cluster mode", "need feature level", "DB index is out of range"];
    refusals.iter().any(|refusal| text.contains(refusal))
}

fn options(database: u8) -> Options {
    Options { database, tls: proof::certificate(), login: proof::login(), ..Options::default() }
}

pub(crate) fn run(args: &ExportArgs, output: Output) -> Result<Exit, Problem> {
    let began = Instant::now();
    let mut part = OsString::from(&args.rdb);
    part.push(".part");
    let part = PathBuf::from(part);
    let interrupted = part.clone();
    signals::end_at_first_signal(move || {
        let _ = fs::remove_file(&interrupted);
    })?;
    let written = write_file(args, &part);
    if written.is_err() {
        let _ = fs::remove_file(&part);
    }
    let mut report = written?;
    report.seconds = began.elapsed().as_secs_f64();
    output.print_result(&report, || report.human());
    Ok(Exit::Done)
}

/// Writes the file under the name `part`, and renames it when it is complete.
fn write_file(args: &ExportArgs, part: &Path) -> Result<Report, Problem> {
    let failed = |what: &str, error: &io::Error| {
        Problem::io_error(format_args!("{what} {}", part.display()), error)
    };
    let _ = fs::remove_file(part);
    let file = private_file().write(true).create_new(true).open(part);
    let file = file.map_err(|error| failed("create", &error))?;
    let mut report = Report { file: args.rdb.display().to_string(), ..Report::default() };
    let writer = RdbWriter::start(BufWriter::new(file)).map_err(|error| failed("write", &error))?;
    let mut export = ExportFile { writer, report: &mut report, progress: Progress::start() };
    export.check_databases(args)?;
    export.write_all(&mut Client::new(&args.client, options(0)))?;
    let (file, bytes) = export.writer.finish().map_err(|error| failed("write", &error))?;
    report.bytes = bytes;
    if !report.unsupported.is_empty() && !args.skip_unsupported {
        let what = format_args!("an RDB file cannot hold: {}", report.unsupported_text());
        return Err(Problem::new(Exit::Failed, "unsupported", what)
            .with_hint("no file was written; --skip-unsupported leaves them out"));
    }
    let synced = file.into_inner().map_err(io::IntoInnerError::into_error);
    synced.and_then(|file| file.sync_all()).map_err(|error| failed("sync", &error))?;
    fs::rename(part, &args.rdb).map_err(|error| failed("rename", &error))?;
    let folder = args.rdb.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = File::open(folder.unwrap_or(Path::new(".")));
    folder
        .and_then(|folder| folder.sync_all())
        .map_err(|error| failed("sync the folder of", &error))?;
    Ok(report)
}

/// File being written.
struct ExportFile<'r> {
    writer: RdbWriter<BufWriter<File>>,
    report: &'r mut Report,
    progress: Progress,
}

impl ExportFile<'_> {
    /// Fails if databases other than the first, which is the one exported, have keys. With
    /// `skip_unsupported`, reports them as left out. Asks each with a linearizable read: INFO would
    /// show the state of one node, which may lag behind.
    fn check_databases(&mut self, args: &ExportArgs) -> Result<(), Problem> {
        let others = other_databases(args)?;
        if !others.is_empty() && !args.skip_unsupported {
            let what = format_args!(
                "only database 0 is exported, and there are {}",
                databases_text(&others)
            );
            return Err(Problem::new(Exit::Failed, "unsupported", what)
                .with_hint("no file was written; --skip-unsupported leaves them out"));
        }
        self.report.other_databases = others;
        Ok(())
    }

    fn write_all(&mut self, client: &mut Client) -> Result<(), Problem> {
        let mut cursor = b"0".to_vec();
        loop {
            let page = client.read(&[b"SCAN", &cursor, b"COUNT", SCAN_PAGE_KEYS]);
            let page = page.map_err(|error| kv::client_problem(&error))?;
            let Reply::Array(page) = page else { return Err(collect::unexpected_reply(&page)) };
            let [Reply::Bulk(next), Reply::Array(names)] = &*page else {
                return Err(collect::unexpected_reply(&Reply::Array(page)));
            };
            let names: Vec<&[u8]> = names.iter().filter_map(Reply::bytes).collect();
            collect_keys(client, &names, &mut |name, collected| self.write_key(name, collected))?;
            if next == b"0" {
                return Ok(());
            }
            cursor.clone_from(next);
        }
    }

    fn write_key(&mut self, name: &[u8], collected: Collected) -> Result<(), Problem> {
        let (kind, expires_ms, elements) = match collected {
            Collected::Unsupported(what) => {
                self.report.unsupported.entry(what.to_owned()).or_default().add_name(name);
                return Ok(());
            }
            Collected::Key { kind, expires_ms, elements } => (kind, expires_ms, elements),
        };
        let writer = &mut self.writer;
        let mut put = || -> io::Result<()> {
            writer.key(name, &kind, expires_ms)?;
            match &elements {
                Elements::Single(value) => writer.write_string(value)?,
                Elements::List(all) => {
                    writer.write_length(all.len() as u64)?;
                    all.iter().try_for_each(|element| writer.write_string(element))?;
                }
                Elements::Pairs(all) => {
                    writer.write_length(all.len() as u64)?;
                    for (field, value) in all {
                        writer.write_string(field)?;
                        writer.write_string(value)?;
                    }
                }
                Elements::Scored(all) => {
                    writer.write_length(all.len() as u64)?;
                    for (member, score) in all {
                        writer.write_string(member)?;
                        writer.write_score(*score)?;
                    }
                }
            }
            Ok(())
        };
        put().map_err(|error| Problem::io_error("write the file", &error))?;
        let keys = self.report.keys.entry(kind.to_string()).or_default();
        *keys += 1;
        let count: u64 = self.report.keys.values().sum();
        let bytes = self.writer.bytes();
        self.progress
            .report(|| ProgressReport::text(format_args!("export: {count} keys, {}", size(bytes))));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_other_databases_are_counted_unless_there_is_one_database() {
        let others = BTreeMap::from([("db3".to_owned(), 2), ("db15".to_owned(), 1)]);
        assert_eq!(databases_text(&others), "1 key of database 15, 2 keys of database 3");
        for (text, expected) in [
            ("SELECT refused: ERR SELECT is not allowed in cluster mode", true),
            (
                "SELECT refused: ERR not executed: databases other than the first need feature level 10",
                true,
            ),
            ("SELECT refused: ERR DB index is out of range", true),
            ("SELECT refused: NOPERM user ann may not run 'select'", false),
            ("ERR not executed", false),
        ] {
            assert_eq!(has_one_database(text), expected, "{text}");
        }
    }
}
