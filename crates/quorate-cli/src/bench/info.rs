//! What a running cluster says of itself: rows must not call it something else.

use std::time::Duration;

use quorate_client::{Client, Options};

use crate::output::Problem;

/// It answers within this time, or nothing is known.
const WAIT: Duration = Duration::from_secs(3);

/// Class and store, as far as they are known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Info {
    pub(super) durability: Option<String>,
    pub(super) store: Option<String>,
}

impl Info {
    /// Asks with INFO. Somebody else's Redis does not know, and need not.
    pub(super) fn ask(addresses: &[String]) -> Self {
        let options = Options {
            deadline: WAIT,
            ..Options::default()
        };
        let reply = Client::new(addresses, options).ask(&[b"INFO"]);
        let text = reply
            .ok()
            .and_then(|reply| reply.bytes().map(<[u8]>::to_vec));
        text.map_or_else(Self::default, |text| {
            Self::parse(&String::from_utf8_lossy(&text))
        })
    }

    fn parse(text: &str) -> Self {
        let field = |name: &str| {
            let mut fields = text.lines().filter_map(|line| line.split_once(':'));
            let (_, value) = fields.find(|(key, _)| *key == name)?;
            Some(value.trim().to_owned())
        };
        Self {
            durability: field("quorate_durability"),
            store: field("quorate_store"),
        }
    }

    /// What a flag said must be what the cluster says.
    pub(super) fn check(
        flag: &str,
        given: Option<&str>,
        known: Option<&str>,
    ) -> Result<(), Problem> {
        match (given, known) {
            (Some(given), Some(known)) if given != known => Err(Problem::usage(format_args!(
                "--{flag} {given}: the cluster is {known}"
            ))
            .hint(format!("leave --{flag} out: the cluster knows"))),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn class_and_store_are_found_or_unknown() {
        let text =
            "# Server\r\nquorate_store:lsm\r\n# Replication\r\nquorate_durability:durable\r\n";
        let info = Info::parse(text);
        assert_eq!(info.durability.as_deref(), Some("durable"));
        assert_eq!(info.store.as_deref(), Some("lsm"));
        assert_eq!(Info::parse("redis_version:7.0.0\r\n"), Info::default());
    }

    #[test]
    fn a_flag_that_contradicts_the_cluster_is_refused() {
        assert!(Info::check("store", Some("lsm"), Some("memory")).is_err());
        assert!(Info::check("store", Some("lsm"), Some("lsm")).is_ok());
        assert!(Info::check("store", Some("lsm"), None).is_ok());
        assert!(Info::check("store", None, Some("lsm")).is_ok());
    }
}
