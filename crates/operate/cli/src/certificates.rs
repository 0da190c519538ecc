//! Reads the files with certificates again when they have changed, so that they are exchanged while the node runs; and
//! says in time that one ends.

use std::{
    io,
    time::{SystemTime, UNIX_EPOCH},
};

use quorate::Trust;
use quorate_admin::certificates::{SOON_DAYS, days_left};

use crate::watched;

/// How often it is said that one ends soon.
const WARN_EVERY_S: i64 = 24 * 3600;

/// From now on, in a thread of its own.
pub(crate) fn follow(trust: Trust) -> io::Result<()> {
    let mut warned_s = unix_s();
    warn(&trust, warned_s);
    watched::follow("certificates", "certificates", move || {
        let now_s = unix_s();
        let changed = trust.reload()?;
        if changed {
            tracing::info!("certificates reloaded: new connections use them");
        }
        if changed || now_s - warned_s >= WARN_EVERY_S {
            warn(&trust, now_s);
            warned_s = now_s;
        }
        Ok::<_, quorate_tls::BadFiles>(())
    })
}

fn warn(trust: &Trust, now_s: i64) {
    for expiry in trust.expiries() {
        let days = days_left(expiry.unix_s, now_s);
        if days < SOON_DAYS {
            tracing::warn!(
                what = expiry.what,
                file = expiry.file,
                days,
                "a certificate expires soon; nobody can connect once it has expired"
            );
        }
    }
}

fn unix_s() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    i64::try_from(now.unwrap_or_default().as_secs()).unwrap_or(i64::MAX)
}
