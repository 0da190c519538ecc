//! Byte streams of a cluster: written so that nothing is lost or repeated, read without a gap.
//!
//! A [`StreamWriter`] keeps what is not known to be durable and sends it again, from the exact
//! position that a node names, when a connection, a node or a leader is lost. A [`StreamReader`]
//! goes on where it was, at any node. `docs/spec/streams-client.md` has the protocol.
//!
//! ```no_run
//! use std::io::{Read as _, Write as _};
//! use quorate_client::stream::{How, Options, StreamReader, StreamWriter};
//!
//! let nodes = ["10.0.0.1:7453", "10.0.0.2:7453", "10.0.0.3:7453"];
//! let mut writer = StreamWriter::open(&nodes, "notes", How::Create, Options::default())?;
//! writer.write_all(b"three words here")?; // kept here until it is durable
//! let end = writer.finish()?; // all of it is durable, and the stream ends there for good
//!
//! let mut text = String::new();
//! let mut reader = StreamReader::new(&nodes, "notes", Options::default());
//! reader.read_to_string(&mut text)?;
//! assert_eq!(text.len() as u64, end);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Reading order: `window` (what may have to be sent again, and which positions make sense),
//! `writer`, its `driver` (the thread that sends and comes back), [`StreamReader`], [`Streams`]
//! (all other requests); `link` is one connection, `nodes` says which is next.

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
pub use quorate_wire::streams::{Code, Keep};
pub use reader::{End, StreamReader};
pub use requests::{Info, Streams};
pub use writer::{How, Progress, StreamWriter, Watch};

/// Time-outs and buffers of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Most bytes that are written and not known to be durable; a writer waits when there are so
    /// many.
    pub buffer: usize,
    /// To connect, and to learn whom to.
    pub attempt: Duration,
    /// A node that owes an answer, and says nothing and takes nothing for so long, is left.
    pub stall: Duration,
    /// A reader that follows and hears nothing for so long asks again: its node may be gone without
    /// a word.
    pub silence: Duration,
    /// From the first failure to giving up, before anything worked.
    pub open: Duration,
    /// From the first failure to giving up, later on.
    pub patience: Duration,
    /// The first wait after all nodes were tried; it doubles with each further round.
    pub backoff_min: Duration,
    /// The longest wait between two attempts.
    pub backoff_max: Duration,
    /// Certificate and authorities, for nodes that ask for TLS.
    pub tls: Option<ClientTrust>,
    /// User name and password.
    pub login: Option<Login>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            buffer: 64 << 20,
            attempt: Duration::from_secs(2),
            stall: Duration::from_secs(10),
            silence: Duration::from_secs(30),
            open: Duration::from_secs(15),
            patience: Duration::from_secs(60),
            backoff_min: Duration::from_millis(5),
            backoff_max: Duration::from_millis(500),
            tls: None,
            login: None,
        }
    }
}
