//! Monitoring: health checks and metrics.

use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
};

use quorate_etcd::proto::health::{
    HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient,
};
use tonic::Code;

use super::{Node, check, get, put, runtime};

fn page(node: &Node, path: &str) -> String {
    let mut stream = TcpStream::connect(&node.address).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

#[test]
fn a_member_says_whether_it_serves() {
    let folder = tempfile::tempdir().unwrap();
    let node = Node::alone(folder.path());
    runtime().block_on(async {
        let mut client = HealthClient::new(node.channel());
        let of = |service: &str| HealthCheckRequest { service: service.to_owned() };
        for service in ["", "etcdserverpb.KV"] {
            let said = client.check(of(service)).await.unwrap().into_inner();
            assert_eq!(said.status(), ServingStatus::Serving);
        }
        check(client.check(of("else")).await, Code::NotFound, "unknown service");
        for (service, expected) in
            [("", ServingStatus::Serving), ("else", ServingStatus::ServiceUnknown)]
        {
            let mut watched = client.watch(of(service)).await.unwrap().into_inner();
            let said = watched.message().await.unwrap().unwrap();
            assert_eq!(said.status(), expected);
        }
    });
}

#[test]
fn figures_have_the_names_of_etcd() {
    let folder = tempfile::tempdir().unwrap();
    let node = Node::alone(folder.path());
    runtime().block_on(async {
        let mut kv = node.kv();
        for key in ["a", "b"] {
            kv.put(put(key, "1")).await.unwrap();
        }
        kv.range(get("")).await.unwrap_err();
    });
    let text = page(&node, "/metrics");
    let method = |method| {
        format!("grpc_method=\"{method}\",grpc_service=\"etcdserverpb.KV\",grpc_type=\"unary\"")
    };
    let (put, range) = (method("Put"), method("Range"));
    for line in [
        "etcd_server_has_leader 1",
        "etcd_server_is_leader 1",
        "etcd_server_quota_backend_bytes 0",
        "etcd_debugging_mvcc_current_revision 3",
        "etcd_debugging_mvcc_watcher_total 0",
        "etcd_server_version{server_version=\"3.6.0\"} 1",
        &format!("grpc_server_started_total{{{put}}} 2"),
        &format!("grpc_server_handled_total{{grpc_code=\"OK\",{put}}} 2"),
        &format!("grpc_server_handled_total{{grpc_code=\"InvalidArgument\",{range}}} 1"),
    ] {
        assert!(text.lines().any(|found| found == line), "{line} is not in {text}");
    }
    for name in [
        "etcd_mvcc_db_total_size_in_bytes",
        "etcd_server_proposals_committed_total",
        "etcd_disk_wal_fsync_duration_seconds_count",
        "etcd_disk_wal_fsync_duration_seconds_bucket{le=\"+Inf\"}",
        "process_resident_memory_bytes",
        "process_open_fds",
        "process_max_fds",
        "etcd_network_client_grpc_received_bytes_total",
    ] {
        let found = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        assert!(found.is_some_and(|value| value.parse::<u64>().unwrap() > 0), "{name}");
    }
}
