//! A node's client address, with the credentials with which client and node authenticate each
//! other.

use std::{
    io::{self, Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

use quorate_client::Login;
use quorate_node::log_service::{
    classes::AnswerClass,
    frames::{self, CommandStatus},
    introduction::ClientProtocol,
};
use quorate_tls::{ClientTrust, stream::Stream};

const ANSWER_BYTES_MAX: usize = 512;

/// Client address of a node, with credentials and the durability class to request.
#[derive(Clone, Debug)]
pub struct ClientAddress {
    address: SocketAddr,
    /// `HOST:PORT` as given by the user; a certificate must name the host.
    name: String,
    tls_trust: Option<ClientTrust>,
    login: Option<Login>,
    /// Requested durability class, and the protocol used to request it.
    class: (AnswerClass, ClientProtocol),
}

impl From<SocketAddr> for ClientAddress {
    fn from(address: SocketAddr) -> Self {
        Self::with_host_name(address, &address.to_string(), None)
    }
}

impl ClientAddress {
    /// Returns the door at `address`, whose certificate must name the host in `name`. With `trust`,
    /// client and node authenticate each other.
    pub fn with_host_name(address: SocketAddr, name: &str, trust: Option<&ClientTrust>) -> Self {
        Self {
            address,
            name: name.to_owned(),
            tls_trust: trust.cloned(),
            login: None,
            class: (AnswerClass::Group, ClientProtocol::Resp),
        }
    }

    /// Sets the durability class of acknowledgements, and the protocol used to request it.
    #[must_use]
    pub fn with_class(self, asked: AnswerClass, speaks: ClientProtocol) -> Self {
        let class = (asked, speaks);
        Self { class, ..self }
    }

    /// Sets the user to log in as, using the Redis protocol.
    #[must_use]
    pub fn with_login(self, login: Option<Login>) -> Self {
        Self { login, ..self }
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Connects, logs in and requests the class. `wait` limits the connection, the handshake and
    /// each command separately.
    pub fn connect(&self, wait: Duration) -> io::Result<Stream> {
        let socket = TcpStream::connect_timeout(&self.address, wait)?;
        socket.set_nodelay(true)?;
        let trust = self.tls_trust.as_ref();
        let session = trust.map(|trust| trust.session_to_address(&self.name));
        let is_secured = session.is_some();
        let stream = Stream::new(socket, session.transpose().map_err(io::Error::other)?);
        if is_secured {
            stream.handshake_within(wait)?;
        }
        if let Some(login) = &self.login {
            log_in(&stream, login, wait)?;
        }
        match self.class {
            (AnswerClass::Group, _) => {}
            (asked, speaks) => request_class(&stream, asked, speaks, wait)?,
        }
        Ok(stream)
    }
}

/// Sends AUTH as the first command, so that the first reply belongs to it.
fn log_in(mut stream: &Stream, login: &Login, wait: Duration) -> io::Result<()> {
    let Login { name, password } = login;
    let (name_bytes, password_bytes) = (name.len(), password.len());
    set_timeout(stream, wait)?;
    write!(
        stream,
        "*3\r\n$4\r\nAUTH\r\n${name_bytes}\r\n{name}\r\n${password_bytes}\r\n{password}\r\n"
    )?;
    expect_ok(stream, "AUTH")
}

/// Switches the connection to acknowledgements at this class ([class-2]).
fn request_class(
    mut stream: &Stream,
    asked: AnswerClass,
    speaks: ClientProtocol,
    wait: Duration,
) -> io::Result<()> {
    set_timeout(stream, wait)?;
    match speaks {
        ClientProtocol::Resp => {
            write!(stream, "QUORATE CLASS {}\r\n", asked.name())?;
            expect_ok(stream, "QUORATE CLASS")
        }
        ClientProtocol::Frames => {
            stream.write_all(asked.as_word())?;
            let mut expected = Vec::new();
            frames::append_reply(CommandStatus::Done, asked.name().as_bytes(), &mut expected);
            let mut answer = vec![0; expected.len()];
            stream.read_exact(&mut answer)?;
            if answer == expected {
                return Ok(());
            }
            Err(io::Error::other("no answer to CLASS"))
        }
    }
}

fn set_timeout(stream: &Stream, wait: Duration) -> io::Result<()> {
    stream.socket().set_write_timeout(Some(wait))?;
    stream.socket().set_read_timeout(Some(wait))
}

/// Reads one reply of the Redis protocol and fails unless it is `OK`.
fn expect_ok(mut stream: &Stream, word: &str) -> io::Result<()> {
    let mut answer = [0; ANSWER_BYTES_MAX];
    let mut filled = 0;
    while !answer[..filled].ends_with(b"\r\n") {
        match stream.read(&mut answer[filled..])? {
            // The node closed the connection, or the reply is too long.
            0 => return Err(io::Error::other(format!("no answer to {word}"))),
            count => filled += count,
        }
    }
    let said = String::from_utf8_lossy(&answer[..filled]);
    match said.trim_end() {
        "+OK" => Ok(()),
        said => Err(io::Error::other(said.trim_start_matches('-').to_owned())),
    }
}
