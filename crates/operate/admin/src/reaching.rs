//! Requests by which `quorate doctor` has members test multicast: listen, send, count.

use serde::{Deserialize, Serialize};

/// Longest time that a node listens, in milliseconds.
pub const LISTEN_MS_MAX: u64 = 10_000;
/// Maximum number of datagrams that a node sends per request.
pub const COUNT_MAX: u32 = 1000;

/// Body of `POST /doctor/multicast`: listens on a multicast group in the background.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListenRequest {
    /// `ADDRESS:PORT`
    pub group: String,
    /// Interface to join on. Defaults to the interface of the node's peer address.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub interface: Option<String>,
    /// Time after which listening stops, in milliseconds.
    pub listen_ms: u64,
    /// Token that marks the datagrams of this test: 16 hexadecimal digits.
    pub token: String,
}

/// Response: datagrams are counted from now on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listening {
    /// Interface on which the group was joined.
    pub interface: String,
    /// Time after which listening stops, in milliseconds.
    pub listen_ms: u64,
}

/// Body of `POST /doctor/multicast/send`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SendRequest {
    /// `ADDRESS:PORT`
    pub group: String,
    /// Interface to send from. Defaults to the interface of the node's peer address.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub interface: Option<String>,
    /// Token of the listeners.
    pub token: String,
    /// Sender id under which listeners count these datagrams.
    pub sender: u32,
    /// Number of datagrams, at most [`COUNT_MAX`].
    pub count: u32,
}

/// Response, sent after the last datagram.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sent {
    /// Interface used for sending.
    pub interface: String,
    /// Datagrams that the kernel accepted.
    pub sent: u32,
}

/// Body of `POST /doctor/multicast/heard`: returns the counts and stops listening.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HeardRequest {
    /// Token of the listener.
    pub token: String,
}

/// Datagrams that a listener counted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeardView {
    /// Counts per sender.
    pub heard: Vec<OfSender>,
    /// Datagrams with another token or format.
    pub foreign: u64,
}

/// Datagrams counted from one sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OfSender {
    /// Sender id.
    pub sender: u32,
    /// Distinct datagrams.
    pub count: u32,
    /// Duplicates.
    pub repeated: u32,
}

/// Parses a token; `None` unless it has 16 hexadecimal digits.
pub fn token(text: &str) -> Option<u64> {
    let plain = text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    plain.then(|| u64::from_str_radix(text, 16).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_sixteen_hexadecimal_digits() {
        assert_eq!(token("00000000000000ff"), Some(255));
        for bad in ["", "ff", "00000000000000fg", "+0000000000000ff", "0x000000000000ff"] {
            assert_eq!(token(bad), None, "{bad}");
        }
    }

    /// The field names are fixed, and unknown fields are rejected.
    #[test]
    fn requests_are_read_strictly() {
        let read = |text: &str| serde_json::from_str::<ListenRequest>(text).ok();
        let request = ListenRequest {
            group: "239.1.2.3:4".to_owned(),
            interface: None,
            listen_ms: 5,
            token: "ab".to_owned(),
        };
        let text = r#"{"group":"239.1.2.3:4","listen_ms":5,"token":"ab"}"#;
        assert_eq!(read(text), Some(request.clone()));
        assert_eq!(serde_json::to_string(&request).unwrap(), text);
        assert_eq!(read(r#"{"group":"g","listen_ms":5,"token":"ab","x":1}"#), None);
        assert_eq!(read(r#"{"group":"g","listen_ms":-5,"token":"ab"}"#), None);
    }
}
