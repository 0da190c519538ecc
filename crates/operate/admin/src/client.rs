//! HTTP client for a node's admin address. All requests have a timeout and a size limit.

use std::{
    fs,
    io::{self, ErrorKind, Read, Write as _},
    net::{TcpStream, ToSocketAddrs as _},
    path::Path,
    sync::OnceLock,
    time::Duration,
};

use base64ct::{Base64, Encoding as _};
pub use quorate_tls::stream::NEEDS_TLS;
use quorate_tls::{ClientFiles, ClientTrust, TlsFilesError};
use serde::de::DeserializeOwned;
use ureq::{
    Agent, Body,
    config::{Config, ConfigBuilder},
    http::{
        HeaderValue, Request, Uri,
        header::{AUTHORIZATION, CONTENT_TYPE},
        request::Builder,
    },
    tls::{ClientCert, PemItem, PrivateKey, RootCerts, TlsConfig, TlsProvider, parse_pem},
    typestate::AgentScope,
};

use crate::view::ProgressView;

/// Maximum size of a response in bytes. A status is much smaller.
const RESPONSE_BYTES_MAX: u64 = 4 << 20;

/// Timeout of a probe after a failed request.
const PROBE_TIMEOUT: Duration = Duration::from_secs(1);

/// TLS configuration of this process. A process connects to a single cluster.
static TLS_CONFIG: OnceLock<TlsConfig> = OnceLock::new();

/// Makes all later requests use TLS with a certificate. Takes effect once per process.
pub fn use_certificate(files: &ClientFiles) -> Result<(), TlsFilesError> {
    // Loaded only for its error messages, which are more precise.
    ClientTrust::load(files)?;
    let certificates = |path: &Path| {
        let bytes =
            fs::read(path).map_err(|source| TlsFilesError::Io { path: path.to_owned(), source })?;
        let items = parse_pem(&bytes).filter_map(|item| match item {
            Ok(PemItem::Certificate(certificate)) => Some(certificate),
            _ => None,
        });
        Ok::<_, TlsFilesError>(items.collect::<Vec<_>>())
    };
    let key = fs::read(&files.key)
        .map_err(|source| TlsFilesError::Io { path: files.key.clone(), source })?;
    let key = PrivateKey::from_pem(&key).map_err(|_| TlsFilesError::InvalidContents {
        path: files.key.clone(),
        what: "it contains no private key".to_owned(),
    })?;
    let config = TlsConfig::builder()
        .provider(TlsProvider::Rustls)
        .unversioned_rustls_crypto_provider(quorate_tls::provider())
        .root_certs(RootCerts::new_with_certs(&certificates(&files.ca)?))
        .client_cert(Some(ClientCert::new_with_certs(&certificates(&files.cert)?, key)))
        .build();
    let _ = TLS_CONFIG.set(config);
    Ok(())
}

/// Basic authorization header that this process sends.
static LOGIN_HEADER: OnceLock<HeaderValue> = OnceLock::new();

/// Makes all later requests send a name and a password. Only the first call in a process has an
/// effect. Returns `false` if a header cannot represent them.
pub fn use_login(name: &str, password: &str) -> bool {
    let text = format!("Basic {}", Base64::encode_string(format!("{name}:{password}").as_bytes()));
    let Ok(mut value) = HeaderValue::from_str(&text) else {
        return false;
    };
    value.set_sensitive(true);
    let _ = LOGIN_HEADER.set(value);
    !name.contains(':')
}

/// Returns the suggested remedy for a connection that failed because of TLS.
pub fn tls_remedy(reason: &str) -> Option<&'static str> {
    const FOREIGN: &str = "the node's certificate was not signed by the authority in clients-ca.crt of --tls: use the files of this cluster";
    const REMEDIES: [(&str, &str); 8] = [
        (NEEDS_TLS, "add --tls with the folder from 'quorate cert client', or set QUORATE_TLS"),
        ("InvalidContentType", "the node does not speak TLS at this address: leave out --tls"),
        ("alert: CertificateExpired", "renew your certificate: quorate cert client NAME --renew"),
        (
            "received fatal alert",
            "the node does not accept your certificate: --tls is of another cluster",
        ),
        ("certificate expired", "renew the node's: quorate cert node N --renew --host HOST"),
        ("certificate: BadSignature", FOREIGN),
        ("certificate: UnknownIssuer", FOREIGN),
        ("invalid peer certificate", "check that --tls is of this cluster, and the node's hosts"),
    ];
    REMEDIES.iter().find(|(text, _)| reason.contains(text)).map(|(_, remedy)| *remedy)
}

/// Kind of program that appears to listen at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListenerKind {
    Tls,
    Http,
    Other,
}

/// Determines what listens at an address from its response to an invalid TLS handshake.
pub fn probe_listener(address: &str, wait: Duration) -> ListenerKind {
    // A record with an empty client hello. TLS answers with an alert, HTTP with a status.
    const HELLO: [u8; 9] = [0x16, 3, 1, 0, 4, 1, 0, 0, 0];
    let first = || {
        let place = address.to_socket_addrs()?.next().ok_or(ErrorKind::NotFound)?;
        let mut socket = TcpStream::connect_timeout(&place, wait)?;
        socket.set_read_timeout(Some(wait))?;
        socket.write_all(&HELLO)?;
        let mut first = [0];
        socket.read(&mut first).map(|_| first[0])
    };
    match first() {
        Ok(0x15) => ListenerKind::Tls,
        Ok(b'H') => ListenerKind::Http,
        _ => ListenerKind::Other,
    }
}

/// Returns a conversion for request errors that detects a node that expects TLS.
fn request_error(address: &str) -> impl FnOnce(ureq::Error) -> Error {
    move |error| {
        let error = Error::from(error);
        let reset = |error: &io::Error| error.kind() == ErrorKind::ConnectionReset;
        let is_cut_off = matches!(&error, Error::NotHttp(_))
            || matches!(&error, Error::Io(error) if reset(error));
        let is_plain = is_cut_off && TLS_CONFIG.get().is_none();
        match is_plain && probe_listener(address, PROBE_TIMEOUT) == ListenerKind::Tls {
            true => Error::NeedsTls,
            false => error,
        }
    }
}

/// Reason why a request received no response.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The connection could not be established, or it broke.
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("no answer in time")]
    TimedOut,
    #[error("the name has no address")]
    NoAddress,
    /// The peer's response is not HTTP.
    #[error("the answer is not HTTP")]
    NotHttp(#[source] ureq::Error),
    /// The node expects TLS, but the request was sent without.
    #[error("{NEEDS_TLS}")]
    NeedsTls,
    /// The response is larger than 4 MiB.
    #[error("the answer is too large")]
    TooLarge,
    /// The address does not have the form `HOST:PORT`.
    #[error("not an address: {0}")]
    BadAddress(String, #[source] ureq::http::Error),
}

impl From<ureq::Error> for Error {
    fn from(error: ureq::Error) -> Self {
        match error {
            // The peer closed the connection before the response was complete.
            ureq::Error::Io(error) if error.kind() == ErrorKind::UnexpectedEof => {
                Self::NotHttp(error.into())
            }
            ureq::Error::Io(error) => Self::Io(error),
            ureq::Error::Timeout(_) => Self::TimedOut,
            ureq::Error::HostNotFound => Self::NoAddress,
            ureq::Error::BodyExceedsLimit(_) => Self::TooLarge,
            other => Self::NotHttp(other),
        }
    }
}

/// HTTP response of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    pub status: u16,
    pub body: String,
}

impl Response {
    /// Parses the body as JSON. Returns the node's error if the response is one.
    pub fn parse_json<T: DeserializeOwned>(&self) -> Result<T, Refusal> {
        if self.status != 200 {
            return Err(Refusal::from_response(self, LOGIN_HEADER.get().is_some()));
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

/// Error reported by a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Refusal {
    /// Machine-readable error code.
    pub code: String,
    pub message: String,
    /// Suggested remedy. May be empty.
    pub hint: String,
    /// Id of the responding node, if the response contains it.
    pub node: Option<u32>,
    /// Progress of the activity that prevents the node from serving.
    pub progress: Option<Box<ProgressView>>,
}

impl Refusal {
    /// Returns whether the node rejects the user. All other nodes would do so, too.
    pub fn rejects_user(&self) -> bool {
        ["not_proved", "no_role", "forbidden", "needs_root"].contains(&&*self.code)
    }

    fn from_response(response: &Response, with_login: bool) -> Self {
        let document: serde_json::Value = serde_json::from_str(&response.body).unwrap_or_default();
        let field = |name: &str| document["error"][name].as_str().unwrap_or_default().to_owned();
        let (code, mut message, mut hint) = (field("code"), field("message"), field("hint"));
        if message.is_empty() {
            message = format!("HTTP status {}", response.status);
        }
        // A user with a password always has a role, so this means that the user is unknown.
        if with_login && code == "no_role" {
            "the name or the password is wrong".clone_into(&mut message);
            "check --login and the password; 'quorate user set' sets a new one"
                .clone_into(&mut hint);
        }
        let node = serde_json::from_value(document["node"].clone()).ok();
        let progress = serde_json::from_value(document["progress"].clone()).ok();
        Self { code, message, hint, node, progress }
    }
}

/// Sends `GET path` and returns the complete response.
pub fn get(address: &str, path: &str, wait: Duration) -> Result<Response, Error> {
    let request = with_login(Request::get(request_uri(address, path)?)).body(());
    read_response(
        single_use_agent(wait)
            .run(request.map_err(bad_address_error(address))?)
            .map_err(request_error(address))?,
    )
}

/// Sends `GET path` for a large response. Returns once the head has arrived, and the caller reads
/// the body. A response with a status other than 200 is read completely.
pub fn get_stream(
    address: &str,
    path: &str,
    wait: Duration,
) -> Result<Result<impl Read + Send + 'static, Response>, Error> {
    let config = agent_builder().timeout_connect(Some(wait)).timeout_recv_response(Some(wait));
    let request = with_login(Request::get(request_uri(address, path)?)).body(());
    let request = request.map_err(bad_address_error(address))?;
    let response = config.build().new_agent().run(request).map_err(request_error(address))?;
    match response.status().as_u16() {
        200 => Ok(Ok(response.into_body().into_reader())),
        _ => read_response(response).map(Err),
    }
}

/// Sends `POST path` with a JSON body.
pub fn post(address: &str, path: &str, body: &str, wait: Duration) -> Result<Response, Error> {
    let request = with_login(Request::post(request_uri(address, path)?));
    let request = request.header(CONTENT_TYPE, "application/json");
    let request = request.body(body).map_err(bad_address_error(address))?;
    read_response(single_use_agent(wait).run(request).map_err(request_error(address))?)
}

/// Adds the authorization header if the process has a login.
fn with_login(request: Builder) -> Builder {
    match LOGIN_HEADER.get() {
        Some(login) => request.header(AUTHORIZATION, login),
        None => request,
    }
}

fn request_uri(address: &str, path: &str) -> Result<Uri, Error> {
    let scheme = if TLS_CONFIG.get().is_some() { "https" } else { "http" };
    let uri = Uri::builder().scheme(scheme).authority(address);
    uri.path_and_query(path).build().map_err(bad_address_error(address))
}

fn bad_address_error(address: &str) -> impl FnOnce(ureq::http::Error) -> Error {
    |error| Error::BadAddress(address.to_owned(), error)
}

/// Returns an agent for one request, on a new connection that ignores proxy environment variables.
fn single_use_agent(wait: Duration) -> Agent {
    let config = agent_builder().timeout_global(Some(wait));
    config.build().new_agent()
}

fn agent_builder() -> ConfigBuilder<AgentScope> {
    let config = Config::builder()
        .http_status_as_error(false)
        .max_redirects(0)
        .proxy(None)
        .max_idle_connections(0);
    match TLS_CONFIG.get() {
        Some(tls) => config.tls_config(tls.clone()),
        None => config,
    }
}

fn read_response(mut answer: ureq::http::Response<Body>) -> Result<Response, Error> {
    let body = answer.body_mut().with_config().limit(RESPONSE_BYTES_MAX);
    Ok(Response { body: body.read_to_string()?, status: answer.status().as_u16() })
}

#[cfg(test)]
mod tests {
    use std::{
        io::{BufRead as _, BufReader},
        net::TcpListener,
        thread,
    };

    use super::*;

    const WAIT: Duration = Duration::from_secs(20);

    /// Starts a server that sends `bytes` to the first client and closes the connection.
    fn serve_once(bytes: Vec<u8>) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        thread::spawn(move || {
            let (client, _) = listener.accept().unwrap();
            let mut client = BufReader::new(client);
            let mut line = String::new();
            while line != "\r\n" {
                line.clear();
                client.read_line(&mut line).unwrap();
            }
            // The client may close before it has read everything.
            let _ = client.get_mut().write_all(&bytes);
        });
        address
    }

    #[test]
    fn responses_are_parsed_or_refused() {
        let get = |bytes: &[u8]| get(&serve_once(bytes.to_vec()), "/status", WAIT);
        let response = get(b"HTTP/1.0 503 Service Unavailable\r\na: b\r\n\r\nwhy").unwrap();
        assert_eq!((response.status, &*response.body), (503, "why"));
        for bad in ["", "SSH-2.0\r\n\r\n", "HTTP/1.1 x\r\n\r\n", "HTTP/1.1 200"] {
            let refused = get(bad.as_bytes()).unwrap_err();
            assert!(matches!(refused, Error::NotHttp(_)), "{bad}: {refused:?}");
        }
        let mut large = b"HTTP/1.0 200 OK\r\n\r\n".to_vec();
        large.resize(5 << 20, b'x');
        assert!(matches!(get(&large), Err(Error::TooLarge)));
    }

    /// A node with TLS closes the connection, and sends an alert to a handshake.
    #[test]
    fn a_node_that_expects_tls_is_recognised() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (mut stream, mut bytes) = (stream.unwrap(), [0; 4096]);
                let count = stream.read(&mut bytes).unwrap();
                if bytes[..count].starts_with(&[0x16, 3]) {
                    stream.write_all(b"\x15\x03\x03\x00\x02\x02\x32").unwrap();
                }
            }
        });
        assert_eq!(get(&address, "/status", WAIT).unwrap_err().to_string(), NEEDS_TLS);
    }

    #[test]
    fn unreachable_node_is_an_error_with_its_reason() {
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = silent.local_addr().unwrap().to_string();
        // This listener accepts connections but never responds.
        let short = Duration::from_millis(50);
        assert!(matches!(get(&address, "/", short), Err(Error::TimedOut)));
        drop(silent);
        let refused = get(&address, "/", WAIT).unwrap_err();
        assert_eq!(refused.to_string(), "Connection refused (os error 111)");
        assert!(matches!(get("a b", "/", WAIT), Err(Error::BadAddress(..))));
    }

    #[test]
    fn refusal_has_the_code_message_and_hint_of_the_node() {
        let body = crate::error::error_json("not_leader", "this node does not lead", "ask 2");
        let refusal = Response { status: 409, body }.parse_json::<u32>().unwrap_err();
        assert_eq!((&*refusal.code, &*refusal.hint), ("not_leader", "ask 2"));
        let body = crate::error::error_json("no_role", "ann has no role", "ask");
        let wrong = Refusal::from_response(&Response { status: 401, body }, true);
        assert_eq!(wrong.message, "the name or the password is wrong");
        assert!(wrong.rejects_user() && wrong.hint.contains("--login"), "{wrong:?}");
        let refusal =
            Response { status: 404, body: String::new() }.parse_json::<u32>().unwrap_err();
        assert_eq!(refusal.message, "HTTP status 404");
    }
}
