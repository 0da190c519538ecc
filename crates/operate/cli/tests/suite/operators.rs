//! Output for operators: lines on standard error, readiness, status.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    process::{Command, Stdio},
};

use crate::common::{
    Cluster, NodeProcess, Signal, http, patient, program, quorate_json, signal, single, wait_for,
};
use quorate_client::Client;
use serde_json::Value as Json;

/// Returns the lines that a node has written to standard error.
fn lines(cluster: &mut Cluster, node: u32) -> Vec<String> {
    let said = fs::read_to_string(&cluster.node(node).spec.log_path).unwrap();
    said.lines().map(str::to_owned).collect()
}

/// Waits for a line at or after index `from` that contains all of the parts.
fn wait_for_line(cluster: &mut Cluster, node: u32, from: usize, parts: &[&str]) -> String {
    let what = format!("a line of node {node} with {parts:?}");
    wait_for(&what, || {
        let lines = lines(cluster, node);
        let mut new = lines.into_iter().skip(from);
        new.find(|line| parts.iter().all(|part| line.contains(part)))
    })
}

/// After a leader dies, another one is elected, and the first one returns. Each node logs these
/// events and their causes.
#[test]
fn standard_error_tells_why_leadership_moved_and_who_came_and_went() {
    let mut cluster = Cluster::start(3, &[]);
    let old = cluster.leader();
    let mut client = cluster.client_from(old);
    client.run(&[b"SET", b"x", b"1"]).unwrap();
    // All nodes have caught up and are connected before the first fault.
    for node in 1..=3 {
        wait_for_line(&mut cluster, node, 0, &["INFO caught up: "]);
        for peer in (1..=3).filter(|peer| *peer != node) {
            let peer = format!("peer={peer} boot=1");
            wait_for_line(&mut cluster, node, 0, &["INFO peer connected", &peer]);
        }
    }
    let before = [1, 2, 3].map(|node| lines(&mut cluster, node).len());
    let seen = |node: u32| before[node as usize - 1];

    cluster.node(old).kill().unwrap();
    let others: Vec<u32> = (1..=3).filter(|node| *node != old).collect();
    // The leader's connections break at once, but a busy node may notice its silence first.
    let gone = format!("leader {old} ");
    let new = wait_for("another leader", || {
        others.iter().copied().find(|node| {
            let status = cluster.status(*node);
            status.is_some_and(|status| status["role"] == "leader")
        })
    });
    for node in &others {
        let peer = format!("peer={old}");
        wait_for_line(
            &mut cluster,
            *node,
            seen(*node),
            &["INFO peer disconnected: connection closed", &peer],
        );
        wait_for_line(&mut cluster, *node, seen(*node), &["WARN leader lost: ", &gone]);
    }
    let own = format!("node={new}");
    let leads = wait_for_line(&mut cluster, new, seen(new), &["INFO elected leader in ", &own]);
    let ballot = leads.split_whitespace().find(|word| word.starts_with("ballot="));
    let ballot = ballot.unwrap().to_owned();
    wait_for_line(&mut cluster, new, seen(new), &["INFO starting an election: ", &ballot]);
    let third = *others.iter().find(|node| **node != new).unwrap();
    let follows = format!("INFO following leader {new}: ");
    wait_for_line(&mut cluster, third, seen(third), &[&follows, &ballot]);

    cluster.node(old).restart().unwrap();
    wait_for_line(&mut cluster, old, seen(old), &["INFO log read: "]);
    wait_for_line(&mut cluster, old, seen(old), &["INFO following leader "]);
    wait_for_line(&mut cluster, old, seen(old), &["INFO caught up: "]);
    for node in &others {
        let peer = format!("peer={old} boot=2");
        wait_for_line(&mut cluster, *node, seen(*node), &["INFO peer connected", &peer]);
    }
    // After a handover, the old leader names the new one. No node logs a warning.
    let admin = cluster.node(new).ready.admin.clone();
    wait_for("a transfer", || {
        let (code, _) = quorate_json(&["transfer", "--admin", &admin, "--json"]);
        (code == 0).then_some(())
    });
    let led = wait_for_line(&mut cluster, new, seen(new), &["stepped down: ", "higher"]);
    assert!(led.contains("INFO"), "{led}");
    // Each line appears once, and no line is about the tuner.
    for node in 1..=3 {
        let lines = lines(&mut cluster, node);
        let new = &lines[seen(node)..];
        let count = |part: &str| new.iter().filter(|line| line.contains(part)).count();
        assert!(count("leader lost: ") <= 2, "{new:#?}");
        assert_eq!(count("batch and window"), 0, "{new:#?}");
        assert_eq!(count("ERROR"), 0, "{new:#?}");
    }
}

/// [read-2] A leader whose followers are stopped considers itself the leader for a while. It is not
/// ready even during that time, because a read would wait.
#[test]
fn a_leader_without_followers_is_not_ready_at_once() {
    let mut cluster = Cluster::start(3, &["--heartbeat-ms", "100", "--election-ms", "1000-1200"]);
    let leader = cluster.leader();
    let admin = cluster.node(leader).ready.admin.clone();
    assert_eq!(http(&admin, "/ready").unwrap().0, 200);
    for node in (1..=3).filter(|node| *node != leader) {
        let process = cluster.node(node);
        signal(process, Signal::STOP);
        let stat = format!("/proc/{}/stat", process.id());
        wait_for("a process that is stopped", || {
            fs::read_to_string(&stat).unwrap().contains(") T ").then_some(())
        });
    }
    let (code, body) = http(&admin, "/ready").unwrap();
    assert_eq!(code, 503, "{body}");
    let json: Json = serde_json::from_str(&body).unwrap();
    assert_eq!(json["error"]["code"], "not_ready");
    for node in (1..=3).filter(|node| *node != leader) {
        signal(cluster.node(node), Signal::CONT);
    }
    cluster.wait_until_all_serve();
}

/// All errors use the same JSON document.
#[test]
fn every_error_of_the_admin_address_is_the_same_document() {
    let folder = tempfile::tempdir().unwrap();
    let node = serve(&folder);
    let ask = |head: &str, body: &str| {
        use std::io::{Read as _, Write as _};
        let mut stream = std::net::TcpStream::connect(&node.ready.admin).unwrap();
        let length = body.len();
        write!(stream, "{head}\r\nContent-Length: {length}\r\n\r\n{body}").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.contains("application/json"), "{head}");
        let code: u16 = head.split(' ').nth(1).unwrap().parse().unwrap();
        let json: Json = serde_json::from_str(body).unwrap();
        (code, json["error"]["code"].as_str().unwrap().to_owned())
    };
    let json = "Content-Type: application/json";
    for (head, body, expected) in [
        ("GET /nowhere HTTP/1.0".to_owned(), "", (404, "not_found")),
        ("GET /transfer HTTP/1.0".to_owned(), "", (405, "bad_method")),
        ("POST /transfer HTTP/1.0".to_owned(), "{}", (415, "unsupported_media_type")),
        (format!("POST /transfer HTTP/1.0\r\n{json}"), "{", (400, "bad_request")),
        (format!("POST /transfer HTTP/1.0\r\n{json}"), "{\"two\":2}", (422, "bad_request")),
        (format!("POST /tuning HTTP/1.0\r\n{json}"), &" ".repeat(5000), (413, "too_large")),
        (format!("POST /transfer HTTP/1.0\r\n{json}"), "{\"to\":9}", (409, "no_target")),
    ] {
        let (code, word) = ask(&head, body);
        assert_eq!((code, word.as_str()), expected, "{head}");
    }
}

fn serve(folder: &tempfile::TempDir) -> NodeProcess {
    let mut node = NodeProcess::spawn(single(&folder.path().join("n"), &[])).unwrap();
    node.wait_ready().unwrap();
    wait_for("a node that serves", || (http(&node.ready.admin, "/ready")?.0 == 200).then_some(()));
    node
}

/// `quorate status --watch | head -1` ends quietly when its output is closed.
#[test]
fn watching_ends_with_its_reader() {
    let folder = tempfile::tempdir().unwrap();
    let node = serve(&folder);
    let mut watching = Command::new(program())
        .args(["status", "--watch", "--admin", &node.ready.admin])
        .env_remove("QUORATE_JSON")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut first = String::new();
    let mut reader = BufReader::new(watching.stdout.take().unwrap());
    reader.read_line(&mut first).unwrap();
    assert!(first.contains("node 1 leads"), "{first}");
    drop(reader);
    let status = wait_for("the end of the watch", || watching.try_wait().unwrap());
    assert_eq!(status.code(), Some(0));
    let mut said = String::new();
    std::io::Read::read_to_string(&mut watching.stderr.take().unwrap(), &mut said).unwrap();
    assert_eq!(said, "");
}

/// With `--json`, every poll prints one document on one line.
#[test]
fn watching_as_json_is_a_line_for_each_look() {
    let folder = tempfile::tempdir().unwrap();
    let node = serve(&folder);
    let mut watching = Command::new(program())
        .args(["status", "--watch", "--json", "--admin", &node.ready.admin])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(watching.stdout.take().unwrap()).lines();
    let mut next = || {
        let line: Json = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
        assert_eq!((&line["leader"], &line["nodes"][0]["node"]), (&1.into(), &1.into()), "{line}");
        line["nodes"][0]["applied"].as_u64().unwrap()
    };
    let first = next();
    Client::new(std::slice::from_ref(&node.ready.client), patient())
        .run(&[b"SET", b"x", b"1"])
        .unwrap();
    let mut later = next();
    while later == first {
        later = next();
    }
    assert!(later > first);
    watching.kill().unwrap();
    watching.wait().unwrap();
}

/// The status includes the growth rate of the log after a while.
#[test]
fn status_says_how_fast_the_log_grows() {
    let folder = tempfile::tempdir().unwrap();
    let node = serve(&folder);
    let mut client = Client::new(std::slice::from_ref(&node.ready.client), patient());
    let value = vec![b'v'; 10_000];
    let disk = wait_for("a log that grows", || {
        client.run(&[b"SET", b"x", &value]).unwrap();
        let (_, body) = http(&node.ready.admin, "/status")?;
        let status: Json = serde_json::from_str(&body).unwrap();
        let disk = status["disk"].clone();
        (disk["log_bytes_per_second"].as_u64()? > 10_000).then_some(disk)
    });
    assert!(disk["free_bytes"].as_u64().unwrap() > 0, "{disk}");
    assert!(disk["full_in_seconds"].is_null(), "a forecast takes an hour: {disk}");
    let metrics = http(&node.ready.admin, "/metrics").unwrap().1;
    assert!(metrics.contains("\nquorate_log_growth_bytes_per_second "));
    assert!(metrics.contains("\nquorate_disk_free_bytes "));
}
