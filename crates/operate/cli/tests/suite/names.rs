//! Peers configured by host name. When a name's address changes, the name is resolved again and the
//! node is found.
//!
//! Names come from a file that replaces /etc/hosts in mount namespaces. Without namespaces, the
//! test is skipped with a message.

use std::{
    fs::{self, Permissions},
    net::{Ipv4Addr, SocketAddrV4},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Command,
};

use crate::common::{Cluster, NodeSpec, program, wait_for};
use quorate_testbed::{nodes::NodeCluster, process};

/// Writes a script that executes another program in the same process, with the host names in
/// `names` instead of the machine's.
fn with_names(folder: &Path, names: &Path) -> PathBuf {
    let script = folder.join("quorate.sh");
    let own_user = match rustix::process::geteuid().is_root() {
        true => "",
        false => "--map-root-user",
    };
    let text = format!(
        "#!/bin/sh\nexec unshare {own_user} --mount sh -c \
         'mount --bind {} /etc/hosts && exec \"$0\" \"$@\"' {} \"$@\"\n",
        names.display(),
        program().display()
    );
    fs::write(&script, text).unwrap();
    fs::set_permissions(&script, Permissions::from_mode(0o755)).unwrap();
    script
}

/// Writes the address of each node's name to the file that is mounted.
fn write_names(file: &Path, addresses: [&str; 3]) {
    let lines = (1..).zip(addresses);
    let lines = lines.map(|(node, address)| format!("{address} q-{node}.test\n"));
    let text: String = lines.collect();
    fs::write(file, format!("127.0.0.1 localhost\n{text}")).unwrap();
}

#[test]
fn a_node_whose_name_leads_elsewhere_is_found_there() {
    let mut nodes = NodeCluster::with_empty_folder("quorate-test-").unwrap();
    let names = nodes.data_folder().join("hosts");
    write_names(&names, ["127.0.0.1", "127.0.0.2", "127.0.0.3"]);
    let script = with_names(nodes.data_folder(), &names);
    let trial = Command::new(&script).arg("--version").output();
    if !trial.is_ok_and(|output| output.status.success()) {
        let why = "names of its own cannot be given to a node: no mount namespaces";
        eprintln!("skipped: {why}");
        let all = std::env::var("QUORATE_NO_SKIPS").is_ok_and(|value| value == "true");
        assert!(!all, "{why}");
        return;
    }
    // Each node has one port, which it uses at every address. The other addresses do not change.
    let ports: Vec<u16> = (0..3).map(|_| process::free_port().unwrap()).collect();
    let list = (1..).zip(&ports).map(|(node, port)| format!("{node}=q-{node}.test:{port}"));
    let list = list.collect::<Vec<_>>().join(",");
    let specs = (1..).zip(&ports).map(|(node, port): (u32, &u16)| {
        let free = || format!("127.0.0.1:{}", process::free_port().unwrap());
        let flags = [
            ("--node", node.to_string()),
            ("--cluster", list.clone()),
            ("--peer", format!("q-{node}.test:{port}")),
            ("--client", free()),
            ("--admin", free()),
            ("--stream", free()),
        ];
        let flags = flags.into_iter();
        NodeSpec {
            program: script.clone(),
            data_folder: nodes.data_folder().join(format!("node-{node}")),
            flags: flags.flat_map(|(flag, value)| [flag.to_owned(), value]).collect(),
            environment: Vec::new(),
            log_path: nodes.data_folder().join(format!("node-{node}.log")),
            dies_with_parent: true,
        }
    });
    let specs: Vec<NodeSpec> = specs.collect();
    nodes.start(specs).unwrap();
    let mut cluster = Cluster { nodes };
    cluster.wait_until_all_serve();
    assert_eq!(cluster.node(1).ready.peer, format!("127.0.0.1:{}", ports[0]));

    // The other nodes must dial node 1, which by itself opens only one of the two connections,
    // after some seconds.
    cluster.nodes.terminate(&[1]).unwrap();
    let mut client = cluster.client_from(2);
    client.run(&[b"SET", b"while", b"away"]).unwrap();
    write_names(&names, ["127.0.0.11", "127.0.0.2", "127.0.0.3"]);
    cluster.node(1).restart().unwrap();
    let moved = SocketAddrV4::new(Ipv4Addr::new(127, 0, 0, 11), ports[0]);
    assert_eq!(cluster.node(1).ready.peer, moved.to_string());
    wait_for("connections of nodes 2 and 3 to where node 1 is now", || {
        (connections_to(moved) >= 4).then_some(())
    });
    cluster.wait_until_all_serve();
    cluster.wait_until_equal();
}

/// Returns the number of connections from this machine to an address.
fn connections_to(address: SocketAddrV4) -> usize {
    const ESTABLISHED: &str = "01";
    let table = fs::read_to_string("/proc/net/tcp").unwrap();
    let ip = u32::from_ne_bytes(address.ip().octets());
    let other = format!("{ip:08X}:{:04X}", address.port());
    let is_there = |line: &&str| {
        let mut words = line.split_whitespace().skip(2);
        words.next() == Some(other.as_str()) && words.next() == Some(ESTABLISHED)
    };
    table.lines().filter(is_there).count()
}
