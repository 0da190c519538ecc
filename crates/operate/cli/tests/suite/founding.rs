//! A founder that lost its disk must not silently form a second cluster.

use std::{
    fs,
    io::{BufRead as _, BufReader, Write as _},
    net::TcpStream,
};

use crate::common::{
    Cluster, NodeProcess, START_TIMEOUT, Signal, http, signal, wait_end, wait_for,
};
use quorate_client::Reply;

fn value(cluster: &Cluster, node: u32) -> Reply {
    cluster.client_of(node).read(&[b"GET", b"x"]).unwrap()
}

fn said(node: &NodeProcess, what: &str) -> bool {
    fs::read_to_string(&node.spec.log_path).unwrap().contains(what)
}

#[test]
fn a_founder_without_its_disk_does_not_found_beside_its_cluster() {
    let mut cluster = Cluster::start(3, &[]);
    cluster.client_from(2).run(&[b"SET", b"x", b"1"]).unwrap();
    cluster.node(1).kill().unwrap();
    let spec = cluster.node(1).spec.clone();
    let aside = spec.data_folder.with_extension("aside");
    fs::rename(&spec.data_folder, &aside).unwrap();

    // A single other node suffices to detect the loss.
    for gone in [None, Some(2)] {
        if let Some(gone) = gone {
            cluster.node(gone).kill().unwrap();
        }
        // Wait no longer than a test may take, since a founding node does not end.
        let mut node = NodeProcess::spawn(spec.clone()).unwrap();
        let code = wait_end(&mut node).code();
        let text = fs::read_to_string(&spec.log_path).unwrap();
        assert_eq!(code, Some(1), "{text}");
        assert!(text.contains("belongs to a cluster already"), "{text}");
        assert!(text.contains("hint: if this node lost its folder"), "{text}");
        assert!(!spec.data_folder.exists(), "nothing was made");
    }
    cluster.node(2).restart().unwrap();
    let survivor =
        wait_for("the others to serve", || cluster.client_of(3).read(&[b"GET", b"x"]).ok());
    assert_eq!(survivor, Reply::Bulk(b"1".to_vec()));
    assert!(said(cluster.node(3), "starts with an empty folder"));

    // With its folder, the founder is a member again.
    fs::rename(&aside, &spec.data_folder).unwrap();
    cluster.node(1).restart().unwrap();
    cluster.wait_until_all_serve();
    cluster.wait_until_equal();
}

/// Founders that cannot contact each other form two clusters. Neither cluster harms the other, and
/// all nodes report the conflict.
#[test]
fn two_clusters_at_one_list_of_addresses_say_so() {
    let mut cluster = Cluster::start(3, &["--client-timeout-ms", "300"]);
    cluster.client_from(1).run(&[b"SET", b"x", b"1"]).unwrap();
    for node in cluster.nodes.all() {
        signal(node, Signal::TERM);
    }
    for node in cluster.nodes.all_mut() {
        assert_eq!(wait_end(node).code(), Some(0));
    }
    let data = cluster.node(1).spec.data_folder.clone();
    fs::rename(&data, data.with_extension("aside")).unwrap();
    for node in 1..=3 {
        cluster.node(node).restart().unwrap();
    }

    for node in 1..=3 {
        let others: &[u32] = if node == 1 { &[2, 3] } else { &[1] };
        wait_for("the notices", || {
            let status = cluster.status(node)?;
            let notices: Vec<_> = status["notices"].as_array()?.iter().collect();
            let of = |other: &u32| {
                let begins = format!("node {other} at ");
                let notice = |notice: &&serde_json::Value| {
                    let text = notice.as_str().unwrap();
                    text.starts_with(&begins) && text.contains("another cluster")
                };
                notices.iter().any(notice)
            };
            (notices.len() == others.len() && others.iter().all(of)).then_some(())
        });
        assert!(said(cluster.node(node), "belongs to another cluster"));
    }
    // The old cluster has its quorum and its data.
    for node in 2..=3 {
        let admin = cluster.node(node).ready.admin.clone();
        wait_for("the old cluster", || (http(&admin, "/ready")?.0 == 200).then_some(()));
        assert_eq!(value(&cluster, node), Reply::Bulk(b"1".to_vec()));
    }
    // The new one has no quorum, reports why, and accepts nothing.
    let admin = cluster.node(1).ready.admin.clone();
    let (code, body) = http(&admin, "/ready").unwrap();
    assert_eq!(code, 503);
    assert!(body.contains("belongs to another cluster"), "{body}");
    let mut client = TcpStream::connect(&cluster.node(1).ready.client).unwrap();
    client.set_read_timeout(Some(START_TIMEOUT)).unwrap();
    client.write_all(b"SET x 2\r\n").unwrap();
    let mut answer = String::new();
    BufReader::new(client).read_line(&mut answer).unwrap();
    assert!(answer.starts_with("-NOQUORUM"), "{answer}");
}
