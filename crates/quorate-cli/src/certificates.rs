//! Reads the files with certificates again when they have changed, so that they are exchanged while the node runs; and
//! says in time that one ends.

use std::{
    io, thread,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use quorate::Trust;
use quorate_admin::certificates::{SOON_DAYS, days_left};

/// How often they are looked at.
const EVERY: Duration = Duration::from_secs(1);
/// How often it is said that one ends soon.
const WARN_EVERY_S: i64 = 24 * 3600;

/// From now on, in a thread of its own.
pub(crate) fn follow(trust: Trust) -> io::Result<()> {
    let look = move || {
        let mut told = None;
        let mut warned_s = None;
        loop {
            let now_s = unix_s();
            if warned_s.is_none_or(|at| now_s - at >= WARN_EVERY_S) {
                warn(&trust, now_s);
                warned_s = Some(now_s);
            }
            thread::sleep(EVERY);
            match trust.reload() {
                Ok(changed) => {
                    told = None;
                    if changed {
                        tracing::info!(
                            "the certificates have changed: who connects from now on meets the new ones"
                        );
                        warned_s = None;
                    }
                }
                // They may be written just now; what stays wrong is said once.
                Err(error) => {
                    let error = error.to_string();
                    if told.as_ref() != Some(&error) {
                        tracing::error!("{error}; the certificates of before stay in force");
                        told = Some(error);
                    }
                }
            }
        }
    };
    thread::Builder::new()
        .name("certificates".to_owned())
        .spawn(look)
        .map(drop)
}

fn warn(trust: &Trust, now_s: i64) {
    for expiry in trust.expiries() {
        let days = days_left(expiry.unix_s, now_s);
        if days < SOON_DAYS {
            tracing::warn!(
                what = expiry.what,
                file = expiry.file,
                days,
                "a certificate ends soon, and without it nobody connects"
            );
        }
    }
}

fn unix_s() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    i64::try_from(now.unwrap_or_default().as_secs()).unwrap_or(i64::MAX)
}
