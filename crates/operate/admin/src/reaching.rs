//! Requests with which `quorate doctor` tests multicast between members: listen, send, report
//! counts.

use serde::{Deserialize, Serialize};

/// Maximum time for which a node listens, in milliseconds.
pub const LISTEN_MS_MAX: u64 = 10_000;
/// Maximum number of datagrams that one request sends.
pub const DATAGRAMS_MAX: u32 = 1000;

/// Body of `POST /doctor/multicast`: listens on a multicast group in the background.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListenRequest {
    /// Multicast group, `ADDRESS:PORT`.
    pub group: String,
    /// Interface on which to join the group. Defaults to the interface of the node's peer address.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub interface: Option<String>,
    /// Time after which the node stops listening, in milliseconds.
    pub listen_ms: u64,
    /// Number that marks the datagrams of this test, 16 hexadecimal digits.
    pub token: String,
}

/// Response to a listen request. The node counts datagrams from now on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listening {
    /// Interface on which the node joined the group.
    pub interface: String,
    /// Time after which the node stops listening, in milliseconds.
    pub listen_ms: u64,
}

/// Body of `POST /doctor/multicast/send`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SendRequest {
    /// Multicast group, `ADDRESS:PORT`.
    pub group: String,
    /// Interface to send from. Defaults to the interface of the node's peer address.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub interface: Option<String>,
    /// Token that the listeners were given.
    pub token: String,
    /// Number under which the listeners count this sender's datagrams.
    pub sender: u32,
    /// Number of datagrams to send, at most [`DATAGRAMS_MAX`].
    pub count: u32,
}

/// Response to a send request. Sent after the last datagram.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sent {
    /// Interface from which the datagrams were sent.
    pub interface: String,
    /// Number of datagrams that the kernel accepted.
    pub sent: u32,
}

/// Body of `POST /doctor/multicast/heard`, which returns the counts and stops the listener.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HeardRequest {
    /// Token that the listener was given.
    pub token: String,
}

/// Datagrams that a listener received.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeardView {
    /// Number of datagrams per sender.
    pub heard: Vec<OfSender>,
    /// Number of datagrams with a different token or format.
    pub foreign: u64,
}

/// Number of datagrams received from one sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OfSender {
    pub sender: u32,
    /// Number of distinct datagrams.
    pub count: u32,
    /// Number of duplicates.
    pub repeated: u32,
}

/// Parses a token; `None` unless the text has 16 hexadecimal digits.
pub fn parse_token(text: &str) -> Option<u64> {
    let plain = text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    plain.then(|| u64::from_str_radix(text, 16).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_sixteen_hexadecimal_digits() {
        assert_eq!(parse_token("00000000000000ff"), Some(255));
        for bad in ["", "ff", "00000000000000fg", "+0000000000000ff", "0x000000000000ff"] {
            assert_eq!(parse_token(bad), None, "{bad}");
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
