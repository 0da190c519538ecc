//! Connection to a running Redis or Valkey server, as one of its replicas: the full copy first,
//! then the stream of commands.

use std::{
    fs::File,
    io::{self, BufRead as _, BufReader, ErrorKind, Read as _, Write as _},
    net::TcpStream,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use quorate_admin::{
    progress::{Progress, ProgressReport},
    units::bytes as size,
};

use crate::output::{Exit, Problem};

const SCHEME: &str = "redis://";
const PORT: &str = "6379";
/// Time without bytes after which the full copy fails. A server that saves sends newlines.
const SILENCE: Duration = Duration::from_secs(60);
/// Interval at which the server is told the applied position, and at most how long a read waits.
const ACKNOWLEDGE: Duration = Duration::from_secs(1);
/// Maximum size of the commands that wait to be applied. The server buffers the rest.
const WAITING_MAX: usize = 256 << 20;
const PIECE: usize = 256 << 10;
/// Length of the mark that ends a copy of unknown length.
const MARK: usize = 40;

/// Address of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Server {
    address: String,
    user: String,
    password: String,
}

impl Server {
    /// Parses `redis://[user:password@]host[:port]`. Returns `None` for the name of a file.
    pub(super) fn parse(text: &str) -> Option<Result<Self, Problem>> {
        if text.starts_with("rediss://") {
            let what = "an import over TLS is not supported";
            return Some(Err(
                Problem::usage(what).hint("import a file, or use a tunnel to the server")
            ));
        }
        let rest = text.strip_prefix(SCHEME)?;
        let (login, place) = rest.rsplit_once('@').unwrap_or(("", rest));
        let (user, password) = login.split_once(':').unwrap_or(("", login));
        let address = match place.rsplit_once(':') {
            Some(_) => place.to_owned(),
            None => format!("{place}:{PORT}"),
        };
        let server = crate::addresses::parse_address(&address)
            .filter(|_| !place.contains('/'))
            .zip(decoded(user).zip(decoded(password)))
            .map(|(address, (user, password))| Self { address, user, password });
        Some(server.ok_or_else(|| {
            Problem::usage("the server must be redis://[USER:PASSWORD@]HOST[:PORT]")
                .hint("choose its database with --database; write special characters as %XX")
        }))
    }

    pub(super) fn shown(&self) -> String {
        format!("{SCHEME}{}", self.address)
    }

    /// Asks the server for a full copy.
    pub(super) fn connect(&self) -> Result<Copying, Problem> {
        let failed = |error: &io::Error| Problem::unreachable(&self.address, error);
        let stream = TcpStream::connect(&self.address).map_err(|error| failed(&error))?;
        stream.set_read_timeout(Some(SILENCE)).map_err(|error| failed(&error))?;
        let port = stream.local_addr().map_or(0, |address| address.port()).to_string();
        let output = stream.try_clone().map_err(|error| failed(&error))?;
        let mut copying = Copying {
            address: self.address.clone(),
            input: BufReader::with_capacity(PIECE, stream),
            output,
            offset: 0,
        };
        match (&*self.user, &*self.password) {
            ("", "") => {}
            ("", password) => _ = copying.ask(&["AUTH", password])?,
            (user, password) => _ = copying.ask(&["AUTH", user, password])?,
        }
        copying.ask(&["PING"])?;
        copying.ask(&["REPLCONF", "listening-port", &port])?;
        copying.ask(&["REPLCONF", "capa", "eof", "capa", "psync2"])?;
        let reply = copying.ask(&["PSYNC", "?", "-1"])?;
        let offset = reply.strip_prefix("+FULLRESYNC ").and_then(|rest| rest.split(' ').nth(1));
        copying.offset = offset
            .and_then(|offset| offset.parse().ok())
            .ok_or_else(|| copying.refused("PSYNC", &reply))?;
        Ok(copying)
    }
}

/// Decodes `%XX`.
fn decoded(text: &str) -> Option<String> {
    let mut parts = text.split('%');
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        let digits = part.get(..2)?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        bytes.extend_from_slice(&part.as_bytes()[2..]);
    }
    String::from_utf8(bytes).ok()
}

fn encoded(words: &[&str]) -> String {
    let words = words.iter().map(|word| format!("${}\r\n{word}\r\n", word.len()));
    let words: Vec<String> = words.collect();
    format!("*{}\r\n{}", words.len(), words.concat())
}

/// Connection on which the full copy arrives.
pub(super) struct Copying {
    address: String,
    input: BufReader<TcpStream>,
    output: TcpStream,
    /// Position of the stream of commands at which the copy was taken.
    offset: u64,
}

impl Copying {
    fn broken(&self, error: &io::Error) -> Problem {
        let what = format_args!("lost the connection to {}: {error}", self.address);
        Problem::new(Exit::Unreachable, "unreachable", what)
            .hint("see the log of that server; its client-output-buffer-limit for replicas may be too low")
    }

    fn refused(&self, word: &str, reply: &str) -> Problem {
        let what = format_args!("{} refused {word}: {reply}", self.address);
        Problem::new(Exit::Failed, "refused", what)
            .hint("it must be a Redis or Valkey server whose user may replicate; or import a file")
    }

    /// Returns the next line that is not empty.
    fn line(&mut self) -> Result<String, Problem> {
        loop {
            let mut line = Vec::new();
            let read = (&mut self.input).take(4096).read_until(b'\n', &mut line);
            match read {
                Ok(0) => return Err(self.broken(&ErrorKind::UnexpectedEof.into())),
                Ok(_) if line.trim_ascii().is_empty() => {}
                Ok(_) => return Ok(String::from_utf8_lossy(line.trim_ascii()).into_owned()),
                Err(error) => return Err(self.broken(&error)),
            }
        }
    }

    fn ask(&mut self, words: &[&str]) -> Result<String, Problem> {
        let sent = self.output.write_all(encoded(words).as_bytes());
        sent.map_err(|error| self.broken(&error))?;
        let reply = self.line()?;
        if reply.starts_with('-') { Err(self.refused(words[0], &reply)) } else { Ok(reply) }
    }

    /// Writes the full copy to `file`.
    pub(super) fn copy_to(&mut self, file: &File) -> Result<(), Problem> {
        let header = self.line()?;
        let length = header.strip_prefix('$');
        let mark =
            length.and_then(|rest| rest.strip_prefix("EOF:")).filter(|mark| mark.len() == MARK);
        let length = length.and_then(|length| length.parse::<u64>().ok());
        let mut progress = Progress::start();
        match (mark.map(str::to_owned), length) {
            (Some(mark), _) => self.copy_marked(file, mark.as_bytes(), &mut progress),
            (None, Some(length)) => self.copy_counted(file, length, &mut progress),
            (None, None) => Err(self.refused("the full copy", &header)),
        }
    }

    fn piece(&mut self, most: u64) -> Result<Vec<u8>, Problem> {
        let mut piece = vec![0; PIECE.min(usize::try_from(most).unwrap_or(PIECE))];
        match self.input.read(&mut piece) {
            Ok(0) => Err(self.broken(&ErrorKind::UnexpectedEof.into())),
            Ok(count) => {
                piece.truncate(count);
                Ok(piece)
            }
            Err(error) => Err(self.broken(&error)),
        }
    }

    fn copy_counted(
        &mut self,
        mut file: &File,
        length: u64,
        progress: &mut Progress,
    ) -> Result<(), Problem> {
        let mut left = length;
        while left > 0 {
            let piece = self.piece(left)?;
            file.write_all(&piece).map_err(|error| Problem::io("write the copy", &error))?;
            left -= piece.len() as u64;
            progress.report(|| ProgressReport::bytes("full copy", length - left, length));
        }
        Ok(())
    }

    /// Copies up to the mark. The server sends nothing after it before the first acknowledgement.
    fn copy_marked(
        &mut self,
        mut file: &File,
        mark: &[u8],
        progress: &mut Progress,
    ) -> Result<(), Problem> {
        let (mut tail, mut done) = (Vec::new(), 0);
        while tail != mark {
            tail.extend_from_slice(&self.piece(u64::MAX)?);
            let whole = tail.len().saturating_sub(MARK);
            let written = file.write_all(&tail[..whole]);
            written.map_err(|error| Problem::io("write the copy", &error))?;
            tail.drain(..whole);
            done += whole;
            progress
                .report(|| ProgressReport::text(format_args!("full copy: {}", size(done as u64))));
        }
        Ok(())
    }

    /// Starts to receive the stream of commands.
    pub(super) fn follow(self) -> Result<Arc<Incoming>, Problem> {
        let incoming = Arc::new(Incoming {
            waiting: Mutex::default(),
            changed: Condvar::new(),
            applied: AtomicU64::new(self.offset),
        });
        let socket = self.input.get_ref();
        socket.set_read_timeout(Some(ACKNOWLEDGE / 5)).map_err(|error| self.broken(&error))?;
        let shared = Arc::clone(&incoming);
        let receive = move || receive(self, &shared);
        let thread = thread::Builder::new().name("receive".to_owned()).spawn(receive);
        thread.map_err(|error| Problem::io("start a thread", &error))?;
        Ok(incoming)
    }
}

/// Stream of commands that a thread receives.
pub(super) struct Incoming {
    waiting: Mutex<Waiting>,
    changed: Condvar,
    /// Position up to which commands are applied.
    applied: AtomicU64,
}

#[derive(Default)]
struct Waiting {
    bytes: Vec<u8>,
    /// Reason why nothing more arrives.
    ended: Option<Problem>,
}

impl Incoming {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn applied(&self) -> u64 {
        self.applied.load(Ordering::SeqCst)
    }

    pub(super) fn set_applied(&self, position: u64) {
        self.applied.store(position, Ordering::SeqCst);
    }

    /// Moves what has arrived to the end of `bytes`, waiting a moment if nothing has. Fails if
    /// nothing more arrives.
    pub(super) fn take(&self, bytes: &mut Vec<u8>) -> Result<(), Problem> {
        let waiting = self.lock();
        let is_idle = |waiting: &mut Waiting| waiting.bytes.is_empty() && waiting.ended.is_none();
        let waited = self.changed.wait_timeout_while(waiting, ACKNOWLEDGE / 5, is_idle);
        let mut waiting = waited.unwrap_or_else(PoisonError::into_inner).0;
        if waiting.bytes.is_empty() {
            return waiting.ended.clone().map_or(Ok(()), Err);
        }
        bytes.append(&mut waiting.bytes);
        self.changed.notify_all();
        Ok(())
    }

    /// Waits a moment while too much waits to be applied. Returns whether there is room.
    fn has_room(&self) -> bool {
        let is_full = |waiting: &mut Waiting| waiting.bytes.len() >= WAITING_MAX;
        let waited = self.changed.wait_timeout_while(self.lock(), ACKNOWLEDGE / 5, is_full);
        waited.unwrap_or_else(PoisonError::into_inner).0.bytes.len() < WAITING_MAX
    }
}

/// Receives commands, and acknowledges what is applied each second, until the connection ends.
fn receive(mut from: Copying, shared: &Arc<Incoming>) {
    let mut piece = vec![0; PIECE];
    let mut acknowledged: Option<Instant> = None;
    let ended = loop {
        if acknowledged.is_none_or(|at| at.elapsed() >= ACKNOWLEDGE) {
            let position = shared.applied().to_string();
            let words = encoded(&["REPLCONF", "ACK", &position]);
            if let Err(error) = from.output.write_all(words.as_bytes()) {
                break from.broken(&error);
            }
            acknowledged = Some(Instant::now());
        }
        // The other side is the process itself, which ends with its last other holder.
        if Arc::strong_count(shared) == 1 {
            return;
        }
        if !shared.has_room() {
            continue;
        }
        match from.input.read(&mut piece) {
            Ok(0) => break from.broken(&ErrorKind::UnexpectedEof.into()),
            Ok(count) => {
                shared.lock().bytes.extend_from_slice(&piece[..count]);
                shared.changed.notify_all();
            }
            Err(error)
                if [ErrorKind::WouldBlock, ErrorKind::TimedOut, ErrorKind::Interrupted]
                    .contains(&error.kind()) => {}
            Err(error) => break from.broken(&error),
        }
    };
    shared.lock().ended = Some(ended);
    shared.changed.notify_all();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_an_address_with_or_without_a_login() {
        let parsed = |text: &str| Server::parse(text).unwrap();
        let server = |address: &str, user: &str, password: &str| {
            let [address, user, password] = [address, user, password].map(str::to_owned);
            Ok(Server { address, user, password })
        };
        assert_eq!(parsed("redis://h"), server("h:6379", "", ""));
        assert_eq!(parsed("redis://p%40s@h:1"), server("h:1", "", "p@s"));
        assert_eq!(parsed("redis://ann:a:b@[::1]:7"), server("[::1]:7", "ann", "a:b"));
        assert_eq!(parsed("redis://h:1").unwrap().shown(), "redis://h:1");
        for wrong in ["redis://", "redis://h:x", "redis://h:1/3", "redis://%4@h", "rediss://h"] {
            assert!(parsed(wrong).is_err(), "{wrong}");
        }
        assert!(Server::parse("dump.rdb").is_none());
    }
}
