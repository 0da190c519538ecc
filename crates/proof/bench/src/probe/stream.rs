//! The bulk path of byte streams performed by bare programs (client, leader and one follower),
//! without a protocol.
//!
//! The leader receives the client's bytes, forwards them as they arrive, and writes them with
//! direct I/O to a file whose blocks were written in advance. When a unit is on disk, it writes a
//! record to another file, so that data precedes its record. It reports how many bytes are durable
//! both here and at the follower. The follower does the same without forwarding. There are no
//! ballots, checksums or elections, and no failures are handled.

pub mod node;

use std::{fs, io, path::Path, time::Duration};

use quorate_testbed::usage::ResourceUsage;

use super::{
    commit::SYSTEM_NAME,
    part::{PartLauncher, PartProcess},
};
use crate::repetition::{GENERATOR_ROLE, RoleUsage};
use crate::row::RowSetting;

/// Maximum number of bytes covered by one record. It is the size of one write with direct I/O.
pub const UNIT_BYTES: usize = 256 << 10;

/// System name in rows about the sink.
pub const SINK_SYSTEM: &str = "sink";

/// Disk and number of nodes of the bare programs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StreamShape {
    /// Set if both nodes write and flush all data. Otherwise no data is written.
    pub is_durable: bool,
    /// Simulated flush time; zero for the real disk.
    pub flush_time: Duration,
    /// Set if a follower runs. Without one, the leader acknowledges on its own, and is a sink if it
    /// does not write either.
    pub has_follower: bool,
}

impl StreamShape {
    /// Shape of the sink, which accepts bytes and discards them.
    pub const SINK: Self =
        Self { is_durable: false, flush_time: Duration::ZERO, has_follower: false };

    /// Returns the system name shown in this shape's rows.
    pub const fn system_name(&self) -> &'static str {
        if self.has_follower { SYSTEM_NAME } else { SINK_SYSTEM }
    }

    /// Returns the parameters of this shape's rows. `like` belongs to another system under the same
    /// load.
    pub fn row_setting(&self, like: RowSetting) -> RowSetting {
        RowSetting {
            scenario: "probe".to_owned(),
            system: self.system_name().to_owned(),
            store: "none".to_owned(),
            ..like
        }
    }
}

/// Leader and follower processes, which serve a single client.
#[derive(Debug)]
pub struct BareStreamPrograms {
    leader: PartProcess,
    follower: Option<PartProcess>,
}

impl BareStreamPrograms {
    /// Starts the leader and, if the shape has one, the follower. Their files in `folder` overwrite
    /// any earlier ones.
    pub fn start(launcher: &PartLauncher, folder: &Path, shape: StreamShape) -> io::Result<Self> {
        let arguments = |name: &str| {
            let folder = folder.join(name);
            if shape.is_durable {
                if folder.exists() {
                    fs::remove_dir_all(&folder)?;
                }
                fs::create_dir_all(&folder)?;
            }
            let shown =
                if shape.is_durable { folder.display().to_string() } else { "-".to_owned() };
            let flush = shape.flush_time.as_micros().to_string();
            Ok::<_, io::Error>(vec!["stream-node".to_owned(), shown, flush])
        };
        let mut of_leader = arguments("stream-leader")?;
        let mut follower = None;
        if shape.has_follower {
            let part = launcher.start(&arguments("stream-follower")?)?;
            of_leader.push(part.address.to_string());
            follower = Some(part);
        }
        let leader = launcher.start(&of_leader)?;
        Ok(Self { leader, follower })
    }

    /// Returns the address for the client. It accepts bytes and returns counts, as the raw stream
    /// port of a node does.
    pub fn address(&self) -> std::net::SocketAddr {
        self.leader.address
    }

    /// Returns the total resource usage of the node processes and of this process.
    pub fn role_usages(&self) -> Vec<RoleUsage> {
        let role = |role: &str, process| RoleUsage {
            role: role.to_owned(),
            usage: ResourceUsage::of_processes(&[process]),
        };
        let follower = self.follower.as_ref();
        let mut roles = vec![role("leader", self.leader.id())];
        roles.extend(follower.map(|part| role("followers", part.id())));
        roles.push(role(GENERATOR_ROLE, std::process::id()));
        roles
    }
}
