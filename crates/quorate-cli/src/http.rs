//! One HTTP request to a node's admin address, bounded in time and size.

use std::{
    io::{self, ErrorKind, Read as _, Write as _},
    net::{TcpStream, ToSocketAddrs as _},
    time::{Duration, Instant},
};

use serde::de::DeserializeOwned;

use crate::{
    output::{Exit, Problem},
    view::ProgressView,
};

/// Far more than a status has.
const RESPONSE_BYTES_MAX: usize = 4 << 20;

/// What came back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) body: String,
}

impl Response {
    /// The body as JSON, or the error that the node reported.
    pub(crate) fn json<T: DeserializeOwned>(&self) -> Result<T, Refusal> {
        if self.status != 200 {
            return Err(Refusal::read(self));
        }
        serde_json::from_str(&self.body).map_err(|error| Refusal {
            code: "bad_answer".to_owned(),
            message: format!("not a quorate admin address? {error}"),
            hint: "give the --admin address of a node".to_owned(),
            node: None,
            progress: None,
        })
    }
}

/// An error reported by a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) code: String,
    pub(crate) message: String,
    pub(crate) hint: String,
    /// Which node, if it says so.
    pub(crate) node: Option<u32>,
    /// How far it is with what keeps it from serving.
    pub(crate) progress: Option<Box<ProgressView>>,
}

impl Refusal {
    fn read(response: &Response) -> Self {
        let document: serde_json::Value = serde_json::from_str(&response.body).unwrap_or_default();
        let field = |name: &str| {
            document["error"][name]
                .as_str()
                .unwrap_or_default()
                .to_owned()
        };
        let (code, message) = (field("code"), field("message"));
        let unnamed = || format!("HTTP status {}", response.status);
        Self {
            code,
            message: if message.is_empty() {
                unnamed()
            } else {
                message
            },
            hint: field("hint"),
            node: serde_json::from_value(document["node"].clone()).ok(),
            progress: serde_json::from_value(document["progress"].clone()).ok(),
        }
    }
}

/// Nobody answered at `address`.
pub(crate) fn unreachable(address: &str, error: &io::Error) -> Problem {
    Problem::new(
        Exit::Unreachable,
        "unreachable",
        format_args!("no node answers at {address}: {error}"),
    )
    .hint("is the node running? is this its --admin address?")
}

/// `GET path`.
pub(crate) fn get(address: &str, path: &str, wait: Duration) -> io::Result<Response> {
    request(
        address,
        &format!("GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n"),
        wait,
    )
}

/// `POST path` with a JSON body.
pub(crate) fn post(address: &str, path: &str, body: &str, wait: Duration) -> io::Result<Response> {
    let head = format!(
        "POST {path} HTTP/1.0\r\nHost: {address}\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n",
        body.len()
    );
    request(address, &(head + body), wait)
}

fn request(address: &str, text: &str, wait: Duration) -> io::Result<Response> {
    let until = Instant::now() + wait;
    let mut stream = connect(address, until)?;
    stream.set_write_timeout(Some(left(until)?))?;
    stream.write_all(text.as_bytes())?;
    // HTTP 1.0: the answer ends with the connection.
    let mut answer = Vec::new();
    let mut chunk = [0; 16 << 10];
    loop {
        stream.set_read_timeout(Some(left(until)?))?;
        match stream.read(&mut chunk) {
            Ok(0) => return parse(&answer),
            Ok(count) => answer.extend_from_slice(&chunk[..count]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => left(until).map(|_| ())?,
            Err(error) => return Err(error),
        }
        if answer.len() > RESPONSE_BYTES_MAX {
            return Err(io::Error::new(
                ErrorKind::InvalidData,
                "the answer is too large",
            ));
        }
    }
}

fn connect(address: &str, until: Instant) -> io::Result<TcpStream> {
    let mut last = io::Error::new(ErrorKind::NotFound, "the name has no address");
    for socket in address.to_socket_addrs()? {
        match TcpStream::connect_timeout(&socket, left(until)?) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn left(until: Instant) -> io::Result<Duration> {
    match until.saturating_duration_since(Instant::now()) {
        Duration::ZERO => Err(io::Error::new(ErrorKind::TimedOut, "no answer in time")),
        left => Ok(left),
    }
}

fn parse(answer: &[u8]) -> io::Result<Response> {
    let bad = || io::Error::new(ErrorKind::InvalidData, "the answer is not HTTP");
    let text = std::str::from_utf8(answer).map_err(|_| bad())?;
    let (head, body) = text.split_once("\r\n\r\n").ok_or_else(bad)?;
    let mut words = head.split(' ');
    let version = words.next().ok_or_else(bad)?;
    let status = words
        .next()
        .and_then(|code| code.parse().ok())
        .ok_or_else(bad)?;
    if !version.starts_with("HTTP/1.") {
        return Err(bad());
    }
    Ok(Response {
        status,
        body: body.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_read_or_refused() {
        let response = parse(b"HTTP/1.0 503 Service Unavailable\r\na: b\r\n\r\nwhy").unwrap();
        assert_eq!(
            response,
            Response {
                status: 503,
                body: "why".to_owned()
            }
        );
        for bad in ["", "SSH-2.0\r\n\r\n", "HTTP/1.1 x\r\n\r\n", "HTTP/1.1 200"] {
            assert!(parse(bad.as_bytes()).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_refusal_carries_the_words_of_the_node() {
        let body = crate::output::error_json("not_leader", "this node does not lead", "ask 2");
        let refusal = Response { status: 409, body }.json::<u32>().unwrap_err();
        assert_eq!((&*refusal.code, &*refusal.hint), ("not_leader", "ask 2"));
        let refusal = Response {
            status: 404,
            body: String::new(),
        }
        .json::<u32>()
        .unwrap_err();
        assert_eq!(refusal.message, "HTTP status 404");
    }
}
