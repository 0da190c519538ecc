//! `quorate tune` and the admin address's `/tuning`, with real processes. Checks counts and names,
//! never times.

use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
};

use crate::common::{Cluster, quorate, quorate_json, wait_for};
use quorate_client::{Client, Options};
use serde_json::{Value, json};

fn tuning(admin: &str) -> Value {
    let (code, json) = quorate_json(&["tune", "--admin", admin, "--json"]);
    assert_eq!(code, 0, "{json}");
    json
}

/// Sends a request. Returns the status and the body.
fn post(admin: &str, body: &Value) -> (u16, Value) {
    let body = body.to_string();
    let mut stream = TcpStream::connect(admin).unwrap();
    let head = format!(
        "POST /tuning HTTP/1.0\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all((head + &body).as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, serde_json::from_str(body).unwrap_or_default())
}

fn hold(batch_bytes: u64, window: u64, ms: u64) -> Value {
    json!({"hold": {"batch_bytes": batch_bytes, "window": window, "ms": ms}})
}

#[test]
fn what_is_fixed_stays_and_says_so() {
    let flags = ["--tune", "off", "--batch", "8192", "--window", "3"];
    let cluster = Cluster::start(3, &flags);
    let leader = cluster.leader();
    let json = tuning(&cluster.nodes.all()[0].ready.admin.clone());
    assert_eq!(json["node"], leader);
    assert_eq!(json["chosen"], json!({"batch_bytes": 8192, "window": 3}));
    assert_eq!(json["reason"], "8 KiB x 3 is fixed: tuning is off.");
}

#[test]
fn a_setting_is_held_for_as_long_as_was_asked_and_no_longer() {
    let cluster = Cluster::start(1, &["--tune", "off", "--batch", "8192", "--window", "3"]);
    let admin = cluster.nodes.all()[0].ready.admin.clone();
    let (status, json) = post(&admin, &hold(4096, 7, 600_000));
    assert_eq!((status, &json["held"]), (200, &json!(true)));
    assert_eq!(json["chosen"], json!({"batch_bytes": 4096, "window": 7}));
    let (_, json) = post(&admin, &json!({"hold": null}));
    assert_eq!(json["held"], false);
    assert_eq!(json["chosen"], json!({"batch_bytes": 8192, "window": 3}));

    // The client that pinned the settings may have disconnected.
    let (_, json) = post(&admin, &hold(4096, 7, 1));
    assert_eq!(json["held"], true);
    wait_for("the end of the hold", || (tuning(&admin)["held"] == false).then_some(()));

    // Requested settings are limited to values that work.
    let (_, json) = post(&admin, &hold(u64::from(u32::MAX), 4096, 600_000));
    assert_eq!(json["chosen"]["window"], 64);
    assert!(json["chosen"]["batch_bytes"].as_u64().unwrap() < 1 << 28);
    for bad in [hold(0, 1, 5), hold(1, 0, 5), hold(1, 1, 0), hold(1, 1, 600_001)] {
        assert_eq!(post(&admin, &bad).0, 422, "{bad}");
    }
}

/// A sweep asks for confirmation if clients are connected, measures every point, and leaves the
/// choice to the node afterwards.
#[test]
fn a_sweep_measures_the_grid_and_lets_go() {
    let cluster = Cluster::start(1, &["--store", "memory"]);
    let ready = cluster.nodes.all()[0].ready.clone();
    let mut client = Client::new(std::slice::from_ref(&ready.client), Options::default());
    client.run(&[b"SET", b"mine", b"1"]).unwrap();
    let sweep = ["tune", "--admin", &ready.admin, "--sweep", "--point-ms", "50", "--json"];
    let (code, json) = quorate_json(&sweep);
    assert_eq!((code, &json["error"]["code"]), (1, &json!("clients_connected")));
    assert!(json["error"]["hint"].as_str().unwrap().contains("--yes"));

    let page = tempfile::NamedTempFile::new().unwrap();
    let html = ["--yes", "--html", page.path().to_str().unwrap()];
    let (code, json) = quorate_json(&[&sweep[..], &html].concat());
    assert_eq!(code, 0, "{json}");
    let measured = json["sweep"]["measured"].as_array().unwrap();
    assert_eq!(measured.len(), 30);
    for point in measured {
        assert!(point["throughput"].as_f64().unwrap() > 0.0, "{point}");
    }
    assert_eq!(json["held"], false);
    let rate = |point: &&Value| point["throughput"].as_f64().unwrap();
    let best = measured.iter().max_by(|a, b| rate(a).total_cmp(&rate(b)));
    assert_eq!(json["sweep"]["best"]["window"], best.unwrap()["window"]);
    assert!(json["sweep"]["chosen_by_best"].as_f64().unwrap() > 0.0);
    let page = std::fs::read_to_string(page.path()).unwrap();
    assert!(page.contains("Measured: commands per second") && page.ends_with("</html>\n"));
    assert!(!page.contains("http"), "nothing from elsewhere");
    client.run(&[b"GET", b"mine"]).unwrap();
}

#[test]
fn nobody_there_exits_with_3() {
    let address = format!("127.0.0.1:{}", crate::common::free_port());
    let out = quorate(&["tune", "--admin", &address]);
    assert_eq!(out.status.code(), Some(3));
}
