//! CLIENT REPLY: the replies that a client wants. Messages of subscriptions, and their
//! confirmations, are sent in any case, as in Redis.

use super::Connection;
use crate::{command::SYNTAX, front::shared::Shared, resp::request::Arguments};

/// The replies that a connection wants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Quiet {
    /// All.
    #[default]
    No,
    /// All but the next.
    Once,
    /// None, until it says otherwise.
    Yes,
}

impl Quiet {
    /// Counts a request; returns whether its reply is suppressed.
    pub(super) const fn next(&mut self) -> bool {
        match self {
            Self::No => false,
            Self::Once => {
                *self = Self::No;
                true
            }
            Self::Yes => true,
        }
    }
}

impl Connection {
    /// CLIENT REPLY.
    pub(super) fn hush(&mut self, arguments: &Arguments<'_>, shared: &mut Shared) {
        if self.multi.is_some() {
            let text =
                "ERR CLIENT REPLY is not allowed in a transaction: replies of EXEC come together";
            return self.refuse(text, shared);
        }
        match &*arguments.at(2).to_ascii_lowercase() {
            b"on" => {
                self.quiet = Quiet::No;
                self.order.silent = false;
                self.reply(shared, |r| r.ok());
            }
            b"off" => self.quiet = Quiet::Yes,
            // One that wants none does not get more by this.
            b"skip" if self.quiet == Quiet::Yes => {}
            b"skip" => self.quiet = Quiet::Once,
            _ => self.refuse(SYNTAX, shared),
        }
    }
}
