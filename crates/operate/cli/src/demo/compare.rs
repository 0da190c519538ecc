//! Checks through the client protocol that every node has every acknowledged write.

use std::{
    collections::BTreeSet,
    thread,
    time::{Duration, Instant},
};

use quorate_client::{Client, Error, Options, Reply};

use super::load::Written;

/// Number of keys read per request.
const KEYS_PER_REQUEST: usize = 500;
/// Interval between polls of a node that is catching up.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Acknowledged writes that a node lacks, as pairs of writer and command number.
pub(crate) type LostWrites = BTreeSet<(usize, u64)>;

/// Returns the acknowledged writes that the node at `address` lacks. With `stale`, reads the node's
/// own state without asking the leader.
pub(crate) fn missing_writes(
    address: &str,
    written: &[Written],
    stale: bool,
) -> Result<LostWrites, Error> {
    let options = Options { allow_stale_reads: stale, ..Options::default() };
    let mut client = Client::new(&[address], options);
    let mut lost = LostWrites::new();
    for writer in written {
        for numbers in writer.acknowledged_numbers.chunks(KEYS_PER_REQUEST) {
            let pairs: Vec<_> = numbers
                .iter()
                .map(|number| Written::key_and_value(writer.writer, *number))
                .collect();
            let mut question: Vec<&[u8]> = vec![b"MGET"];
            question.extend(pairs.iter().map(|(key, _)| key.as_bytes()));
            let Reply::Array(values) = client.read(&question)? else {
                return Err(Error::Refused("MGET did not answer with a list".to_owned()));
            };
            for (index, (number, (_, value))) in numbers.iter().zip(&pairs).enumerate() {
                if values.get(index).and_then(Reply::bytes) != Some(value.as_bytes()) {
                    lost.insert((writer.writer, *number));
                }
            }
        }
    }
    Ok(lost)
}

/// Returns the fingerprint common to all nodes, or `None` if the nodes do not agree in time.
pub(crate) fn common_digest(
    addresses: &[String],
    patience: Duration,
) -> Result<Option<String>, Error> {
    let until = Instant::now() + patience;
    loop {
        let digests =
            addresses.iter().map(|address| state_digest(address)).collect::<Result<Vec<_>, _>>()?;
        let distinct: BTreeSet<&String> = digests.iter().collect();
        if distinct.len() == 1 {
            return Ok(digests.into_iter().next());
        }
        if Instant::now() >= until {
            return Ok(None);
        }
        thread::sleep(POLL_INTERVAL);
    }
}

/// Returns the applied position and the fingerprint of the node's own state.
fn state_digest(address: &str) -> Result<String, Error> {
    let options = Options { allow_stale_reads: true, ..Options::default() };
    let reply = Client::new(&[address], options).read(&[b"QUORATE", b"DIGEST"])?;
    Ok(reply.to_string())
}
