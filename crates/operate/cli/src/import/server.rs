//! Full copy of a running Redis or Valkey server, taken as one of its replicas.

use std::{
    env,
    fs::File,
    io::{self, BufRead as _, BufReader, ErrorKind, Read as _, Write as _},
    net::TcpStream,
    path::Path,
    time::Duration,
};

use quorate_admin::{
    progress::{Progress, ProgressReport},
    units::format_bytes as size,
};

use crate::{
    output::{Exit, Problem},
    password,
};

const URL_SCHEME: &str = "redis://";
const DEFAULT_PORT: &str = "6379";
/// Time without bytes after which the full copy fails. A server that saves sends newlines.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(60);
/// Environment variable with the server's password.
const PASSWORD_VARIABLE: &str = "QUORATE_SOURCE_PASSWORD";
const READ_BYTES: usize = 256 << 10;
/// Length of the mark that ends a copy of unknown length.
const END_MARK_BYTES: usize = 40;

/// Address of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SourceServer {
    address: String,
    user: String,
    password: String,
}

impl SourceServer {
    /// Parses `redis://[user[:password]@]host[:port]`. Returns `None` for the name of a file.
    pub(super) fn parse_url(text: &str) -> Option<Result<Self, Problem>> {
        if text.starts_with("rediss://") {
            let what = "an import over TLS is not supported";
            return Some(Err(Problem::usage_error(what)
                .with_hint("import a file, or use a tunnel to the server")));
        }
        let rest = text.strip_prefix(URL_SCHEME)?;
        let (login, place) = rest.rsplit_once('@').unwrap_or(("", rest));
        let (user, password) = login.split_once(':').unwrap_or((login, ""));
        let address = match place.rsplit_once(':') {
            Some(_) => place.to_owned(),
            None => format!("{place}:{DEFAULT_PORT}"),
        };
        let server = crate::addresses::parse_address(&address)
            .filter(|_| !place.contains('/'))
            .zip(percent_decoded(user).zip(percent_decoded(password)))
            .map(|(address, (user, password))| Self { address, user, password });
        Some(server.ok_or_else(|| {
            Problem::usage_error("the server must be redis://[USER[:PASSWORD]@]HOST[:PORT]")
                .with_hint("choose its database with --database; write special characters as %XX")
        }))
    }

    pub(super) fn url_without_password(&self) -> String {
        format!("{URL_SCHEME}{}", self.address)
    }

    /// Reads the password from `file`, else from the environment, unless the address has one.
    pub(super) fn find_password(&mut self, file: Option<&Path>) -> Result<(), Problem> {
        match (file, env::var(PASSWORD_VARIABLE)) {
            (Some(_), _) if !self.password.is_empty() => {
                return Err(Problem::usage_error(
                    "the server has a password in its address and in a file",
                )
                .with_hint(
                    "remove the one in the address, which other users of the machine can see",
                ));
            }
            (Some(_), _) => {
                self.password = password::read_password(file, "password of the server")?
            }
            (None, Ok(password)) if self.password.is_empty() => self.password = password,
            (None, _) => {}
        }
        if self.password.is_empty() && !self.user.is_empty() {
            let what = format_args!("user {} of the server has no password", self.user);
            return Err(Problem::usage_error(what).with_hint(format!(
                "give --source-password-file FILE or set {PASSWORD_VARIABLE}"
            )));
        }
        Ok(())
    }

    /// Writes a full copy of the server to `file` and disconnects.
    pub(super) fn copy_to(&self, file: &File) -> Result<(), Problem> {
        self.request_copy()?.receive_copy(file)
    }

    /// Asks the server for a full copy.
    fn request_copy(&self) -> Result<CopyConnection, Problem> {
        let failed = |error: &io::Error| Problem::unreachable_node(&self.address, error);
        let stream = TcpStream::connect(&self.address).map_err(|error| failed(&error))?;
        stream.set_read_timeout(Some(SILENCE_TIMEOUT)).map_err(|error| failed(&error))?;
        let port = stream.local_addr().map_or(0, |address| address.port()).to_string();
        let output = stream.try_clone().map_err(|error| failed(&error))?;
        let mut copying = CopyConnection {
            address: self.address.clone(),
            input: BufReader::with_capacity(READ_BYTES, stream),
            output,
        };
        match (&*self.user, &*self.password) {
            ("", "") => {}
            ("", password) => _ = copying.run_command(&["AUTH", password])?,
            (user, password) => _ = copying.run_command(&["AUTH", user, password])?,
        }
        copying.run_command(&["PING"])?;
        copying.run_command(&["REPLCONF", "listening-port", &port])?;
        copying.run_command(&["REPLCONF", "capa", "eof", "capa", "psync2"])?;
        let reply = copying.run_command(&["PSYNC", "?", "-1"])?;
        if reply.starts_with("+FULLRESYNC ") {
            Ok(copying)
        } else {
            Err(copying.refused_problem("PSYNC", &reply))
        }
    }
}

/// Decodes `%XX`.
fn percent_decoded(text: &str) -> Option<String> {
    let mut parts = text.split('%');
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        let digits = part.get(..2)?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        bytes.extend_from_slice(&part.as_bytes()[2..]);
    }
    String::from_utf8(bytes).ok()
}

fn encode_command(words: &[&str]) -> String {
    let words = words.iter().map(|word| format!("${}\r\n{word}\r\n", word.len()));
    let words: Vec<String> = words.collect();
    format!("*{}\r\n{}", words.len(), words.concat())
}

/// Connection on which the full copy arrives.
struct CopyConnection {
    address: String,
    input: BufReader<TcpStream>,
    output: TcpStream,
}

impl CopyConnection {
    fn broken_problem(&self, error: &io::Error) -> Problem {
        let what = format_args!("lost the connection to {}: {error}", self.address);
        Problem::new(Exit::Unreachable, "unreachable", what)
            .with_hint("see the log of that server; its client-output-buffer-limit for replicas may be too low")
    }

    fn refused_problem(&self, word: &str, reply: &str) -> Problem {
        let what = format_args!("{} refused {word}: {reply}", self.address);
        Problem::new(Exit::Failed, "refused", what).with_hint(
            "it must be a Redis or Valkey server whose user may replicate; or import a file",
        )
    }

    /// Returns the next line that is not empty.
    fn read_line(&mut self) -> Result<String, Problem> {
        loop {
            let mut line = Vec::new();
            let read = (&mut self.input).take(4096).read_until(b'\n', &mut line);
            match read {
                Ok(0) => return Err(self.broken_problem(&ErrorKind::UnexpectedEof.into())),
                Ok(_) if line.trim_ascii().is_empty() => {}
                Ok(_) => return Ok(String::from_utf8_lossy(line.trim_ascii()).into_owned()),
                Err(error) => return Err(self.broken_problem(&error)),
            }
        }
    }

    fn run_command(&mut self, words: &[&str]) -> Result<String, Problem> {
        let sent = self.output.write_all(encode_command(words).as_bytes());
        sent.map_err(|error| self.broken_problem(&error))?;
        let reply = self.read_line()?;
        if reply.starts_with('-') { Err(self.refused_problem(words[0], &reply)) } else { Ok(reply) }
    }

    /// Writes the full copy to `file`.
    fn receive_copy(mut self, file: &File) -> Result<(), Problem> {
        let header = self.read_line()?;
        let length = header.strip_prefix('$');
        let mark = length
            .and_then(|rest| rest.strip_prefix("EOF:"))
            .filter(|mark| mark.len() == END_MARK_BYTES);
        let length = length.and_then(|length| length.parse::<u64>().ok());
        let mut progress = Progress::start();
        match (mark.map(str::to_owned), length) {
            (Some(mark), _) => self.copy_until_mark(file, mark.as_bytes(), &mut progress),
            (None, Some(length)) => self.copy_with_length(file, length, &mut progress),
            (None, None) => Err(self.refused_problem("the full copy", &header)),
        }
    }

    fn read_piece(&mut self, most: u64) -> Result<Vec<u8>, Problem> {
        let mut piece = vec![0; READ_BYTES.min(usize::try_from(most).unwrap_or(READ_BYTES))];
        match self.input.read(&mut piece) {
            Ok(0) => Err(self.broken_problem(&ErrorKind::UnexpectedEof.into())),
            Ok(count) => {
                piece.truncate(count);
                Ok(piece)
            }
            Err(error) => Err(self.broken_problem(&error)),
        }
    }

    fn copy_with_length(
        &mut self,
        mut file: &File,
        length: u64,
        progress: &mut Progress,
    ) -> Result<(), Problem> {
        let mut left = length;
        while left > 0 {
            let piece = self.read_piece(left)?;
            file.write_all(&piece).map_err(|error| Problem::io_error("write the copy", &error))?;
            left -= piece.len() as u64;
            progress.report(|| ProgressReport::bytes("full copy", length - left, length));
        }
        Ok(())
    }

    /// Copies up to the mark. The server sends nothing after it before the first acknowledgement.
    fn copy_until_mark(
        &mut self,
        mut file: &File,
        mark: &[u8],
        progress: &mut Progress,
    ) -> Result<(), Problem> {
        let (mut tail, mut done) = (Vec::new(), 0);
        while tail != mark {
            tail.extend_from_slice(&self.read_piece(u64::MAX)?);
            let whole = tail.len().saturating_sub(END_MARK_BYTES);
            let written = file.write_all(&tail[..whole]);
            written.map_err(|error| Problem::io_error("write the copy", &error))?;
            tail.drain(..whole);
            done += whole;
            progress
                .report(|| ProgressReport::text(format_args!("full copy: {}", size(done as u64))));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_comes_from_one_place() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(b"s@e\n").unwrap();
        let mut server = SourceServer::parse_url("redis://ann@h").unwrap().unwrap();
        server.find_password(Some(file.path())).unwrap();
        assert_eq!((&*server.user, &*server.password), ("ann", "s@e"));
        assert!(server.find_password(Some(file.path())).is_err());
        let mut server = SourceServer::parse_url("redis://h").unwrap().unwrap();
        assert_eq!(server.find_password(None), Ok(()));
    }

    #[test]
    fn a_server_is_an_address_with_or_without_a_login() {
        let parsed = |text: &str| SourceServer::parse_url(text).unwrap();
        let server = |address: &str, user: &str, password: &str| {
            let [address, user, password] = [address, user, password].map(str::to_owned);
            Ok(SourceServer { address, user, password })
        };
        assert_eq!(parsed("redis://h"), server("h:6379", "", ""));
        assert_eq!(parsed("redis://:p%40s@h:1"), server("h:1", "", "p@s"));
        assert_eq!(parsed("redis://ann@h"), server("h:6379", "ann", ""));
        assert_eq!(parsed("redis://ann:a:b@[::1]:7"), server("[::1]:7", "ann", "a:b"));
        assert_eq!(parsed("redis://h:1").unwrap().url_without_password(), "redis://h:1");
        for wrong in ["redis://", "redis://h:x", "redis://h:1/3", "redis://%4@h", "rediss://h"] {
            assert!(parsed(wrong).is_err(), "{wrong}");
        }
        assert!(SourceServer::parse_url("dump.rdb").is_none());
    }
}
