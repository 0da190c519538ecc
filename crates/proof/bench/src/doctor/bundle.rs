//! Support bundle: one file without secrets that contains the report, the pages of each node, logs,
//! and files that describe the machine. Missing items are listed with the reason.
//!
//! Only items listed in this module are included. All text passes through [`redact`]; key files are
//! never opened.

use std::{
    env,
    fs::{self, File},
    io::{self, Read, Seek as _, SeekFrom, Write as _},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::mpsc,
    thread,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use flate2::{Compression, write::GzEncoder};
use quorate_admin::{client, view::Answer, view::ClusterView};
use serde::Serialize;
use serde_json::Value as Json;

use crate::{
    doctor::{
        reach,
        redact::{self, RedactedLine},
        system::{SystemFiles, UnreadableFile},
    },
    environment::version,
};

/// Name of the only top-level folder in the archive.
const TOP_FOLDER: &str = "quorate-bundle";
const LOG_BYTES_MAX: u64 = 8 << 20;
const LOGS_MAX: usize = 32;
/// Maximum number of lines included from the systemd journal, as a command-line argument.
const JOURNAL_LINES: &str = "50000";
const JOURNAL_TIMEOUT: Duration = Duration::from_secs(15);
/// Timeout for fetching one admin page.
const PAGE_TIMEOUT: Duration = Duration::from_secs(3);
/// Admin pages fetched from each node, with their file names in the bundle.
const ADMIN_PAGES: [(&str, &str); 5] = [
    ("/status", "status.json"),
    ("/metrics", "metrics.txt"),
    ("/members", "members.json"),
    ("/tuning", "tuning.json"),
    ("/ready", "ready.txt"),
];
/// Files that describe the machine. The kernel command line is excluded because it may contain
/// secrets.
const MACHINE_FILES: [&str; 29] = [
    "proc/version",
    "proc/loadavg",
    "proc/uptime",
    "proc/meminfo",
    "proc/swaps",
    "proc/diskstats",
    "proc/cpuinfo",
    "proc/net/dev",
    "proc/net/snmp",
    "proc/net/route",
    "proc/pressure/cpu",
    "proc/pressure/io",
    "proc/pressure/memory",
    "proc/self/cgroup",
    "proc/self/limits",
    "proc/self/mountinfo",
    "proc/sys/fs/file-nr",
    "proc/sys/fs/nr_open",
    "proc/sys/kernel/io_uring_disabled",
    "proc/sys/kernel/osrelease",
    "proc/sys/net/core/rmem_max",
    "proc/sys/net/core/somaxconn",
    "proc/sys/net/core/wmem_max",
    "proc/sys/net/ipv4/igmp_max_memberships",
    "proc/sys/vm/dirty_ratio",
    "proc/sys/vm/overcommit_memory",
    "proc/sys/vm/swappiness",
    "sys/devices/system/clocksource/clocksource0/current_clocksource",
    "sys/kernel/mm/transparent_hugepage/enabled",
];

/// Contents of a bundle, and the sources of further contents.
#[derive(Clone, Debug)]
pub struct BundleInputs<'a> {
    pub report: Json,
    /// Report as printed by `quorate doctor`.
    pub printed_report: String,
    /// A running cluster with the admin addresses through which it was found, or the reason why
    /// none was found.
    pub cluster: Result<(&'a ClusterView, &'a [String]), String>,
    /// Paths of logs. Only the ends of logs are included.
    pub logs: &'a [PathBuf],
}

/// Table of contents of a bundle.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Manifest {
    /// Creation time, in seconds since 1970.
    pub made_unix_s: u64,
    /// Version of the program that created the bundle.
    pub version: String,
    /// Files in the bundle except the manifest.
    pub files: Vec<BundledFile>,
    /// Items that could not be included.
    pub missing: Vec<MissingItem>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BundledFile {
    /// Path of the file within the archive's top-level folder.
    pub file: String,
    /// Origin of the contents, such as a path, URL or command.
    pub source: String,
    pub bytes: usize,
    /// Number of redacted lines; null for documents that were redacted by value.
    pub redacted_lines: Option<usize>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MissingItem {
    pub what: String,
    pub why: String,
}

/// Fails if the path exists or its folder does not. Called before any slow work, to fail early.
pub fn check_target_free(to: &Path) -> io::Result<()> {
    match fs::symlink_metadata(to) {
        Ok(_) => Err(io::ErrorKind::AlreadyExists.into()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let folder = parent_folder(to);
            match folder.is_dir() {
                true => Ok(()),
                false => Err(io::ErrorKind::NotFound.into()),
            }
        }
        Err(error) => Err(error),
    }
}

/// Writes the bundle, readable only by its owner and either complete or absent. Never overwrites a
/// file.
pub fn write_bundle(
    to: &Path,
    system: &SystemFiles,
    wish: &BundleInputs<'_>,
) -> io::Result<Manifest> {
    let mut bundle = BundleBuilder::collect(system, wish);
    let manifest = bundle.manifest.clone();
    let text = serde_json::to_string_pretty(&manifest)?;
    bundle.files.push(("manifest.json".to_owned(), text));
    let folder = parent_folder(to);
    // Temporary files are readable only by their owner.
    let part = tempfile::Builder::new().prefix(".quorate-bundle-").tempfile_in(folder)?;
    let packed = GzEncoder::new(&part, Compression::default());
    let mut archive = tar::Builder::new(packed);
    for (name, text) in &bundle.files {
        let mut header = tar::Header::new_gnu();
        header.set_size(text.len() as u64);
        header.set_mode(0o600);
        header.set_mtime(manifest.made_unix_s);
        archive.append_data(&mut header, format!("{TOP_FOLDER}/{name}"), text.as_bytes())?;
    }
    archive.into_inner()?.finish()?.flush()?;
    part.as_file().sync_all()?;
    part.persist_noclobber(to).map_err(|error| error.error)?;
    Ok(manifest)
}

fn parent_folder(to: &Path) -> &Path {
    match to.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

struct BundleBuilder {
    files: Vec<(String, String)>,
    manifest: Manifest,
}

impl BundleBuilder {
    fn collect(system: &SystemFiles, wish: &BundleInputs<'_>) -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let mut bundle = Self {
            files: Vec::new(),
            manifest: Manifest {
                made_unix_s: now.unwrap_or_default().as_secs(),
                version: version().to_owned(),
                files: Vec::new(),
                missing: Vec::new(),
            },
        };
        bundle.add_json("report.json", "quorate doctor", &wish.report);
        bundle.text("report.txt", "quorate doctor", &wish.printed_report);
        bundle.add_variables();
        bundle.add_machine(system);
        match &wish.cluster {
            Ok((cluster, given)) => bundle.add_nodes(cluster, given),
            Err(why) => bundle.note_missing("nodes", why),
        }
        for (number, log) in wish.logs.iter().enumerate() {
            let shown = log.display().to_string();
            if number >= LOGS_MAX {
                bundle.note_missing(&shown, &format!("more than {LOGS_MAX} logs"));
                continue;
            }
            match read_log_end(log) {
                Ok(text) => bundle.text(&log_file_name(number + 1, log), &shown, &text),
                Err(why) => bundle.note_missing(&shown, &why),
            }
        }
        if wish.logs.is_empty() {
            bundle.note_missing("logs", "none was named with --log");
        }
        bundle.add_journal();
        bundle
    }

    fn add_file(&mut self, name: &str, source: &str, text: String, redacted_lines: Option<usize>) {
        self.manifest.files.push(BundledFile {
            file: name.to_owned(),
            source: redact::text(source).text.trim_end().to_owned(),
            bytes: text.len(),
            redacted_lines,
        });
        self.files.push((name.to_owned(), text));
    }

    fn text(&mut self, name: &str, source: &str, text: &str) {
        let RedactedLine { text, redacted_lines: lines } = redact::text(text);
        self.add_file(name, source, text, Some(lines));
    }

    fn add_json(&mut self, name: &str, source: &str, document: &Json) {
        let redacted = redact::redact_json(document);
        let text = serde_json::to_string_pretty(&redacted).expect("a document is one");
        self.add_file(name, source, text, None);
    }

    fn note_missing(&mut self, what: &str, why: &str) {
        let plain = |text: &str| redact::text(text).text.trim_end().to_owned();
        self.manifest.missing.push(MissingItem { what: plain(what), why: plain(why) });
    }

    /// Adds the environment variables of this program. All others are omitted because they may
    /// contain secrets.
    fn add_variables(&mut self) {
        let ours = env::vars_os().filter_map(|(name, value)| {
            let name = name.to_string_lossy().into_owned();
            let value = redact::value(&name, &value.to_string_lossy());
            name.starts_with("QUORATE_").then(|| format!("{name}={value}\n"))
        });
        let mut ours: Vec<String> = ours.collect();
        ours.sort();
        self.text("environment.txt", "variables QUORATE_*", &ours.concat());
    }

    fn add_machine(&mut self, system: &SystemFiles) {
        for path in MACHINE_FILES {
            match system.read_text(path) {
                Ok(text) => self.text(&format!("machine/{path}"), &format!("/{path}"), &text),
                Err(UnreadableFile(why)) => self.note_missing(&format!("/{path}"), &why),
            }
        }
    }

    fn add_nodes(&mut self, cluster: &ClusterView, given: &[String]) {
        let versions = cluster.nodes.iter().filter_map(Answer::node_view);
        let versions: serde_json::Map<String, Json> =
            versions.map(|view| (view.node.to_string(), view.full_version().into())).collect();
        let document = serde_json::json!({
            "program": version(),
            "nodes": versions,
        });
        self.add_json("versions.json", "/status of each node", &document);
        let (members, problems) = reach::test_members(cluster, given);
        for problem in problems {
            self.note_missing("a node", &problem);
        }
        for member in members {
            for (page, file) in ADMIN_PAGES {
                let name = format!("nodes/{}/{file}", member.node);
                let source = format!("{}{page}", member.admin);
                match client::get(&member.admin, page, PAGE_TIMEOUT) {
                    Ok(response) if response.status == 200 || page == "/ready" => {
                        match serde_json::from_str(&response.body) {
                            Ok(document) => self.add_json(&name, &source, &document),
                            Err(_) => self.text(&name, &source, &response.body),
                        }
                    }
                    Ok(response) => {
                        self.note_missing(&source, &format!("HTTP status {}", response.status))
                    }
                    Err(error) => self.note_missing(&source, &error.to_string()),
                }
            }
        }
    }

    fn add_journal(&mut self) {
        let mut command = Command::new("journalctl");
        command.args(["--unit=quorate*", "--no-pager", "--quiet"]).args([
            "--output=short-iso-precise",
            "--lines",
            JOURNAL_LINES,
        ]);
        let source = "journalctl --unit=quorate*";
        match command_output(&mut command, JOURNAL_TIMEOUT).and_then(|bytes| to_text(bytes, false))
        {
            Ok(text) if text.trim().is_empty() => {
                self.note_missing(source, "it has no lines of such units")
            }
            Ok(text) => self.text("logs/journal.txt", source, &text),
            Err(why) => self.note_missing(source, &why),
        }
    }
}

/// Returns a file name for a log that is safe in an archive, such as `logs/2-node.log`.
fn log_file_name(number: usize, log: &Path) -> String {
    let name = log.file_name().unwrap_or_default().to_string_lossy();
    let plain = |c: char| {
        if c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_') { c } else { '_' }
    };
    let name: String = name.chars().take(80).map(plain).collect();
    format!("logs/{number}-{name}")
}

/// Returns the last part of a log, starting at the beginning of a line.
fn read_log_end(log: &Path) -> Result<String, String> {
    let read = || -> io::Result<(Vec<u8>, bool)> {
        // Reading a pipe would block.
        if !fs::metadata(log)?.is_file() {
            return Err(io::Error::other("no file"));
        }
        let mut file = File::open(log)?;
        let from = file.metadata()?.len().saturating_sub(LOG_BYTES_MAX);
        file.seek(SeekFrom::Start(from))?;
        let mut bytes = Vec::new();
        file.take(LOG_BYTES_MAX).read_to_end(&mut bytes)?;
        Ok((bytes, from > 0))
    };
    let (bytes, is_cut) = read().map_err(|error| error.to_string())?;
    to_text(bytes, is_cut)
}

/// Converts the bytes to text, without the first line if it may be truncated. Fails for binary
/// data, in which secrets cannot be recognised.
fn to_text(mut bytes: Vec<u8>, is_cut: bool) -> Result<String, String> {
    if is_cut {
        let first = bytes.iter().position(|byte| *byte == b'\n');
        bytes.drain(..first.map_or(bytes.len(), |at| at + 1));
    }
    match bytes.contains(&0) || bytes.starts_with(&[0x1f, 0x8b]) {
        true => Err("no text: is it packed? unpack it first".to_owned()),
        false => Ok(String::from_utf8_lossy(&bytes).into_owned()),
    }
}

/// Runs a command and returns the end of its output. Fails if the command does not finish in time.
fn command_output(command: &mut Command, wait: Duration) -> Result<Vec<u8>, String> {
    command.env("LC_ALL", "C").stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().map_err(|error| format!("not available: {error}"))?;
    let Some(mut out) = child.stdout.take() else {
        return Err("not available".to_owned());
    };
    let (send, receive) = mpsc::channel();
    let reads = thread::spawn(move || {
        let mut all = Vec::new();
        let mut piece = [0; 64 << 10];
        let most = usize::try_from(LOG_BYTES_MAX).unwrap_or(usize::MAX);
        let mut is_cut = false;
        while let Ok(count @ 1..) = out.read(&mut piece) {
            all.extend_from_slice(&piece[..count]);
            if all.len() > 2 * most {
                all.drain(..all.len() - most);
                is_cut = true;
            }
        }
        let from = all.len().saturating_sub(most);
        if from > 0 || is_cut {
            all.drain(..from);
            let first = all.iter().position(|byte| *byte == b'\n');
            all.drain(..first.map_or(all.len(), |at| at + 1));
        }
        let _ = send.send(all);
    });
    let said = receive.recv_timeout(wait);
    // Harmless if the command has already finished.
    let _ = child.kill();
    let status = child.wait().map_err(|error| error.to_string())?;
    let said = said.map_err(|_| format!("no answer within {} s", wait.as_secs()))?;
    let _ = reads.join();
    match status.success() || !said.is_empty() {
        true => Ok(said),
        false => Err(format!("it failed: {status}")),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::doctor::system::tests::Tree;

    fn wish(logs: &[PathBuf]) -> BundleInputs<'_> {
        BundleInputs {
            report: serde_json::json!({"findings": [], "password": "hunter2"}),
            printed_report: "all is well".to_owned(),
            cluster: Err("no --admin".to_owned()),
            logs,
        }
    }

    /// Reads a bundle and returns its files with their contents.
    fn unpacked(bundle: &Path) -> Vec<(String, String)> {
        let file = flate2::read::GzDecoder::new(File::open(bundle).unwrap());
        let mut archive = tar::Archive::new(file);
        let entries = archive.entries().unwrap().map(|entry| {
            let mut entry = entry.unwrap();
            let name = entry.path().unwrap().display().to_string();
            let mut text = String::new();
            entry.read_to_string(&mut text).unwrap();
            (name, text)
        });
        entries.collect()
    }

    #[test]
    fn bundle_matches_its_manifest_and_has_no_secret() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("node 1.log");
        let plane = "0123456789abcdef".repeat(4);
        let pem =
            "-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEIPlanted\n-----END PRIVATE KEY-----";
        fs::write(&log, format!("before\n{pem}\npassword=hunter2\n1 {plane}\nafter\n")).unwrap();
        let packed = folder.path().join("old.gz");
        fs::write(&packed, [0x1f, 0x8b, 8, 1]).unwrap();
        let tree =
            Tree::of(&[("proc/loadavg", "0.1"), ("proc/self/mountinfo", "x password=hunter2")]);
        let to = folder.path().join("b.tar.gz");
        let logs = [log, packed, folder.path().join("nowhere")];
        let manifest = write_bundle(&to, &tree.system(), &wish(&logs)).unwrap();

        let all = unpacked(&to);
        for (name, text) in &all {
            for secret in ["Planted", "MC4", "hunter2", &plane] {
                assert!(!text.contains(secret), "{secret} in {name}: {text}");
            }
        }
        let of = |name: &str| {
            let name = format!("{TOP_FOLDER}/{name}");
            all.iter().find(|(one, _)| *one == name).map(|(_, text)| &**text)
        };
        let kept = of("logs/1-node_1.log").unwrap();
        assert!(kept.starts_with("before\n") && kept.ends_with("after\n"), "{kept}");
        assert_eq!(of("report.txt"), Some("all is well\n"));
        assert_eq!(of("machine/proc/loadavg"), Some("0.1\n"));
        let listed: Json = serde_json::from_str(of("manifest.json").unwrap()).unwrap();
        assert_eq!(listed, serde_json::to_value(&manifest).unwrap());
        assert_eq!(manifest.files.len() + 1, all.len());
        for entry in &manifest.files {
            assert_eq!(of(&entry.file).map(str::len), Some(entry.bytes), "{entry:?}");
        }
        let why = |what: &str| {
            let found = manifest.missing.iter().find(|one| one.what.ends_with(what));
            found.map(|one| one.why.clone()).unwrap_or_else(|| panic!("{what}: {manifest:?}"))
        };
        assert!(why("old.gz").contains("packed"));
        assert!(why("nowhere").contains("No such file"));
        assert_eq!(why("nodes"), "no --admin");
        assert!(why("/proc/version").contains("No such file"));
    }

    #[test]
    fn bundle_is_private_and_overwrites_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let to = folder.path().join("b.tar.gz");
        let tree = Tree::of(&[]);
        check_target_free(&to).unwrap();
        write_bundle(&to, &tree.system(), &wish(&[])).unwrap();
        assert_eq!(fs::metadata(&to).unwrap().permissions().mode() & 0o777, 0o600);
        let before = fs::read(&to).unwrap();
        let kind = |result: io::Result<()>| result.unwrap_err().kind();
        let again = write_bundle(&to, &tree.system(), &wish(&[])).map(drop);
        assert_eq!(kind(again), io::ErrorKind::AlreadyExists);
        assert_eq!(kind(check_target_free(&to)), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read(&to).unwrap(), before);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "no part is left");
        assert_eq!(kind(check_target_free(&folder.path().join("no/b"))), io::ErrorKind::NotFound);
    }

    #[test]
    fn end_of_a_log_begins_at_a_line_boundary() {
        let cut = to_text(b"half of a secret\nwhole\n".to_vec(), true);
        assert_eq!(cut, Ok("whole\n".to_owned()));
        assert_eq!(to_text(b"one line".to_vec(), true), Ok(String::new()));
        assert!(to_text(vec![b'a', 0], false).is_err());
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(read_log_end(folder.path()), Err("no file".to_owned()));
        let log = folder.path().join("log");
        let line = "x".repeat(1023) + "\n";
        fs::write(&log, line.repeat(9 << 10)).unwrap();
        let end = read_log_end(&log).unwrap();
        assert_eq!(end.len() as u64, LOG_BYTES_MAX - 1024);
        assert!(end.starts_with(&line));
    }

    #[test]
    fn program_that_does_not_end_is_abandoned() {
        let wait = Duration::from_secs(20);
        let said = command_output(Command::new("sh").args(["-c", "echo hello"]), wait);
        assert_eq!(said, Ok(b"hello\n".to_vec()));
        let never = command_output(Command::new("sleep").arg("1000"), Duration::from_millis(50));
        assert!(never.unwrap_err().contains("no answer"));
        let none = command_output(&mut Command::new("no-such-program-at-all"), wait);
        assert!(none.unwrap_err().starts_with("not available"));
        assert!(command_output(&mut Command::new("false"), wait).is_err());
    }
}
