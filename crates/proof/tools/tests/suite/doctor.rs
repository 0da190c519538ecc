//! `quorate doctor` on this machine and with real nodes. Checks names, states and counts, never
//! times.

use std::fs;

use crate::common::{Cluster, free_port, quorate, quorate_json, wait_for};
use serde_json::{Value as Json, json};

fn finding<'a>(json: &'a Json, name: &str) -> &'a Json {
    let mut findings = json["findings"].as_array().unwrap().iter();
    let found = findings.find(|finding| finding["name"] == name);
    found.unwrap_or_else(|| panic!("no {name}: {json}"))
}

fn plane<'a>(json: &'a Json, name: &str) -> &'a Json {
    let mut planes = json["planes"].as_array().unwrap().iter();
    planes.find(|plane| plane["plane"] == name).unwrap()
}

/// Returns a multicast address with a port that was free a moment ago.
fn group() -> String {
    format!("239.81.84.74:{}", free_port())
}

/// The exit code equals the verdict, in text and in JSON.
#[test]
fn this_machine_is_looked_at() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("n1");
    let (code, json) = quorate_json(&["doctor", "--data", data.to_str().unwrap(), "--json"]);
    assert_eq!(code, if json["healthy"] == true { 0 } else { 1 }, "{json}");
    for name in [
        "kernel",
        "CAP_NET_RAW",
        "nofile",
        "interfaces",
        "buffers",
        "clocksource",
        "io_uring",
        "multicast",
        "loopback tcp",
        "loopback udp",
        "file-nr",
        "nr_open",
        "thp",
        "swap",
        "overcommit",
        "file system",
        "free",
        "inodes",
        "O_DIRECT",
        "flush",
        "flush tail",
        "flush honesty",
    ] {
        assert!(!finding(&json, name)["what"].as_str().unwrap().is_empty());
    }
    for finding in json["findings"].as_array().unwrap() {
        let (state, hint) = (&finding["state"], finding["hint"].as_str().unwrap());
        assert_eq!(hint.is_empty(), state == "ok", "{finding}");
    }
    let tcp = plane(&json, "tcp");
    assert_eq!((&tcp["works"], &tcp["spoken"]), (&json!(true), &json!(true)), "{json}");
    // The bare programs ran, so the predictions are based on measurements.
    assert!(tcp["predicted"]["latency_us"].as_f64().unwrap() > 0.0, "{tcp}");
    assert!(tcp["predicted"]["throughput_per_s"].as_f64().unwrap() > 0.0, "{tcp}");
    assert_eq!(tcp["predicted"]["class"], "durable");
    assert_eq!(plane(&json, "ethernet")["predicted"]["latency_us"], Json::Null);
    assert_eq!((&json["reach"], &json["measured"]), (&Json::Null, &Json::Null));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "nothing is left");

    let flushes = &json["flushes"];
    let bars = flushes["histogram"].as_array().unwrap().iter();
    let drawn: u64 = bars.map(|bar| bar["count"].as_u64().unwrap()).sum();
    assert_eq!(flushes["count"], drawn, "{flushes}");
    assert!(json["room"]["free_bytes"].as_u64().unwrap() > 0);

    let human = quorate(&["doctor"]);
    let text = String::from_utf8(human.stdout).unwrap();
    for part in [
        "finding",
        "planes; the model's bare commit of 3 nodes",
        "the prediction is based on",
        "flush",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(text.contains("not known  give --data"), "{text}");
}

/// `--check` prints one line and exits with the code that monitoring expects. The findings are
/// those of the document.
#[test]
fn a_check_is_one_line_and_a_code() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("n1");
    let data = data.to_str().unwrap();
    let output = quorate(&["doctor", "--data", data, "--check"]);
    let text = String::from_utf8(output.stdout).unwrap();
    let (line, rest) = text.split_once('\n').unwrap();
    assert_eq!(rest, "");
    let code = output.status.code().unwrap();
    let words = ["OK", "WARNING", "CRITICAL", "UNKNOWN"];
    let word = words[usize::try_from(code).unwrap()];
    assert!(line.starts_with(&format!("QUORATE {word} - ")), "{line}");
    let (_, figures) = line.split_once(" | ").unwrap();
    for figure in ["ok=", "warning=", "flush_us=", "free_bytes="] {
        assert!(figures.contains(figure), "{line}");
    }
    // Ignoring every finding leaves none, whatever the state of this machine: a finding that was
    // good a moment ago may not be, such as io_uring when other programs have locked memory.
    let (code, json) = quorate_json(&["doctor", "--check", "--json"]);
    let all = json["findings"].as_array().unwrap().iter();
    let names: Vec<&str> = all.map(|finding| finding["name"].as_str().unwrap()).collect();
    assert!(code <= 2, "{json}");
    assert_eq!((&json["measured"], &json["reach"]), (&Json::Null, &Json::Null));
    let ignored = [&["load", "jumps"], &names[..]].concat().join(",");
    let output = quorate(&["doctor", "--check", "--ignore", &ignored]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.starts_with("QUORATE OK - "), "{text}");
    assert_eq!(output.status.code(), Some(0));

    let closed = format!("127.0.0.1:{}", free_port());
    let output = quorate(&["doctor", "--check", "--admin", &closed]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.starts_with("QUORATE CRITICAL - no node answers at "), "{text}");
    assert_eq!(output.status.code(), Some(2));
    let (code, json) = quorate_json(&["doctor", "--check", "--admin", &closed, "--json"]);
    assert_eq!((code, &json["error"]["code"]), (2, &json!("unreachable")));
}

/// Differences between the settings of nodes of the same version are reported, with the nodes that
/// use each value.
#[test]
fn what_nodes_should_have_in_common_is_compared() {
    let cluster = Cluster::start(1, &["--reads", "lease"]);
    let admin = cluster.nodes.admin_addresses()[0].clone();
    let (_, json) = quorate_json(&["status", "--admin", &admin, "--json"]);
    let settings = &json["nodes"][0]["settings"];
    assert_eq!(settings["reads"], "lease", "{json}");
    assert!(settings["data"].is_null() && settings["admin"].is_null(), "{settings}");
    let (_, json) = quorate_json(&["doctor", "--check", "--admin", &admin, "--json"]);
    assert_eq!(finding(&json, "versions")["state"], "ok");
    assert_eq!(finding(&json, "settings")["state"], "ok");

    let other = Cluster::start(1, &["--reads", "index"]);
    let both = format!("{admin},{}", other.nodes.admin_addresses()[0]);
    let (_, json) = quorate_json(&["doctor", "--check", "--admin", &both, "--json"]);
    // A node of another cluster is not compared with this one's.
    assert_eq!(finding(&json, "settings")["what"], "one node reports its settings", "{json}");
}

/// The folder of certificates is examined, even if no node would accept them.
#[test]
fn certificates_are_looked_at() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path().join("authority");
    let at = at.to_str().unwrap();
    let made = quorate(&["cert", "init", "--dir", at, "--cluster", "blue"]);
    assert!(made.status.success(), "{made:?}");
    let made = quorate(&["cert", "node", "1", "--dir", at, "--days", "9", "--host", "localhost"]);
    assert!(made.status.success(), "{made:?}");
    let own = format!("{at}/node-1");
    let (_, json) = quorate_json(&["doctor", "--check", "--tls", &own, "--json"]);
    assert_eq!(finding(&json, "certificate node.crt")["state"], "warning");
    assert_eq!(finding(&json, "certificate ca.crt")["state"], "ok");
    assert_eq!(finding(&json, "certificates")["what"], "of node-1.blue.quorate.internal");
    fs::write(format!("{own}/node.crt"), "nonsense").unwrap();
    let output = quorate(&["doctor", "--check", "--tls", &own]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.starts_with("QUORATE CRITICAL - certificate node.crt: "), "{text}");
    assert_eq!(output.status.code(), Some(2));
    // No node would accept this certificate.
    let closed = format!("127.0.0.1:{}", free_port());
    let output = quorate(&["doctor", "--check", "--tls", &own, "--admin", &closed]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.starts_with("QUORATE UNKNOWN - "), "{text}");
    assert_eq!(output.status.code(), Some(3));
}

/// Predictions and measurements are shown together, with the resulting error.
#[test]
fn what_was_predicted_is_measured() {
    let (_, json) = quorate_json(&["doctor", "--measure", "--json"]);
    let compared = json["measured"].as_array().unwrap();
    assert_eq!(compared.len(), 4, "{json}");
    for one in compared {
        let [predicted, measured, error] =
            ["predicted", "measured", "error_percent"].map(|key| one[key].as_f64().unwrap());
        assert!(predicted > 0.0 && measured > 0.0, "{one}");
        let expected = (predicted / measured - 1.0) * 100.0;
        // All three are rounded to tenths.
        let rounding = 0.05 + 5.0 / measured * (1.0 + predicted / measured);
        assert!((error - expected).abs() <= rounding * 1.01, "{one}");
    }
    let of = |plane: &str, what: &str| {
        compared.iter().any(|one| one["plane"] == plane && one["what"] == what)
    };
    for plane in ["tcp", "udp"] {
        assert!(of(plane, "latency") && of(plane, "throughput"));
    }
}

#[test]
fn peers_that_are_there_or_not_are_told_apart() {
    let cluster = Cluster::start(1, &[]);
    let here = cluster.nodes.all()[0].ready.peer.clone();
    let (code, json) = quorate_json(&["doctor", "--peer", &here, "--json"]);
    assert_eq!(finding(&json, &format!("peer {here}"))["state"], "ok");
    assert_eq!(code, if json["healthy"] == true { 0 } else { 1 });
    let nowhere = "no-such-host.invalid:7451";
    let (code, json) = quorate_json(&["doctor", "--peer", nowhere, "--json"]);
    let found = finding(&json, &format!("peer {nowhere}"));
    assert_eq!((code, &found["state"]), (1, &json!("failing")), "{json}");
    assert_eq!(plane(&json, "tcp")["works"], false);
    assert_eq!(plane(&json, "tcp")["predicted"]["latency_us"], Json::Null);
}

/// Three nodes on loopback receive all of each other's datagrams and still serve afterwards.
#[test]
fn members_hear_each_other() {
    let cluster = Cluster::start(3, &[]);
    let admin = cluster.nodes.admin_addresses()[0].clone();
    // Nodes exchange addresses in their first handshakes.
    wait_for("three nodes in the status", || {
        let (_, json) = quorate_json(&["status", "--admin", &admin, "--json"]);
        let all = json["nodes"].as_array()?.iter().all(|node| node["error"].is_null());
        (all && json["nodes"].as_array()?.len() == 3).then_some(())
    });
    let group = group();
    let arguments =
        ["doctor", "--admin", &admin, "--plane-group", &group, "--count", "40", "--json"];
    let (_, json) = quorate_json(&arguments);
    let reach = &json["reach"];
    if reach["problems"].to_string().contains("cannot join") {
        let all = std::env::var("QUORATE_NO_SKIPS").is_ok_and(|value| value == "true");
        assert!(!all, "the reach of members is not tested: {reach}");
        eprintln!("skipped: the reach of members: {reach}");
        return;
    }
    assert_eq!(reach["problems"], json!([]), "{reach}");
    let place = |node: u32| json!({"node": node, "interface": "lo"});
    assert_eq!(reach["members"], json!([place(1), place(2), place(3)]));
    let row = |sender: u32| json!({"sender": sender, "sent": 40, "heard": [40, 40, 40]});
    assert_eq!(reach["matrix"], json!([row(1), row(2), row(3)]));
    assert_eq!(finding(&json, "reach")["state"], "ok", "{json}");
    assert_eq!(plane(&json, "tcp")["predicted"]["nodes"], 3);
    // All listeners have stopped, so the next test can start at once.
    let (_, json) = quorate_json(&arguments);
    assert_eq!(json["reach"]["problems"], json!([]), "{json}");

    // Every member reports that it lacks this interface, and none fails.
    let elsewhere = ["doctor", "--admin", &admin, "--interface", "no-such-if", "--json"];
    let (code, json) = quorate_json(&elsewhere);
    assert_eq!(code, 1, "{json}");
    let problems = json["reach"]["problems"].to_string();
    assert!(problems.contains("there is no interface no-such-if"), "{problems}");
    cluster.wait_until_all_serve();
}

/// A bundle of a running node contains all its pages and the named log, but none of the planted
/// secrets.
#[test]
fn a_bundle_has_everything_but_secrets() {
    let cluster = Cluster::start(1, &[]);
    let admin = cluster.nodes.admin_addresses()[0].clone();
    let folder = tempfile::tempdir().unwrap();
    let plane = "0123456789abcdef".repeat(4);
    let log = folder.path().join("n1.log");
    let key = "-----BEGIN PRIVATE KEY-----\nMC4CAQplanted\n-----END PRIVATE KEY-----";
    fs::write(&log, format!("first\n{key}\npassword=planted\n3 {plane}\nlast\n")).unwrap();
    let to = folder.path().join("b.tar.gz");
    let bundle = to.to_str().unwrap();
    let arguments = [
        "doctor",
        "--admin",
        &admin,
        "--count",
        "1",
        "--bundle",
        bundle,
        "--log",
        log.to_str().unwrap(),
        "--json",
    ];
    let (_, json) = quorate_json(&arguments);
    let files = json["bundle"]["files"].as_array().unwrap();
    let named = |name: &str| files.iter().any(|file| file["file"] == name);
    for name in [
        "report.json",
        "report.txt",
        "versions.json",
        "nodes/1/status.json",
        "nodes/1/metrics.txt",
        "nodes/1/members.json",
        "nodes/1/tuning.json",
        "logs/1-n1.log",
        "machine/proc/meminfo",
    ] {
        assert!(named(name), "{name}: {json}");
    }
    let unpacked = std::process::Command::new("tar").args(["-xzOf", bundle]).output().unwrap();
    assert!(unpacked.status.success(), "{unpacked:?}");
    let text = String::from_utf8(unpacked.stdout).unwrap();
    for part in ["first\n", "last\n", "quorate_"] {
        assert!(text.contains(part), "{part}");
    }
    for secret in ["planted", "MC4C", &plane] {
        assert!(!text.contains(secret), "{secret}");
    }
    // Existing files are not overwritten, which is reported before the examination.
    let (code, json) = quorate_json(&arguments);
    assert_eq!((code, &json["error"]["code"]), (1, &json!("exists")));
}

/// A bundle is created even if no node responds, since it is most useful then.
#[test]
fn a_bundle_is_made_also_when_nobody_answers() {
    let folder = tempfile::tempdir().unwrap();
    let to = folder.path().join("b.tar.gz");
    let bundle = to.to_str().unwrap();
    let closed = format!("127.0.0.1:{}", free_port());
    let (code, json) = quorate_json(&["doctor", "--admin", &closed, "--bundle", bundle, "--json"]);
    assert_eq!((code, &finding(&json, "nodes")["state"]), (1, &json!("failing")));
    let missing = json["bundle"]["missing"].to_string();
    assert!(missing.contains("no node answers at"), "{missing}");
    assert!(to.exists());
}

#[test]
fn bad_arguments_are_one_clear_error() {
    for (arguments, said) in [
        (&["doctor", "--plane-group", "10.0.0.1:7460"][..], "no multicast group"),
        (&["doctor", "--plane-group", "224.0.0.1:7460"], "routing protocols"),
        (&["doctor", "--interface", "a/b"], "must be the name of a network interface"),
        (&["doctor", "--peer", "nonsense"], "must be HOST:PORT (got nonsense)"),
        (&["doctor", "--admin", "nonsense"], "must be HOST:PORT (got nonsense)"),
        (&["doctor", "--count", "0"], "--count must be between 1 and 1000 (got 0)"),
        (&["doctor", "--check", "--measure"], "cannot be used with"),
        (&["doctor", "--check", "--bundle", "b"], "cannot be used with"),
        (&["doctor", "--ignore", "thp"], "--check"),
        (&["doctor", "--log", "f"], "--bundle"),
    ] {
        let output = quorate(arguments);
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?} {text}");
        assert!(text.contains(said) && text.matches("error:").count() == 1, "{text}");
    }
    let closed = format!("127.0.0.1:{}", free_port());
    let (code, json) = quorate_json(&["doctor", "--admin", &closed, "--json"]);
    assert_eq!((code, &json["error"]["code"]), (3, &json!("unreachable")));
    // Nothing can be created below a file.
    let file = tempfile::NamedTempFile::new().unwrap();
    let below = file.path().join("n1");
    let (code, json) = quorate_json(&["doctor", "--data", below.to_str().unwrap(), "--json"]);
    assert_eq!(finding(&json, "data folder")["state"], "failing", "{json}");
    assert_eq!(code, 1);
}

#[test]
fn help_says_how_it_exits() {
    let help = String::from_utf8(quorate(&["doctor", "--help"]).stdout).unwrap();
    for part in [
        "--data",
        "--peer",
        "--admin",
        "--plane-group",
        "--interface",
        "--count",
        "--measure",
        "--check",
        "--ignore",
        "--bundle",
        "--log",
        "Exits with 0",
        "docs/operate/doctor.md",
    ] {
        assert!(help.contains(part), "{part}: {help}");
    }
}
