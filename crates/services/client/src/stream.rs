//! Client for byte streams: writes lose and repeat nothing, and reads have no gaps.
//!
//! A [`StreamWriter`] buffers the bytes that are not known to be durable. After the loss of a
//! connection, a node or a leader, it sends them again from the position that the next node
//! reports. A [`StreamReader`] continues at any node from where it stopped.
//! `docs/spec/streams-client.md` specifies the protocol.
//!
//! ```no_run
//! use std::io::{Read as _, Write as _};
//! use quorate_client::stream::{OpenMode, Options, StreamReader, StreamWriter};
//!
//! let nodes = ["10.0.0.1:7453", "10.0.0.2:7453", "10.0.0.3:7453"];
//! let mut writer = StreamWriter::open(&nodes, "notes", OpenMode::Create, Options::default())?;
//! writer.write_all(b"three words here")?; // buffered until it is durable
//! let end = writer.finish()?; // everything is durable, and the stream is closed permanently
//!
//! let mut text = String::new();
//! let mut reader = StreamReader::new(&nodes, "notes", Options::default());
//! reader.read_to_string(&mut text)?;
//! assert_eq!(text.len() as u64, end);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Reading order: `window` (bytes that may be sent again, and positions that nodes may report),
//! `writer`, its `driver` (the thread that sends and reconnects), [`StreamReader`], [`Streams`]
//! (other requests); `link` is a connection, `nodes` selects the next node.

mod error;
mod link;
mod nodes;
mod reader;
mod requests;
mod window;
mod writer;

use std::time::Duration;

use crate::Login;

pub use error::{Error, Refusal};
use quorate_tls::ClientTrust;
pub use quorate_wire::streams::{ErrorCode, Retention};
pub use reader::{ReadEnd, StreamReader};
pub use requests::{StreamInfo, Streams};
pub use writer::{OpenMode, Progress, ProgressHandle, StreamWriter};

/// Timeouts, buffers and credentials of a stream client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Maximum number of buffered bytes, written but not known to be durable. A writer blocks when
    /// it is reached.
    pub buffer_bytes_max: usize,
    /// Timeout for connecting, including the handshake.
    pub connect_timeout: Duration,
    /// Time without progress after which a node that owes a response is abandoned.
    pub stall_timeout: Duration,
    /// Time without input after which a following reader repeats its request, because the node may
    /// have failed silently.
    pub silence_timeout: Duration,
    /// Time from the first failure until the client gives up if no attempt has ever succeeded.
    pub open: Duration,
    /// Time from the first failure until the client gives up if an attempt has succeeded before.
    pub give_up_timeout: Duration,
    /// Delay after every node has been tried once. Doubles with each further round.
    pub backoff_min: Duration,
    /// Maximum delay between two attempts.
    pub backoff_max: Duration,
    /// Certificate and authorities, for nodes that require TLS.
    pub tls: Option<ClientTrust>,
    /// Credentials; `None` to connect without.
    pub login: Option<Login>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            buffer_bytes_max: 64 << 20,
            connect_timeout: Duration::from_secs(2),
            stall_timeout: Duration::from_secs(10),
            silence_timeout: Duration::from_secs(30),
            open: Duration::from_secs(15),
            give_up_timeout: Duration::from_secs(60),
            backoff_min: Duration::from_millis(5),
            backoff_max: Duration::from_millis(500),
            tls: None,
            login: None,
        }
    }
}
