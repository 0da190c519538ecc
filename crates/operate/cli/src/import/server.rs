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
    units::bytes as size,
};

use crate::{
    output::{Exit, Problem},
    password,
};

const SCHEME: &str = "redis://";
const PORT: &str = "6379";
/// Time without bytes after which the full copy fails. A server that saves sends newlines.
const SILENCE: Duration = Duration::from_secs(60);
/// Environment variable with the server's password.
const PASSWORD: &str = "QUORATE_SOURCE_PASSWORD";
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
    /// Parses `redis://[user[:password]@]host[:port]`. Returns `None` for the name of a file.
    pub(super) fn parse(text: &str) -> Option<Result<Self, Problem>> {
        if text.starts_with("rediss://") {
            let what = "an import over TLS is not supported";
            return Some(Err(
                Problem::usage(what).hint("import a file, or use a tunnel to the server")
            ));
        }
        let rest = text.strip_prefix(SCHEME)?;
        let (login, place) = rest.rsplit_once('@').unwrap_or(("", rest));
        let (user, password) = login.split_once(':').unwrap_or((login, ""));
        let address = match place.rsplit_once(':') {
            Some(_) => place.to_owned(),
            None => format!("{place}:{PORT}"),
        };
        let server = crate::addresses::parse_address(&address)
            .filter(|_| !place.contains('/'))
            .zip(decoded(user).zip(decoded(password)))
            .map(|(address, (user, password))| Self { address, user, password });
        Some(server.ok_or_else(|| {
            Problem::usage("the server must be redis://[USER[:PASSWORD]@]HOST[:PORT]")
                .hint("choose its database with --database; write special characters as %XX")
        }))
    }

    pub(super) fn shown(&self) -> String {
        format!("{SCHEME}{}", self.address)
    }

    /// Reads the password from `file`, else from the environment, unless the address has one.
    pub(super) fn find_password(&mut self, file: Option<&Path>) -> Result<(), Problem> {
        match (file, env::var(PASSWORD)) {
            (Some(_), _) if !self.password.is_empty() => {
                return Err(Problem::usage(
                    "the server has a password in its address and in a file",
                )
                .hint("remove the one in the address, which other users of the machine can see"));
            }
            (Some(_), _) => self.password = password::read(file, "password of the server")?,
            (None, Ok(password)) if self.password.is_empty() => self.password = password,
            (None, _) => {}
        }
        if self.password.is_empty() && !self.user.is_empty() {
            let what = format_args!("user {} of the server has no password", self.user);
            return Err(Problem::usage(what)
                .hint(format!("give --source-password-file FILE or set {PASSWORD}")));
        }
        Ok(())
    }

    /// Writes a full copy of the server to `file` and disconnects.
    pub(super) fn copy_to(&self, file: &File) -> Result<(), Problem> {
        self.connect()?.receive(file)
    }

    /// Asks the server for a full copy.
    fn connect(&self) -> Result<Copying, Problem> {
        let failed = |error: &io::Error| Problem::unreachable(&self.address, error);
        let stream = TcpStream::connect(&self.address).map_err(|error| failed(&error))?;
        stream.set_read_timeout(Some(SILENCE)).map_err(|error| failed(&error))?;
        let port = stream.local_addr().map_or(0, |address| address.port()).to_string();
        let output = stream.try_clone().map_err(|error| failed(&error))?;
        let mut copying = Copying {
            address: self.address.clone(),
            input: BufReader::with_capacity(PIECE, stream),
            output,
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
        if reply.starts_with("+FULLRESYNC ") {
            Ok(copying)
        } else {
            Err(copying.refused("PSYNC", &reply))
        }
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
struct Copying {
    address: String,
    input: BufReader<TcpStream>,
    output: TcpStream,
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
    fn receive(mut self, file: &File) -> Result<(), Problem> {
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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_comes_from_one_place() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(b"s@e\n").unwrap();
        let mut server = Server::parse("redis://ann@h").unwrap().unwrap();
        server.find_password(Some(file.path())).unwrap();
        assert_eq!((&*server.user, &*server.password), ("ann", "s@e"));
        assert!(server.find_password(Some(file.path())).is_err());
        let mut server = Server::parse("redis://h").unwrap().unwrap();
        assert_eq!(server.find_password(None), Ok(()));
    }

    #[test]
    fn a_server_is_an_address_with_or_without_a_login() {
        let parsed = |text: &str| Server::parse(text).unwrap();
        let server = |address: &str, user: &str, password: &str| {
            let [address, user, password] = [address, user, password].map(str::to_owned);
            Ok(Server { address, user, password })
        };
        assert_eq!(parsed("redis://h"), server("h:6379", "", ""));
        assert_eq!(parsed("redis://:p%40s@h:1"), server("h:1", "", "p@s"));
        assert_eq!(parsed("redis://ann@h"), server("h:6379", "ann", ""));
        assert_eq!(parsed("redis://ann:a:b@[::1]:7"), server("[::1]:7", "ann", "a:b"));
        assert_eq!(parsed("redis://h:1").unwrap().shown(), "redis://h:1");
        for wrong in ["redis://", "redis://h:x", "redis://h:1/3", "redis://%4@h", "rediss://h"] {
            assert!(parsed(wrong).is_err(), "{wrong}");
        }
        assert!(Server::parse("dump.rdb").is_none());
    }
}
