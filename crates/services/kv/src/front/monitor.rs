//! MONITOR: sends each command from this node's clients to all monitors, as a line. A command is
//! formatted once for all monitors, and only if there are any.

use std::collections::BTreeSet;

use quorate_replica::front::ConnectionId;

use super::{buffers::clear_buffer, slow::CommandNote};
use crate::{
    command::{Handler, Local, Spec},
    resp::request::{self, Arguments},
    store::Database,
};

/// Maximum number of unsent bytes of a monitor, and of bytes of lines per turn. Beyond it, a
/// monitor is disconnected, since otherwise it would miss lines without notice.
pub(super) const UNSENT_BYTES_MAX: usize = 1024 * 1024;
pub(super) const MONITOR_TOO_SLOW: &str =
    "ERR MONITOR ended: this client reads too slowly, or the node has no memory for more lines";

#[derive(Debug, Default)]
pub(super) struct Monitors {
    watchers: BTreeSet<ConnectionId>,
    /// Lines to send.
    lines: Vec<u8>,
    /// Number of monitors disconnected since the start because they read too slowly.
    pub(super) disconnected_count: u64,
}

impl Monitors {
    #[inline]
    pub(super) fn has_monitors(&self) -> bool {
        !self.watchers.is_empty()
    }

    pub(super) fn count(&self) -> usize {
        self.watchers.len()
    }

    pub(super) fn add_monitor(&mut self, connection: ConnectionId) {
        self.watchers.insert(connection);
    }

    pub(super) fn remove_monitor(&mut self, connection: ConnectionId) {
        self.watchers.remove(&connection);
        if self.watchers.is_empty() {
            self.lines = Vec::new();
        }
    }

    pub(super) fn connections(&self) -> Vec<ConnectionId> {
        self.watchers.iter().copied().collect()
    }

    pub(super) const fn has_lines(&self) -> bool {
        !self.lines.is_empty()
    }

    pub(super) fn take_lines(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.lines)
    }

    /// Reuses the buffer of sent lines.
    pub(super) fn reuse_buffer(&mut self, mut lines: Vec<u8>) {
        if self.has_monitors() {
            clear_buffer(&mut lines);
            self.lines = lines;
        }
    }

    /// Adds a command from the client with the address `peer`, formatted as in Redis.
    pub(super) fn add_command(
        &mut self,
        (database, peer): (Database, &str),
        now_ms: u64,
        arguments: &Arguments<'_>,
    ) {
        // A monitor that gets more than this is disconnected anyway.
        if self.lines.len() >= UNSENT_BYTES_MAX {
            return;
        }
        let (seconds, micros) = (now_ms / 1000, now_ms % 1000 * 1000);
        let database = database.number();
        let mut line = format!("+{seconds}.{micros:06} [{database} {peer}]");
        for word in CommandNote::from_arguments(arguments).0 {
            line.push(' ');
            request::quote(&word, &mut line);
        }
        line.push_str("\r\n");
        self.lines.extend_from_slice(line.as_bytes());
    }
}

/// Returns whether a command is hidden from monitors, because it contains passwords or concerns the
/// node rather than its data.
pub(super) const fn is_hidden(spec: &Spec) -> bool {
    matches!(
        spec.handler,
        Handler::Local(
            Local::Auth
                | Local::Hello
                | Local::Acl
                | Local::Config
                | Local::Slowlog
                | Local::Latency
                | Local::Monitor
        )
    )
}

/// Returns the name of an inner command, as in `QUORATE SEQ number …` or `COMMAND GETKEYS …`.
pub(super) fn inner_command_name<'a>(spec: &Spec, arguments: &Arguments<'a>) -> Option<&'a [u8]> {
    let at = match spec.handler {
        Handler::Local(Local::Quorate) => 3,
        Handler::Local(Local::Command) => 2,
        _ => return None,
    };
    Some(arguments.at(at))
}
