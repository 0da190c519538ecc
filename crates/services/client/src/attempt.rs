//! Classifies the reply to an attempt: done, retry, or session lost.

use crate::{error::Error, reply::Reply};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The command is complete, with this outcome for the caller.
    Done(Result<Reply, Error>),
    /// Retry the command under the same number.
    Retry {
        /// Set if this attempt may have executed the command.
        may_have_run: bool,
        /// Set if another node may succeed.
        try_other_node: bool,
        /// Error text of the node.
        text: String,
    },
    /// The session has expired, and this attempt executed nothing.
    SessionLost,
}

/// Classifies a reply. The first word of an error reply is its code.
pub(crate) fn classify_reply(reply: Reply) -> Verdict {
    let text = match reply {
        Reply::Error(text) => text,
        reply => return Verdict::Done(Ok(reply)),
    };
    let again = |doubt, elsewhere, text| Verdict::Retry {
        may_have_run: doubt,
        try_other_node: elsewhere,
        text,
    };
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
        match classify_reply(Reply::Error(text.to_owned())) {
            Verdict::Retry { may_have_run: doubt, try_other_node: elsewhere, .. } => {
                (doubt, elsewhere)
            }
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
        assert_eq!(
            classify_reply(Reply::Error(text.clone())),
            Verdict::Done(Err(Error::Refused(text)))
        );
        assert_eq!(classify_reply(Reply::Error("NOSESSION gone".to_owned())), Verdict::SessionLost);
        assert_eq!(classify_reply(Reply::Nil), Verdict::Done(Ok(Reply::Nil)));
    }
}
