//! Blocking clients of a cluster: one for the key-value service, which neither loses nor repeats a
//! command, and one for byte streams.
//!
//! Redis clients also work with a cluster, but after a broken connection they cannot tell which
//! commands were executed. This client registers a session, numbers its commands, and retries an
//! unanswered one *under its number* at any node: the cluster executes each number once and returns
//! the stored reply to a retry ([session-2]).
//!
//! ```no_run
//! use quorate_client::{Client, Options};
//!
//! let mut client = Client::new(&["127.0.0.1:7450", "127.0.0.1:7460"], Options::default());
//! client.run(&[b"INCR", b"visits"])?; // exactly once, whatever happens to nodes and connections
//! let visits = client.read(&[b"GET", b"visits"])?; // a linearizable read
//! # Ok::<(), quorate_client::Error>(())
//! ```
//!
//! [`stream`] writes and reads byte streams with the same guarantee: each byte once, in order.
//!
//! Reading order: [`client`], `attempt` (classification of replies), `link` (one connection),
//! [`reply`].
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod attempt;
pub mod client;
mod database;
pub mod error;
mod link;
mod login;
mod open;
pub mod reply;
pub mod stream;

pub use client::{Client, Options};
pub use error::Error;
pub use login::Login;
pub use open::Transaction;
pub use reply::Reply;
pub use stream::{StreamReader, StreamWriter};
