//! Error replies to requests that are not executed.

use std::borrow::Cow;

use quorate_replica::front::Failure;

use crate::resp::reply::Reply;

/// Error for a request refused because the memory limit of all clients is reached.
pub(super) const MEMORY_IS_FULL: &str = "BUSY not executed: replies and requests of all clients fill the memory that this \
    node has for them (--client-memory)";

/// Returns the error text for a failed request. The codes in capitals are part of the interface.
pub(super) fn failure_text(failure: Failure) -> Cow<'static, str> {
    let text = match failure {
        Failure::Busy => "BUSY not executed: too much is in flight; try again later",
        Failure::NoQuorum => "NOQUORUM not executed: no leader with a quorum was found in time",
        Failure::TooBig => {
            "TOOBIG not executed: the command is larger than --command-max, or would take more than 1048576 visits \
             of elements (docs/commands.md); send less at a time"
        }
        Failure::Stopping => "NOQUORUM not executed: this node is stopping; use another one",
        Failure::Removed => {
            "NOQUORUM not executed: this node was removed from the cluster; connect to another"
        }
        Failure::Voteless => {
            "NOQUORUM not executed: this node cannot vote, since its log failed, or its device does not answer or \
             lost votes (`quorate status` says which); use another one"
        }
        Failure::Unavailable => {
            "NOQUORUM not executed: the store of this node cannot work; use another one"
        }
        Failure::DiskFull(node) => {
            return format!(
                "DISKFULL not executed: the disk of node {node} is full, and others may be \
                 (`quorate status` names each); free space, or remove data: DEL, UNLINK, FLUSHALL and the like \
                 still work while its reserve lasts"
            )
            .into();
        }
        Failure::Diverged => {
            "DIVERGED not executed: this node and others have different data, and this one may be wrong; use \
             another one, and see docs/operate/divergence.md"
        }
        Failure::Unknown => "UNKNOWN may have been executed, or may yet be; read before repeating",
        Failure::NoSession => {
            "NOSESSION not executed now: the session is unknown or has expired; \
             a number that was sent before may have been executed then"
        }
        Failure::ReplyForgotten => {
            "REPLYFORGOTTEN executed before; the reply was acknowledged and is gone"
        }
        Failure::SessionFull => {
            "SESSIONFULL not executed: too many sequences are open; acknowledge some"
        }
        Failure::Stale => {
            "STALE not executed: it was not confirmed in time that what this node has is within the bound; \
             ask another node, allow more, or take what is here with QUORATE READ stale"
        }
        Failure::Level => {
            "LEVEL not executed: the cluster does not use the feature level of this command yet; upgrade all \
             nodes, then `quorate member feature --raise`"
        }
        Failure::NotLasting => {
            "NOTDURABLE executed, but not known in time to be on the disks of a quorum; it will be, unless too many \
             nodes lose their memory before"
        }
        Failure::Overtaken => {
            "BUSY not executed: the leader changed while this was read; try again"
        }
    };
    text.into()
}

/// Returns the error reply for a failure.
pub(super) fn failure_reply(failure: Failure) -> Vec<u8> {
    let mut reply = Vec::new();
    Reply(&mut reply).error(&failure_text(failure));
    reply
}

pub(super) fn too_big(bytes_max: usize) -> String {
    format!("TOOBIG not executed: a command may have {bytes_max} bytes (--command-max)")
}

/// Returns a byte as a character that can be part of an error text.
pub(super) fn printable(byte: u8) -> char {
    if byte.is_ascii_graphic() && byte != b'\'' { char::from(byte) } else { '?' }
}
