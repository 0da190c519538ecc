//! Nodes with `--service etcd`: who may connect is told, and the service stays what it was.

use quorate_testbed::nodes::answer;

use crate::common::{Cluster, PATIENCE, quorate, wait_for};

#[test]
fn a_cluster_keeps_the_service_that_it_began_with() {
    let mut cluster = Cluster::start(3, &["--service", "etcd"]);
    let serves = |cluster: &Cluster| {
        for address in cluster.clients() {
            let version = answer(&address, "/version", PATIENCE).unwrap();
            assert!(version.contains(r#""etcdserver":"3.6.0""#), "{version}");
            wait_for("a healthy node", || {
                let health = answer(&address, "/health", PATIENCE)?;
                (health == r#"{"health":"true","reason":""}"#).then_some(())
            });
        }
    };
    serves(&cluster);
    let status = cluster.status(1).unwrap();
    assert_eq!(status["store"], "etcd-memory");
    cluster.node(1).kill().unwrap();
    let data = cluster.node(1).spec.data.display().to_string();
    let any = "127.0.0.1:0";
    let places = [
        "--client", any, "--admin", any, "--stream", any, "--peer", any,
    ];
    let refused = quorate(&[&["start", "--data", &data, "--service", "kv"], &places[..]].concat());
    assert_eq!(refused.status.code(), Some(2));
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(
        said.contains("this node's cluster serves etcd, not kv"),
        "{said}"
    );
    cluster.node(1).restart().unwrap();
    cluster.wait_until_all_serve();
    serves(&cluster);
}
