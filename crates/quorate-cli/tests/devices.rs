//! Phase 2 in the kernel, as users see it. Without root, or where no program may be loaded, it is skipped, in print.

#![allow(clippy::unwrap_used)]

mod common;

use std::env;

use common::{Cluster, NodeProcess, PATIENCE, patient, quorate_json, single, wait_for};
use quorate_client::Client;
use quorate_testbed::nodes::answer;
use serde_json::Value as Json;

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

/// [offload-11], [offload-15] A client outside: a learner whose commands go to the leader's device by frames, and which
/// learns by what that counted.
#[test]
fn a_learner_submits_and_learns_by_frames() {
    let flags = ["--durability", "volatile", "--device", "udp"];
    let cluster = Cluster::start(3, &flags);
    let admin = cluster.nodes.admin_addresses().swap_remove(0);
    let folder = tempfile::tempdir().unwrap();
    let flags = ["--join", &admin, "--as", "learner", "--device", "udp"];
    let mut learner = NodeProcess::spawn(single(&folder.path().join("n4"), &flags)).unwrap();
    learner.wait_ready().unwrap();
    let device = || {
        let body = answer(&learner.ready.admin, "/status", PATIENCE)?;
        let status: Json = serde_json::from_str(&body).unwrap();
        Some(status["device"].clone())
    };
    let mut client = Client::new(&[learner.ready.client.clone()], patient());
    let mut written = 0_u64;
    // Until it has heard the leader's device, and has been heard by it.
    let device = wait_for(
        "a command that went by frames, and decisions by them",
        || {
            for _ in 0..20 {
                client.run(&[b"INCR", b"key"]).unwrap();
                written += 1;
            }
            let device = device()?;
            let is = |name: &str| device[name].as_u64().is_some_and(|count| count > 100);
            (is("offered") && is("counted")).then_some(device)
        },
    );
    assert_eq!(device["votes"], 0, "{device}");
    let reply = cluster.client_of(1).ask(&[b"GET", b"key"]).unwrap();
    assert_eq!(
        reply.bytes(),
        Some(written.to_string().as_bytes()),
        "{reply:?}"
    );
}

/// What excludes each other is said before anything is started.
#[test]
fn a_cluster_that_nobody_reaches_is_not_kept() {
    for flag in ["--keep", "--replace"] {
        let (code, json) = quorate_json(&["demo", "--plane", "kernel", flag, "--json"]);
        assert_eq!(code, 2, "{json}");
    }
}
