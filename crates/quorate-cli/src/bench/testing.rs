//! What the tests of the bench have in common.

use quorate_bench::{load::Offer, row::Setting};

/// A row of the log service under this load.
pub(super) fn setting(offer: Offer) -> Setting {
    Setting {
        scenario: "log".to_owned(),
        system: "quorate".to_owned(),
        durability: "durable".to_owned(),
        store: "none".to_owned(),
        value_bytes: 64,
        reads_percent: 0,
        connections: 1,
        offer,
        disk_flush_ms: 0.0,
        batching: None,
        wan: None,
    }
}
