//! Minimal client for etcd's JSON gateway, used by checkers: writes, reads, removes and compares.

use std::{io, time::Duration};

use base64ct::{Base64, Encoding as _};
use quorate_admin::client;
use serde_json::{Value, json};

/// Request timeout, longer than a node lets a command wait.
const REQUEST_TIMEOUT: Duration = Duration::from_millis(2500);

/// Sends a request to a node. Returns the body if the request succeeds.
fn request(address: &str, path: &str, body: &Value) -> io::Result<Value> {
    let answer = client::post(address, path, &body.to_string(), REQUEST_TIMEOUT)
        .map_err(io::Error::other)?;
    if answer.status != 200 {
        let why = format!("{address}{path}: {} {}", answer.status, answer.body);
        return Err(io::Error::other(why));
    }
    Ok(serde_json::from_str(&answer.body)?)
}

pub fn put(address: &str, key: &str, value: &str) -> io::Result<()> {
    let body = json!({ "key": base64_encoded(key), "value": base64_encoded(value) });
    request(address, "/v3/kv/put", &body).map(drop)
}

/// Writes a key through the node at `address`, with a lease that expires after `seconds`.
pub fn put_with_lease(address: &str, key: &str, value: &str, seconds: u32) -> io::Result<()> {
    let lease = request(address, "/v3/lease/grant", &json!({ "TTL": seconds }))?;
    let body =
        json!({ "key": base64_encoded(key), "value": base64_encoded(value), "lease": lease["ID"] });
    request(address, "/v3/kv/put", &body).map(drop)
}

/// Returns the value of a key in the node's own state, by a serializable read.
pub fn value(address: &str, key: &str) -> io::Result<Option<String>> {
    let body = json!({ "key": base64_encoded(key), "serializable": true });
    let answer = request(address, "/v3/kv/range", &body)?;
    let Some(value) = answer["kvs"][0]["value"].as_str() else {
        return Ok(None);
    };
    let bytes = Base64::decode_vec(value).map_err(io::Error::other)?;
    String::from_utf8(bytes).map(Some).map_err(io::Error::other)
}

/// Returns whether the node answers a linearizable read.
pub fn answers_reads(address: &str) -> bool {
    request(address, "/v3/kv/range", &json!({ "key": base64_encoded("x") })).is_ok()
}

/// Returns the revision and the fingerprint of the node's own state.
pub fn state_digest(address: &str) -> Option<String> {
    let answer = request(address, "/v3/maintenance/hash", &json!({})).ok()?;
    let revision = answer["header"]["revision"].as_str()?;
    Some(format!("{revision} {}", answer["hash"]))
}

/// Removes all keys, including their history.
pub fn clear(address: &str) -> io::Result<()> {
    let all = json!({ "key": base64_encoded("\0"), "range_end": base64_encoded("\0") });
    let answer = request(address, "/v3/kv/deleterange", &all)?;
    let revision = &answer["header"]["revision"];
    let compact = json!({ "revision": revision, "physical": true });
    request(address, "/v3/kv/compaction", &compact).map(drop)
}

fn base64_encoded(text: &str) -> String {
    Base64::encode_string(text.as_bytes())
}
