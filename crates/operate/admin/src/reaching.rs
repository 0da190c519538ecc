//! Requests of `quorate doctor` to members that test multicast: listen, send, count.

use serde::{Deserialize, Serialize};

/// Longest time that a node listens, in milliseconds.
pub const LISTEN_MS_MAX: u64 = 10_000;
/// Most datagrams that a node sends at a time.
pub const COUNT_MAX: u32 = 1000;

/// Body of `POST /doctor/multicast`: hear what comes to this group, in the background.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListenRequest {
    /// `ADDRESS:PORT`
    pub group: String,
    /// Interface to join on; `None`: that of the node's address for peers.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub interface: Option<String>,
    /// Duration, after which it ends by itself.
    pub listen_ms: u64,
    /// Tells its datagrams from others: 16 hexadecimal digits.
    pub token: String,
}

/// Its answer: datagrams that come from now on are counted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listening {
    /// Interface on which the group was joined.
    pub interface: String,
    /// When it ends by itself.
    pub listen_ms: u64,
}

/// Body of `POST /doctor/multicast/send`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SendRequest {
    /// `ADDRESS:PORT`
    pub group: String,
    /// From where; `None`: where the node listens for peers.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub interface: Option<String>,
    /// Token of the listeners.
    pub token: String,
    /// Id of the sender in their counts.
    pub sender: u32,
    /// Number of datagrams, at most [`COUNT_MAX`].
    pub count: u32,
}

/// Its answer, when all are sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sent {
    /// From where.
    pub interface: String,
    /// Datagrams that the kernel took.
    pub sent: u32,
}

/// Body of `POST /doctor/multicast/heard`: what was counted; the listening ends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HeardRequest {
    /// Token of the listening.
    pub token: String,
}

/// Its answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeardView {
    /// Counts of each sender with datagrams.
    pub heard: Vec<OfSender>,
    /// Datagrams with another token, or of another kind.
    pub foreign: u64,
}

/// Count of one sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OfSender {
    /// As it was called.
    pub sender: u32,
    /// Different datagrams.
    pub count: u32,
    /// Datagrams that came once more.
    pub repeated: u32,
}

/// The number behind a token.
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

    /// The names are fixed.
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
