//! The bulk path as a bare program: client, leader, one follower, and no protocol.
//!
//! The leader takes the client's bytes, forwards them as they arrive, and writes them past the page
//! cache over a file that was written before; when a unit is on the disk, so that data precedes its
//! record, it writes a record into another file; and reports how many bytes are durable here and at
//! the follower. The follower does the same, and forwards nothing. There are no ballots, no
//! checksums, no elections, and nothing can fail.

pub mod node;

use std::{fs, io, path::Path, time::Duration};

use quorate_testbed::usage::Usage;

use super::{
    commit::SYSTEM,
    part::{Launcher, Part},
};
use crate::repetition::{GENERATOR, RoleUsage};
use crate::row::Setting;

/// Bytes that get a record of their own, at most: all of a write past the page cache.
pub const UNIT_BYTES: usize = 256 << 10;

/// Name of a sink's rows.
pub const SINK: &str = "sink";

/// On which disk, and how many nodes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shape {
    /// Both write and flush; otherwise nothing is written.
    pub durable: bool,
    /// The modelled time of a flush; zero is this disk, unmodelled.
    pub flush: Duration,
    /// Without one the leader takes bytes and says that it did: with nothing written, a sink.
    pub follower: bool,
}

impl Shape {
    /// Takes bytes and forgets them.
    pub const SINK: Self = Self { durable: false, flush: Duration::ZERO, follower: false };

    /// Returns the name of its rows.
    pub const fn system(&self) -> &'static str {
        if self.follower { SYSTEM } else { SINK }
    }

    /// A row of that, where `like` is another system's under the same load.
    pub fn setting(&self, like: Setting) -> Setting {
        Setting {
            scenario: "probe".to_owned(),
            system: self.system().to_owned(),
            store: "none".to_owned(),
            ..like
        }
    }
}

/// Leader and follower as processes. They serve one client.
#[derive(Debug)]
pub struct Bare {
    leader: Part,
    follower: Option<Part>,
}

impl Bare {
    /// Starts both, or the leader alone. Their files are made in the folder, over those of earlier
    /// ones.
    pub fn start(launcher: &Launcher, folder: &Path, shape: Shape) -> io::Result<Self> {
        let arguments = |name: &str| {
            let folder = folder.join(name);
            if shape.durable {
                if folder.exists() {
                    fs::remove_dir_all(&folder)?;
                }
                fs::create_dir_all(&folder)?;
            }
            let shown = if shape.durable { folder.display().to_string() } else { "-".to_owned() };
            let flush = shape.flush.as_micros().to_string();
            Ok::<_, io::Error>(vec!["stream-node".to_owned(), shown, flush])
        };
        let mut of_leader = arguments("stream-leader")?;
        let mut follower = None;
        if shape.follower {
            let part = launcher.start(&arguments("stream-follower")?)?;
            of_leader.push(part.address.to_string());
            follower = Some(part);
        }
        let leader = launcher.start(&of_leader)?;
        Ok(Self { leader, follower })
    }

    /// Returns the client's address: bytes in, counts out, as at the raw port of a node.
    pub fn address(&self) -> std::net::SocketAddr {
        self.leader.address
    }

    /// Returns the usage until now of its processes, and of this one.
    pub fn usages(&self) -> Vec<RoleUsage> {
        let role = |role: &str, process| RoleUsage {
            role: role.to_owned(),
            usage: Usage::of_processes(&[process]),
        };
        let follower = self.follower.as_ref();
        let mut roles = vec![role("leader", self.leader.id())];
        roles.extend(follower.map(|part| role("followers", part.id())));
        roles.push(role(GENERATOR, std::process::id()));
        roles
    }
}
