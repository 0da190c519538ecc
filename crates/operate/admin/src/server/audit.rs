//! Audit log of operators' actions and refused attempts, as lines of JSON in the node's folder.
//!
//! The size is bounded: a full file replaces the previous one. At most one refused attempt is
//! recorded per second, so that repeated attempts cannot displace the records of actions. Of the
//! remaining ones, the last attempt of each user is recorded later, with the number of omitted
//! ones.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{self, Read as _, Seek as _, SeekFrom, Write as _},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use axum::{Json, extract::State};
use quorate_log::disk::private_file;
use serde_json::Value;
use tokio::task::spawn_blocking;

use super::{Admin, access::Requester, failure::Failure};
use crate::users::AuditRecord;

/// Name of the current file.
const CURRENT_FILE: &str = "audit.jsonl";
const PREVIOUS_FILE: &str = "audit.1.jsonl";
/// Size in bytes at which a new file is started.
const FILE_BYTES_MAX: u64 = 8 << 20;
/// Minimum time between two records of refused attempts.
const REFUSAL_INTERVAL: Duration = Duration::from_secs(1);
/// Maximum number of users whose refused attempts are counted separately. All others count as `…`.
const COUNTED_USERS_MAX: usize = 32;
/// Number of bytes read from the end of each file when the log is requested.
const TAIL_BYTES: u64 = 1 << 20;
const SHOWN_RECORDS_MAX: usize = 500;

/// The audit log. Clones write to the same file.
#[derive(Clone, Debug, Default)]
pub(super) struct AuditLog(Arc<Mutex<LogState>>);

#[derive(Debug, Default)]
struct LogState {
    /// Folder of the files, or `None` until the node has one.
    folder: Option<PathBuf>,
    /// Time of the last refusal that was recorded.
    last_refusal_at: Option<Instant>,
    /// Last refused attempt of each user that has not been recorded yet.
    unrecorded_refusals: BTreeMap<String, AuditRecord>,
}

impl AuditLog {
    pub(super) fn set_folder(&self, folder: &Path) {
        self.lock_state().folder = Some(folder.to_owned());
    }

    /// Returns the node's folder, once it has one.
    pub(super) fn folder(&self) -> Option<PathBuf> {
        self.lock_state().folder.clone()
    }

    fn lock_state(&self) -> std::sync::MutexGuard<'_, LogState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records a request and its outcome. A write error is only logged, because a full disk must
    /// not prevent operators from acting.
    #[expect(clippy::too_many_arguments, reason = "a record has that many parts")]
    pub(super) async fn record_request(
        &self,
        admin: &Admin,
        asker: &Requester,
        from: String,
        action: String,
        body: &[u8],
        status: u16,
        may: bool,
    ) {
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH);
        let at_ms = since_1970.map_or(0, |since| since.as_millis());
        let record = AuditRecord {
            at_ms: u64::try_from(at_ms).unwrap_or(u64::MAX),
            node: admin.node_id().map_or(0, |node| node.0),
            who: asker.name.clone(),
            by: asker.identity_proof.to_owned(),
            from,
            action,
            body: without_secrets(body),
            status,
            untold: 0,
        };
        let audit = self.clone();
        let written = spawn_blocking(move || {
            let mut book = audit.lock_state();
            if !may && !book.may_record_refusal() {
                book.count_refusal(record);
                return Ok(());
            }
            book.write_unrecorded()?;
            book.append_record(&record)
        });
        if let Ok(Err(error)) = written.await {
            tracing::warn!(%error, "cannot write an action to the audit log");
        }
    }
}

impl LogState {
    fn may_record_refusal(&mut self) -> bool {
        let now = Instant::now();
        let soon = self.last_refusal_at.is_some_and(|at| now.duration_since(at) < REFUSAL_INTERVAL);
        if !soon {
            self.last_refusal_at = Some(now);
        }
        !soon
    }

    /// Counts a refused attempt that is not recorded immediately.
    fn count_refusal(&mut self, mut record: AuditRecord) {
        if self.unrecorded_refusals.len() >= COUNTED_USERS_MAX
            && !self.unrecorded_refusals.contains_key(&record.who)
        {
            "…".clone_into(&mut record.who);
        }
        if let Some(before) = self.unrecorded_refusals.get(&record.who) {
            record.untold = before.untold + 1;
        }
        self.unrecorded_refusals.insert(record.who.clone(), record);
    }

    /// Records the attempts that were only counted.
    fn write_unrecorded(&mut self) -> io::Result<()> {
        std::mem::take(&mut self.unrecorded_refusals)
            .values()
            .try_for_each(|record| self.append_record(record))
    }

    fn append_record(&self, record: &AuditRecord) -> io::Result<()> {
        let AuditRecord { who, action, from, status, untold, .. } = record;
        tracing::info!(who, action, from, status, untold, "operator request");
        let Some(folder) = &self.folder else {
            return Ok(());
        };
        let path = folder.join(CURRENT_FILE);
        let open = || private_file().create(true).append(true).open(&path);
        let mut file = open()?;
        if file.metadata()?.len() >= FILE_BYTES_MAX {
            fs::rename(&path, folder.join(PREVIOUS_FILE))?;
            file = open()?;
        }
        let mut line = serde_json::to_vec(record)?;
        line.push(b'\n');
        file.write_all(&line)?;
        file.sync_data()
    }

    /// Returns the most recent records, oldest first. Skips lines that are truncated or invalid.
    fn read_records(&self) -> io::Result<Vec<AuditRecord>> {
        let Some(folder) = &self.folder else {
            return Ok(Vec::new());
        };
        let mut records = Vec::new();
        for name in [PREVIOUS_FILE, CURRENT_FILE] {
            let text = match read_tail(&folder.join(name)) {
                Ok(text) => text,
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(error),
            };
            records.extend(text.lines().filter_map(|line| serde_json::from_str(line).ok()));
        }
        let surplus = records.len().saturating_sub(SHOWN_RECORDS_MAX);
        records.drain(..surplus);
        Ok(records)
    }
}

fn read_tail(path: &Path) -> io::Result<String> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(TAIL_BYTES)))?;
    let mut bytes = Vec::new();
    file.take(TAIL_BYTES).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Formats a request body for the log, without passwords.
fn without_secrets(body: &[u8]) -> String {
    if body.is_empty() {
        return String::new();
    }
    match serde_json::from_slice::<Value>(body) {
        Ok(mut json) => {
            hide_passwords(&mut json);
            json.to_string()
        }
        // A body that is not JSON may contain anything, including a password.
        Err(_) => format!("{} bytes that are no JSON", body.len()),
    }
}

fn hide_passwords(json: &mut Value) {
    match json {
        Value::Object(fields) => {
            for (name, value) in fields {
                if name == "password" {
                    *value = Value::from("…");
                } else {
                    hide_passwords(value);
                }
            }
        }
        Value::Array(all) => all.iter_mut().for_each(hide_passwords),
        _ => {}
    }
}

/// Handles `GET /audit`.
pub(super) async fn handle_audit(
    State(admin): State<Admin>,
) -> Result<Json<Vec<AuditRecord>>, Failure> {
    // A starting node cannot check whether the caller may read the log.
    admin.run_blocking(|_, _| ()).await?;
    let audit = admin.audit_log.clone();
    let read = spawn_blocking(move || {
        let mut book = audit.lock_state();
        book.write_unrecorded()?;
        book.read_records()
    })
    .await;
    match read {
        Ok(Ok(records)) => Ok(Json(records)),
        Ok(Err(error)) => Err(Failure::unavailable("io", &format!("read the audit log: {error}"))),
        Err(_) => Err(Failure::unavailable("failed", "the audit log could not be read")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(at_ms: u64) -> AuditRecord {
        AuditRecord {
            at_ms,
            node: 1,
            who: "ann".to_owned(),
            by: "certificate".to_owned(),
            from: "10.0.0.9:5000".to_owned(),
            action: "POST /transfer".to_owned(),
            body: String::new(),
            status: 200,
            untold: 0,
        }
    }

    #[test]
    fn records_are_read_in_order_and_files_are_bounded() {
        let folder = tempfile::tempdir().unwrap();
        let book = LogState { folder: Some(folder.path().to_owned()), ..LogState::default() };
        assert_eq!(book.read_records().unwrap(), []);
        book.append_record(&record(1)).unwrap();
        // A crash can leave a truncated line or garbage at the end.
        let path = folder.path().join(CURRENT_FILE);
        let mut file = File::options().append(true).open(&path).unwrap();
        file.write_all(b"{\"at_ms\":\n\xff\n").unwrap();
        book.append_record(&record(2)).unwrap();
        assert_eq!(book.read_records().unwrap(), [record(1), record(2)]);
        file.set_len(FILE_BYTES_MAX).unwrap();
        book.append_record(&record(3)).unwrap();
        assert!(fs::metadata(&path).unwrap().len() < 1000);
        assert_eq!(book.read_records().unwrap().last(), Some(&record(3)));
        for at in 4..1000 {
            book.append_record(&record(at)).unwrap();
        }
        assert_eq!(book.read_records().unwrap().len(), SHOWN_RECORDS_MAX);
        file.set_len(FILE_BYTES_MAX).unwrap();
        book.append_record(&record(1000)).unwrap();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
    }

    #[test]
    fn refused_attempts_are_counted_per_user() {
        let folder = tempfile::tempdir().unwrap();
        let mut book = LogState { folder: Some(folder.path().to_owned()), ..LogState::default() };
        assert!(book.may_record_refusal());
        assert!(!book.may_record_refusal());
        let by = |who: String, at_ms| AuditRecord { who, status: 403, ..record(at_ms) };
        for at in 0..50 {
            book.count_refusal(by("will".to_owned(), at));
            book.count_refusal(by(format!("user {at}"), at));
        }
        book.write_unrecorded().unwrap();
        book.append_record(&record(50)).unwrap();
        book.write_unrecorded().unwrap();
        let records = book.read_records().unwrap();
        assert_eq!(records.len(), COUNTED_USERS_MAX + 2);
        let of = |who: &str| records.iter().find(|record| record.who == who).unwrap();
        assert_eq!((of("will").untold, of("will").at_ms, of("will").status), (49, 49, 403));
        assert_eq!((of("user 3").untold, of("…").untold), (0, 18));
        assert_eq!((of("ann").untold, of("ann").at_ms), (0, 50));
        book.last_refusal_at = Instant::now().checked_sub(REFUSAL_INTERVAL);
        assert!(book.may_record_refusal());
    }

    #[test]
    fn passwords_are_not_written_down() {
        let body =
            br#"{"set":{"name":"ann","password":"sesame","more":[{"password":{"x":"sesame"}}]}}"#;
        let text = without_secrets(body);
        assert!(text.contains("ann") && !text.contains("sesame"), "{text}");
        assert_eq!(without_secrets(b"sesame"), "6 bytes that are no JSON");
        assert_eq!(without_secrets(b""), "");
    }
}
