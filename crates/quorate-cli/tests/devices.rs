//! Phase 2 in the kernel, as users see it. Without root, or where no program may be loaded, it is skipped, in print.

#![allow(clippy::unwrap_used)]

mod common;

use std::env;

use common::quorate_json;

/// Says what is not tested, and why; with `QUORATE_NO_SKIPS=true` everything must be there.
fn skip(why: &str) {
    let all = env::var("QUORATE_NO_SKIPS").is_ok_and(|value| value == "true");
    assert!(!all, "devices in the kernel are not tested: {why}");
    eprintln!("skipped: devices in the kernel: {why}");
}

/// [offload-8], [offload-12] A leader is killed with SIGKILL while its device votes on, and comes back to it; nothing that was acknowledged
/// is lost, and nothing of the demo is left on the machine.
#[test]
fn the_demo_in_the_kernel_loses_nothing() {
    let words = ["demo", "--plane", "kernel", "--seconds", "4", "--json"];
    let (code, json) = quorate_json(&words);
    if json["error"]["code"] == "no_network" {
        return skip(json["error"]["message"].as_str().unwrap());
    }
    assert_eq!((code, json["lost"].as_u64()), (0, Some(0)), "{json}");
    assert!(json["failover_ms"].is_u64(), "{json}");
    let device = json["devices"]["name"].as_str().unwrap();
    if !device.starts_with("in the kernel") {
        return skip(device);
    }
    let acknowledged = json["acknowledged"].as_u64().unwrap();
    let votes = json["devices"]["votes"].as_u64().unwrap();
    // Batches hold several writes.
    assert!(acknowledged > 100 && votes > 30, "{json}");
}

/// What excludes each other is said before anything is started.
#[test]
fn a_cluster_that_nobody_reaches_is_not_kept() {
    for flag in ["--keep", "--replace"] {
        let (code, json) = quorate_json(&["demo", "--plane", "kernel", flag, "--json"]);
        assert_eq!(code, 2, "{json}");
    }
}
