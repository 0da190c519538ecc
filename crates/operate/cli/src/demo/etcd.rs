//! Writers for `--service etcd`, and the check of their writes. Both use gRPC as etcd's clients do.

#[cfg(feature = "etcd")]
pub(super) use with::{check, common_hash, missing, write};
#[cfg(not(feature = "etcd"))]
pub(super) use without::{check, common_hash, missing, write};

#[cfg(feature = "etcd")]
mod with {
    use std::{
        fmt, thread,
        time::{Duration, Instant},
    };

    use quorate_etcd::client::Client;

    use crate::{
        demo::{
            compare::LostWrites,
            load::{IN_FLIGHT_PER_WRITER, Shared, WRITE_TIMEOUT, Written},
        },
        output::{Exit, Problem},
    };

    /// Number of keys read per request.
    const KEYS_PER_REQUEST: usize = 500;
    /// Interval between polls of a node that is catching up.
    const POLL_INTERVAL: Duration = Duration::from_millis(20);

    /// Checks that this binary supports etcd.
    pub(in crate::demo) const fn check() -> Result<(), Problem> {
        Ok(())
    }

    /// Puts keys with several requests in flight, until stopped.
    pub(in crate::demo) fn write(writer: usize, addresses: &[String], shared: &Shared) -> Written {
        let mut done = Written { writer, ..Written::default() };
        let mut client = match Client::new(addresses, WRITE_TIMEOUT) {
            Ok(client) => client,
            Err(error) => {
                done.error = Some(error.to_string());
                return done;
            }
        };
        while !shared.is_stopping() {
            let numbers = done.sent_count..done.sent_count + IN_FLIGHT_PER_WRITER as u64;
            let pairs: Vec<_> =
                numbers.clone().map(|number| Written::key_and_value(writer, number)).collect();
            let sent_us = shared.now_us();
            done.sent_count = numbers.end;
            for (number, put) in numbers.zip(client.put_all(&pairs)) {
                match put {
                    Ok(()) => {
                        done.acknowledged_numbers.push(number);
                        shared.record_acknowledged(sent_us);
                    }
                    Err(status) => done.error = Some(status.to_string()),
                }
            }
        }
        done
    }

    fn client_problem(error: impl fmt::Display) -> Problem {
        let what = format_args!("a node did not answer: {error}");
        Problem::new(Exit::Unreachable, "no_answer", what)
    }

    fn connect_client(address: &String) -> Result<Client, Problem> {
        Client::new(std::slice::from_ref(address), WRITE_TIMEOUT).map_err(client_problem)
    }

    /// Returns the acknowledged writes that the node at `address` lacks. With `stale`, reads the
    /// node's own state.
    pub(in crate::demo) fn missing(
        address: &String,
        written: &[Written],
        stale: bool,
    ) -> Result<LostWrites, Problem> {
        let client = connect_client(address)?;
        let mut lost = LostWrites::new();
        for writer in written {
            for numbers in writer.acknowledged_numbers.chunks(KEYS_PER_REQUEST) {
                let pairs =
                    numbers.iter().map(|number| Written::key_and_value(writer.writer, *number));
                let (keys, values): (Vec<_>, Vec<_>) = pairs.unzip();
                let found = client.get_all(&keys, stale).map_err(client_problem)?;
                for (at, (number, value)) in numbers.iter().zip(&values).enumerate() {
                    let there = found.get(at).and_then(Option::as_deref);
                    if there != Some(value.as_bytes()) {
                        lost.insert((writer.writer, *number));
                    }
                }
            }
        }
        Ok(lost)
    }

    /// Returns the hash common to all nodes at one revision, or `None` if the hashes differ.
    pub(in crate::demo) fn common_hash(
        addresses: &[String],
        patience: Duration,
    ) -> Result<Option<String>, Problem> {
        let until = Instant::now() + patience;
        let clients = addresses.iter().map(connect_client).collect::<Result<Vec<_>, _>>()?;
        let mut at = 0;
        for client in &clients {
            at = client.hash_at_revision(0).map_err(client_problem)?.1.max(at);
        }
        let mut hashes = Vec::new();
        for client in &clients {
            hashes.push(loop {
                match client.hash_at_revision(at) {
                    Ok((hash, _)) => break hash,
                    // The node has not reached the revision yet.
                    Err(_) if Instant::now() < until => thread::sleep(POLL_INTERVAL),
                    Err(status) => return Err(client_problem(status)),
                }
            });
        }
        let first = hashes.first().copied().unwrap_or_default();
        let equal = hashes.iter().all(|hash| *hash == first);
        Ok(equal.then(|| format!("revision {at}, hash {first:08x}")))
    }
}

#[cfg(not(feature = "etcd"))]
mod without {
    use std::time::Duration;

    use crate::{
        demo::{
            compare::LostWrites,
            load::{Shared, Written},
        },
        output::{Exit, Problem},
    };

    fn refused() -> Problem {
        let what = "this binary was built without --service etcd";
        Problem::new(Exit::Usage, "unsupported", what).with_hint("build it with the feature etcd")
    }

    pub(in crate::demo) fn check() -> Result<(), Problem> {
        Err(refused())
    }

    pub(in crate::demo) fn write(writer: usize, _: &[String], _: &Shared) -> Written {
        Written { writer, ..Written::default() }
    }

    pub(in crate::demo) fn missing(
        _: &String,
        _: &[Written],
        _: bool,
    ) -> Result<LostWrites, Problem> {
        Err(refused())
    }

    pub(in crate::demo) fn common_hash(
        _: &[String],
        _: Duration,
    ) -> Result<Option<String>, Problem> {
        Err(refused())
    }
}
