//! Classifies the reply to an attempt: done, retry, or session lost.

use crate::{error::Error, reply::Reply};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The command is complete, with this outcome for the caller.
    Done(Result<Reply, Error>),
    /// Retry the command under the same number.
    Again {
        /// Set if this attempt may have executed the command.
        doubt: bool,
        /// Set if another node may succeed.
        elsewhere: bool,
        /// Error text of the node.
        text: String,
    },
    /// The session has expired, and this attempt executed nothing.
    SessionLost,
}

/// Classifies a reply. The first word of an error reply is its code.
pub(crate) fn judge(reply: Reply) -> Verdict {
    let text = match reply {
        Reply::Error(text) => text,
        reply => return Verdict::Done(Ok(reply)),
    };
    let again = |doubt, elsewhere, text| Verdict::Again { doubt, elsewhere, text };
    match text.split(' ').next().unwrap_or_default() {
        "BUSY" | "SESSIONFULL" => again(false, false, text),
        "NOQUORUM" | "STALE" => again(false, true, text),
        "UNKNOWN" => again(true, true, text),
        "NOSESSION" => Verdict::SessionLost,
        "REPLYFORGOTTEN" => Verdict::Done(Err(Error::ReplyForgotten)),
        _ => Verdict::Done(Err(Error::Refused(text))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str) -> (bool, bool) {
        match judge(Reply::Error(text.to_owned())) {
            Verdict::Again { doubt, elsewhere, .. } => (doubt, elsewhere),
            verdict => panic!("{text}: {verdict:?}"),
        }
    }

    #[test]
    fn only_an_unknown_outcome_is_doubtful() {
        assert_eq!(check("BUSY queues are full"), (false, false));
        assert_eq!(check("NOQUORUM no leader"), (false, true));
        assert_eq!(check("UNKNOWN may have been executed"), (true, true));
    }

    #[test]
    fn an_error_of_the_service_is_final() {
        let text = "WRONGTYPE not a string".to_owned();
        assert_eq!(judge(Reply::Error(text.clone())), Verdict::Done(Err(Error::Refused(text))));
        assert_eq!(judge(Reply::Error("NOSESSION gone".to_owned())), Verdict::SessionLost);
        assert_eq!(judge(Reply::Nil), Verdict::Done(Ok(Reply::Nil)));
    }
}
