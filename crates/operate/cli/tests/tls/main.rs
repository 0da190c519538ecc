//! Real nodes with certificates: every client and node of the cluster is served, every other is
//! refused at every port, and certificates and keys can be replaced while all run.
//!
//! This is a separate program because a process uses one certificate for all admin addresses
//! ([`quorate_admin::client`]), and the other tests use none.
#![allow(clippy::unwrap_used, reason = "a test may fail by panic")]

#[path = "../suite/common/mod.rs"]
mod common;

use std::{
    fs,
    io::{ErrorKind, Read as _, Write as _},
    net::TcpStream,
    path::{Path, PathBuf},
    process::{Command, Output},
    sync::OnceLock,
    time::{Duration, SystemTime},
};

use crate::common::{
    NodeProcess, START_TIMEOUT, once_answered, program, quorate, quorate_json, wait_for,
};
use quorate_client::{Client, Options, Reply};
use quorate_core::{
    level::Levels,
    node_id::{Member, NodeId},
};
use quorate_testbed::{nodes::NodeCluster, process};
use quorate_tls::{ClientFiles, ClientTrust, NodeFiles, NodeTrust, authority, stream::Stream};
use quorate_wire::{Frame, Hello, Join, Lane, encode};
use tempfile::TempDir;

/// Returns the certificates of this process. Like every program, it connects only to clusters of
/// one authority.
fn certs() -> &'static Path {
    static CERTS: OnceLock<TempDir> = OnceLock::new();
    let folder = CERTS.get_or_init(|| {
        let folder = TempDir::new().unwrap();
        make(folder.path(), "orders", 3);
        quorate_admin::client::use_certificate(&ClientFiles::in_folder(
            &folder.path().join("client-ann"),
        ))
        .unwrap();
        folder
    });
    folder.path()
}

fn make(folder: &Path, cluster: &str, nodes: u32) {
    authority::create_authorities(folder, cluster, 90, false).unwrap();
    for node in 1..=nodes {
        authority::issue_node_certificates(folder, node, &["127.0.0.1".to_owned()], 90, false)
            .unwrap();
    }
    authority::issue_client_certificate(folder, "ann", 90, false).unwrap();
}

/// Nodes, each with its own copy of a certificate folder that a test may change.
struct Cluster {
    nodes: NodeCluster,
}

impl Cluster {
    fn start(count: u32, flags: &[&str]) -> Self {
        let mut nodes = NodeCluster::with_empty_folder("quorate-tls-").unwrap();
        let specs =
            process::loopback_cluster(&program(), nodes.data_folder(), count, flags).unwrap();
        let specs = (1..).zip(specs).map(|(node, mut spec): (u32, _)| {
            let own = nodes.data_folder().join(format!("tls-{node}"));
            copy(&certs().join(format!("node-{node}")), &own);
            spec.set_flag("--tls", own.to_str().unwrap());
            spec
        });
        let specs = specs.collect();
        nodes.start(specs).unwrap();
        nodes.wait_until_all_ready().unwrap();
        Self { nodes }
    }

    fn folder(&self, node: u32) -> PathBuf {
        self.nodes.data_folder().join(format!("tls-{node}"))
    }

    fn node(&self, id: u32) -> &NodeProcess {
        &self.nodes.all()[id as usize - 1]
    }

    fn client(&self) -> Client {
        let options =
            Options { command_timeout: START_TIMEOUT, tls: Some(ann()), ..Options::default() };
        Client::new(&self.nodes.client_addresses(), options)
    }

    /// Waits until the disk of a node has everything that another node knows to be decided.
    fn wait_until_durable(&self, id: u32) {
        let decided = wait_for("a status", || Some(self.nodes.status(1)?.decided));
        wait_for("the rest", || (self.nodes.status(id)?.durable >= decided).then_some(()));
    }

    fn refused(&self, id: u32) -> u64 {
        self.nodes.metric(id, "quorate_net_tls_failures_total").unwrap()
    }
}

fn ann() -> ClientTrust {
    ClientTrust::load(&ClientFiles::in_folder(&certs().join("client-ann"))).unwrap()
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for file in fs::read_dir(from).unwrap() {
        put(&file.unwrap().path(), to);
    }
}

/// Replaces a file atomically, so that a node reads either the old or the new one.
fn put(file: &Path, folder: &Path) {
    let new = folder.join("new");
    fs::copy(file, &new).unwrap();
    fs::rename(&new, folder.join(file.file_name().unwrap())).unwrap();
}

fn text(output: &Output) -> String {
    let all = [&output.stdout[..], &output.stderr[..]].concat();
    String::from_utf8_lossy(&all).into_owned()
}

#[test]
fn who_belongs_to_a_cluster_is_served_at_every_door() {
    let mut cluster = Cluster::start(3, &["--store", "memory"]);
    let mut client = cluster.client();
    let large = vec![b'x'; 1 << 20];
    for (key, value) in [(&b"small"[..], &b"1"[..]), (b"large", &large), (b"empty", b"")] {
        client.run(&[b"SET", key, value]).unwrap();
        assert_eq!(client.run(&[b"GET", key]).unwrap(), Reply::Bulk(value.to_vec()));
    }
    // Votes, values and decisions reach a node that was down.
    cluster.nodes.node(3).unwrap().kill().unwrap();
    for number in 0..200 {
        client.run(&[b"SET", format!("k{number}").as_bytes(), &large[..9000]]).unwrap();
    }
    cluster.nodes.node(3).unwrap().restart().unwrap();
    wait_for("all nodes to have applied the same", || {
        let applied = |node| Some(cluster.nodes.status(node)?.applied);
        (applied(3)? > 200 && applied(3)? == applied(1)?).then_some(())
    });

    let own = certs().join("client-ann");
    let own = own.to_str().unwrap();
    let admin = cluster.node(1).ready.admin.clone();
    let status = quorate(&["status", "--json", "--admin", &admin, "--tls", own]);
    assert!(status.status.success(), "{}", text(&status));
    let view = cluster.nodes.status(1).unwrap();
    assert_eq!(view.certificates.len(), 4);
    assert!(view.certificates.iter().all(|one| one.days_left >= 89), "{:?}", view.certificates);
    assert!(
        cluster
            .nodes
            .metric(1, "quorate_certificate_ends_unix_seconds{what=\"node\",number=\"0\"}")
            .unwrap()
            > 0
    );

    // Byte streams through the command line.
    let stream = cluster.node(2).ready.stream.clone();
    let file = cluster.nodes.data_folder().join("file");
    fs::write(&file, &large).unwrap();
    let file = file.to_str().unwrap();
    let put =
        quorate(&["stream", "put", file, "--name", "notes", "--stream", &stream, "--tls", own]);
    assert!(put.status.success(), "{}", text(&put));
    // A put that resumes compares the existing bytes, over TLS as well.
    let again = ["stream", "put", file, "--name", "notes", "--stream", &stream, "--tls", own];
    let put = quorate(&[&again[..], &["--resume"]].concat());
    assert!(put.status.success(), "{}", text(&put));
    let stream = cluster.node(3).ready.stream.clone();
    let cat = quorate(&["stream", "cat", "notes", "--stream", &stream, "--tls", own]);
    assert!(
        cat.stdout == large,
        "{} bytes, {}",
        cat.stdout.len(),
        String::from_utf8_lossy(&cat.stderr)
    );
}

/// A benchmark works with a certificate, even if replies exceed a TLS record. Without a
/// certificate, or with one from another authority, it yields no result.
#[test]
fn a_load_is_offered_by_who_belongs_to_the_cluster() {
    let others = TempDir::new().unwrap();
    make(others.path(), "orders", 1);
    for (store, service, values) in [("memory", "kv", "40000"), ("none", "log", "64")] {
        let cluster = Cluster::start(3, &["--store", store, "--durability", "volatile"]);
        let connect = cluster.nodes.client_addresses().join(",");
        let bench = |certificate: Option<&Path>| {
            let mut words = vec!["bench", service, "--connect", &connect, "--outstanding", "8"];
            words.extend(["--value-size", values, "--duration", "200ms", "--warmup", "50ms"]);
            words.extend(["--repeat", "2", "--json"]);
            if service == "kv" {
                words.extend(["--reads", "50"]);
            }
            if let Some(folder) = certificate {
                words.extend(["--tls", folder.to_str().unwrap()]);
            }
            quorate_json(&words)
        };
        let (code, document) = once_answered(|| bench(Some(&certs().join("client-ann"))));
        assert_eq!(code, 0, "{document}");
        let row = &document["rows"][0];
        assert_eq!((&row["valid"], &row["errors"]), (&true.into(), &0.into()), "{row}");
        assert_eq!(row["durability"], "volatile", "the nodes said so themselves");
        assert!(document["notes"].to_string().contains("TLS"), "{document}");
        let stranger = others.path().join("client-ann");
        for certificate in [None, Some(&*stranger)] {
            let (code, error) = bench(certificate);
            assert_ne!(code, 0, "{error}");
            let error = error.to_string();
            assert!(error.contains("--tls"), "{error}");
        }
    }
}

/// Connects, sends `says`, and returns everything received until the peer closes the connection.
fn heard(address: &str, says: &[u8]) -> Vec<u8> {
    let mut socket = TcpStream::connect(address).unwrap();
    socket.set_read_timeout(Some(START_TIMEOUT)).unwrap();
    // The peer may close before everything is sent.
    let _ = socket.write_all(says);
    let mut heard = Vec::new();
    match socket.read_to_end(&mut heard) {
        Ok(_) => {}
        Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}"),
    }
    heard
}

/// Returns whether a reply reveals nothing about a cluster, a version or our protocols: at most a
/// TLS alert.
fn says_nothing(heard: &[u8]) -> bool {
    heard.len() < 32 && (heard.is_empty() || heard[0] == 0x15)
}

/// Performs a handshake. Returns an error if it fails at either end.
fn shakes_hands(address: &str, session: quorate_tls::session::Session) -> Result<(), String> {
    let socket = TcpStream::connect(address).unwrap();
    let stream = Stream::new(socket, Some(session));
    stream.handshake_within(START_TIMEOUT).map_err(|error| error.to_string())?;
    // The client learns of the refusal only from its first read.
    match (&stream).read(&mut [0; 64]) {
        Ok(0) => Err("it was ended".to_owned()),
        Ok(_) => Ok(()),
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(()),
        Err(error) => Err(error.to_string()),
    }
}

/// Returns a copy of the authorities, for creating more certificates.
fn authorities() -> TempDir {
    let folder = TempDir::new().unwrap();
    for file in ["ca.crt", "ca.key", "clients-ca.crt", "clients-ca.key"] {
        fs::copy(certs().join(file), folder.path().join(file)).unwrap();
    }
    folder
}

#[test]
fn strangers_are_refused_at_every_door_and_learn_nothing() {
    let cluster = Cluster::start(1, &["--store", "memory", "--stream-raw", "127.0.0.1:0"]);
    cluster.client().run(&[b"SET", b"secret", b"42"]).unwrap();
    let ready = cluster.node(1).ready.clone();
    let doors = [&ready.peer, &ready.client, &ready.admin, &ready.stream, &ready.stream_raw];
    let mut attempts = 0;

    // Connections without TLS.
    let hello = Hello {
        levels: Levels::SUPPORTED,
        cluster: u128::from_str_radix(&cluster.nodes.status(1).unwrap().cluster, 16).unwrap(),
        from: Member::first(2),
        boot: 1000,
        to: NodeId(1),
        lane: Lane::Control,
        client: "",
        admin: "",
        stream: "",
    };
    let mut greeting = Vec::new();
    encode(Member::first(2), &Frame::Hello(hello), &mut greeting).unwrap();
    let mut joining = Vec::new();
    let join = Join { node: NodeId(2), nonce: 1, list_hash: 0 };
    encode(Member::first(2), &Frame::Join(join), &mut joining).unwrap();
    // A handshake record longer than allowed, and one that never ends.
    let oversized = [&[0x16, 3, 1, 0xff, 0xff][..], &[1; 20_000]].concat();
    let endless = [&[0x16, 3, 1, 0x40, 0, 1, 0xff, 0xff, 0xff][..], &[0; 0x4000 - 4]].concat();
    // A hello of SSL 3, and a TLS 1.0 session that requests renegotiation.
    let old = [0x16, 3, 0, 0, 4, 1, 0, 0, 0];
    let renegotiation = [0x16, 3, 1, 0, 4, 0, 0, 0, 0];
    let plain: [&[u8]; 9] = [
        &greeting,
        &joining,
        b"*1\r\n$8\r\nFLUSHALL\r\n",
        b"*2\r\n$3\r\nGET\r\n$6\r\nsecret\r\n",
        b"GET /status HTTP/1.1\r\nhost: x\r\n\r\n",
        &oversized,
        &endless.repeat(5),
        &old,
        &renegotiation,
    ];
    for door in doors {
        for says in plain {
            let heard = heard(door, says);
            assert!(says_nothing(&heard), "{door}: {:?}", String::from_utf8_lossy(&heard));
            attempts += 1;
        }
    }

    // Connections with certificates of other authorities.
    let strangers = TempDir::new().unwrap();
    let at = |name: &str| strangers.path().join(name);
    make(&at("same-name"), "orders", 2);
    make(&at("other"), "stock", 2);
    for folder in ["same-name", "other"] {
        for node in ["node-1", "node-2", "client-ann"] {
            // The certificates trust the right authorities, but the cluster does not trust them.
            for file in ["ca.crt", "clients-ca.crt"] {
                fs::copy(certs().join(file), at(folder).join(node).join(file)).unwrap();
            }
        }
    }
    let as_client = |folder: &Path| {
        let trust = ClientTrust::load(&ClientFiles::in_folder(folder)).unwrap();
        move || trust.session_to_host("127.0.0.1").unwrap()
    };
    for folder in ["same-name", "other"] {
        let client = as_client(&at(folder).join("client-ann"));
        let node = as_client(&at(folder).join("node-2"));
        for door in &doors[1..] {
            for session in [client(), node()] {
                let refusal = shakes_hands(door, session).unwrap_err();
                assert!(!refusal.contains("secret"), "{refusal}");
                attempts += 1;
            }
        }
        let node = NodeTrust::load(NodeFiles::in_folder(&at(folder).join("node-2"))).unwrap();
        for session in [node.outgoing_peer_session(Some(1)), node.outgoing_peer_session(None)] {
            shakes_hands(doors[0], session).unwrap_err();
            attempts += 1;
        }
    }
    // A certificate of the cluster that has expired, at the end of the second in which it was
    // created.
    let late = authorities();
    authority::issue_client_certificate(late.path(), "late", 0, false).unwrap();
    authority::issue_node_certificates(late.path(), 2, &["127.0.0.1".to_owned()], 0, false)
        .unwrap();
    let made = SystemTime::now();
    wait_for("it to end", || (made.elapsed().ok()? > Duration::from_millis(1100)).then_some(()));
    let client = as_client(&late.path().join("client-late"));
    for door in &doors[1..] {
        shakes_hands(door, client()).unwrap_err();
        attempts += 1;
    }
    let node = NodeTrust::load(NodeFiles::in_folder(&late.path().join("node-2"))).unwrap();
    shakes_hands(doors[0], node.outgoing_peer_session(Some(1))).unwrap_err();
    attempts += 1;
    // A client of the cluster is not a peer.
    let client = as_client(&certs().join("client-ann"));
    shakes_hands(doors[0], client()).unwrap_err();
    attempts += 1;
    // A node of the cluster sends a hello in another node's name.
    let two = NodeTrust::load(NodeFiles::in_folder(&certs().join("node-2"))).unwrap();
    let socket = TcpStream::connect(doors[0]).unwrap();
    let stream = Stream::new(socket, Some(two.outgoing_peer_session(Some(1))));
    stream.handshake_within(START_TIMEOUT).unwrap();
    let mut lie = Vec::new();
    let as_three = Hello { from: Member::first(3), ..hello };
    encode(Member::first(3), &Frame::Hello(as_three), &mut lie).unwrap();
    (&stream).write_all(&lie).unwrap();
    let mut answer = Vec::new();
    (&stream).read_to_end(&mut answer).unwrap();
    let answer = String::from_utf8_lossy(&answer);
    assert!(answer.contains("greets as node 3, and its certificate names node 2"), "{answer}");
    attempts += 1;

    assert!(attempts >= 40, "{attempts}");
    let refused = cluster.refused(1);
    // The admin server does not count its refusals.
    let expected = attempts - 1 - 9 - 4 - 1;
    assert!(refused >= expected, "{refused} of {expected} were counted");
    // The node still serves and has lost nothing.
    assert_eq!(cluster.client().run(&[b"GET", b"secret"]).unwrap(), Reply::Bulk(b"42".to_vec()));
    // No credential was logged.
    let log = fs::read_to_string(&cluster.node(1).spec.log_path).unwrap();
    for file in ["node.key", "server.key"] {
        let key = fs::read_to_string(cluster.folder(1).join(file)).unwrap();
        let secret = key.lines().nth(1).unwrap();
        assert!(!log.contains(secret) && !log.contains("PRIVATE KEY"), "{log}");
    }
}

/// Probes have no certificates. They learn whether the node serves, and nothing else.
#[test]
fn probes_need_no_certificate_and_everything_else_does() {
    let cluster = Cluster::start(1, &["--store", "memory"]);
    let admin = cluster.node(1).ready.admin.clone();
    let ask = |more: &[&str], path: &str| {
        let mut curl = Command::new("curl");
        curl.args(["-s", "-w", "\n%{http_code}", "--path-as-is", "--cacert"]);
        curl.arg(certs().join("client-ann/clients-ca.crt")).args(more);
        let output = curl.arg(format!("https://{admin}{path}")).output().ok()?;
        Some(text(&output))
    };
    let Some(alive) = ask(&[], "/health") else {
        println!("skipped: curl is not installed");
        return;
    };
    assert_eq!(alive, "alive\n\n200");
    assert_eq!(ask(&[], "/ready").unwrap(), "ready\n\n200");
    let ways: [&[&str]; 4] = [&[], &["-u", "ann:x"], &["-X", "OPTIONS"], &["-d", "{}"]];
    let paths = "/ /page/main.js /events /status /metrics /history /history/all /members /backup /tuning /users \
                 /audit /nowhere /health/ //health /health/../status /ready/x /HEALTH /%68ealth /transfer \
                 /snapshot /scrub /act /join /doctor/multicast /doctor/multicast/send /doctor/multicast/heard";
    let all = paths.split(' ').flat_map(|path| ways.map(|way| (way, path)));
    for (way, path) in all.chain(["/health", "/ready"].map(|path| (ways[3], path))) {
        let said = ask(way, path).unwrap();
        assert!(said.ends_with("\n403") && said.contains("\"no_certificate\""), "{path}: {said}");
    }
    // A certificate of another authority is not better than none.
    let strangers = TempDir::new().unwrap();
    make(strangers.path(), "orders", 1);
    for (folder, path, code) in [(strangers.path(), "/health", "000"), (certs(), "/status", "200")]
    {
        let file = |name| folder.join("client-ann").join(name).display().to_string();
        let said = ask(&["--cert", &file("client.crt"), "--key", &file("client.key")], path);
        assert!(said.unwrap().ends_with(code), "{path}");
    }
}

/// [access-1] The name in a certificate has one role at every port, and a button of the dashboard
/// that another node executes does not bypass it.
#[test]
fn a_certificate_is_a_user_with_a_role_at_every_door() {
    let cluster = Cluster::start(3, &["--store", "memory", "--stream-raw", "127.0.0.1:0"]);
    let people = authorities();
    for name in ["web", "eye", "eve"] {
        authority::issue_client_certificate(people.path(), name, 90, false).unwrap();
    }
    let folder = |name: &str| match name {
        "ann" => certs().join("client-ann"),
        name => people.path().join(format!("client-{name}")),
    };
    let admin = cluster.nodes.admin_addresses().join(",");
    let run = |who: &str, words: &[&str]| {
        let own = folder(who);
        let mut all = words.to_vec();
        all.extend(["--tls", own.to_str().unwrap()]);
        quorate(&all)
    };
    for (name, role) in [("ann", "admin"), ("web", "writer"), ("eye", "reader")] {
        let set = run("ann", &["user", "set", name, "--role", role, "--admin", &admin]);
        assert!(set.status.success(), "{}", text(&set));
    }
    let client = |who: &str, node: u32| {
        let options = Options {
            command_timeout: START_TIMEOUT,
            tls: Some(ClientTrust::load(&ClientFiles::in_folder(&folder(who))).unwrap()),
            ..Options::default()
        };
        Client::new(&[cluster.node(node).ready.client.clone()], options)
    };
    for node in 1..=3 {
        let mut web = client("web", node);
        wait_for("the writer to be known", || web.run(&[b"SET", b"k", b"v"]).ok());
        let refused = web.run(&[b"FLUSHALL"]).unwrap_err().to_string();
        assert!(refused.contains("NOPERM User web "), "{refused}");
        let mut eye = client("eye", node);
        assert_eq!(eye.read(&[b"GET", b"k"]).unwrap(), Reply::Bulk(b"v".to_vec()));
        for who in ["eye", "eve"] {
            let refused = client(who, node).read(&[b"SET", b"k", b"w"]).unwrap_err().to_string();
            assert!(refused.contains("NOPERM"), "{who}: {refused}");
        }
    }
    // Byte streams.
    let file = cluster.nodes.data_folder().join("file");
    fs::write(&file, b"abc").unwrap();
    let file = file.to_str().unwrap();
    let stream = &cluster.node(2).ready.stream;
    for (who, done) in [("eye", false), ("eve", false), ("web", true)] {
        let put = run(who, &["stream", "put", file, "--name", "notes", "--stream", stream]);
        assert_eq!(put.status.success(), done, "{who}: {}", text(&put));
    }
    let words = ["stream", "put", file, "--name", "notes", "--stream", stream, "--resume"];
    let put = run("web", &words);
    assert!(put.status.success(), "{}", text(&put));
    for (who, done) in [("eve", false), ("eye", true)] {
        let cat = run(who, &["stream", "cat", "notes", "--stream", stream]);
        assert_eq!(cat.status.success(), done, "{who}: {}", text(&cat));
    }
    // The admin address, by a command and by a button.
    for (who, words, done) in [
        ("eye", &["status"][..], true),
        ("eve", &["status"], false),
        ("web", &["transfer"], false),
        ("ann", &["member", "add", "--peer", "127.0.0.1:1"], true),
        ("web", &["user", "list"], false),
    ] {
        let output = run(who, &[words, &["--admin", &admin]].concat());
        assert_eq!(output.status.success(), done, "{who} {words:?}: {}", text(&output));
    }
    let one = &cluster.node(1).ready.admin;
    for (who, status) in [("eye", 403), ("web", 403), ("ann", 200)] {
        let body = r#"{"node":2,"act":{"snapshot":{}}}"#;
        let trust = ClientTrust::load(&ClientFiles::in_folder(&folder(who))).unwrap();
        let socket = TcpStream::connect(one).unwrap();
        socket.set_read_timeout(Some(START_TIMEOUT)).unwrap();
        let stream = Stream::new(socket, Some(trust.session_to_host("127.0.0.1").unwrap()));
        stream.handshake_within(START_TIMEOUT).unwrap();
        let request = format!(
            "POST /act HTTP/1.0\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        (&stream).write_all(request.as_bytes()).unwrap();
        let mut answer = Vec::new();
        let _ = (&stream).read_to_end(&mut answer);
        let answer = String::from_utf8_lossy(&answer);
        assert!(answer.starts_with(&format!("HTTP/1.0 {status} ")), "{who}: {answer}");
    }
    let audit = run("ann", &["audit", "--admin", &admin]);
    let audit = text(&audit);
    for line in [
        "REFUSED 403  web (by certificate",
        "done 200  ann (by certificate",
        "done 200  node 1 (by certificate",
    ] {
        assert!(audit.contains(line), "{line}: {audit}");
    }
}

/// Connections that send nothing, or only a little from time to time, delay no other client and are
/// closed.
#[test]
fn the_slow_make_room() {
    let cluster = Cluster::start(1, &["--store", "memory"]);
    let ready = cluster.node(1).ready.clone();
    let slow = |address: &str| {
        let mut socket = TcpStream::connect(address).unwrap();
        socket.write_all(&[0x16, 3, 1, 2, 0]).unwrap();
        socket.set_read_timeout(Some(START_TIMEOUT)).unwrap();
        socket
    };
    let doors = [&ready.client, &ready.stream, &ready.admin, &ready.peer];
    let mut waiting: Vec<TcpStream> = (0..300).map(|at| slow(doors[at % doors.len()])).collect();
    cluster.client().run(&[b"SET", b"x", b"1"]).unwrap();
    assert!(cluster.nodes.status(1).is_some());
    for socket in &mut waiting {
        let mut rest = Vec::new();
        match socket.read_to_end(&mut rest) {
            Ok(_) => assert!(says_nothing(&rest), "{rest:?}"),
            Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}"),
        }
    }
}

#[test]
fn authorities_and_certificates_are_exchanged_while_all_run() {
    let folder = TempDir::new().unwrap();
    fs::create_dir(folder.path().join("all")).unwrap();
    let mut cluster = Cluster::start(3, &["--store", "memory"]);
    let mut client = cluster.client();
    client.run(&[b"SET", b"x", b"1"]).unwrap();
    let connected = |cluster: &Cluster| -> u64 {
        let of = |node| cluster.nodes.metric(node, "quorate_net_peers_connected_total").unwrap();
        (1..=3).map(of).sum()
    };
    let before = connected(&cluster);
    let accepted = cluster.nodes.metric(1, "quorate_net_clients_accepted_total").unwrap();

    // Add a new authority next to the old one and certify the nodes by it one by one.
    let all = folder.path().join("all");
    for file in ["ca.crt", "ca.key", "clients-ca.crt", "clients-ca.key"] {
        fs::copy(certs().join(file), all.join(file)).unwrap();
    }
    authority::create_authorities(&all, "orders", 400, true).unwrap();
    for node in 1..=3 {
        for file in ["ca.crt", "clients-ca.crt"] {
            put(&all.join(file), &cluster.folder(node));
        }
    }
    let hosts = ["127.0.0.1".to_owned()];
    for node in 1..=3 {
        let made = authority::issue_node_certificates(&all, node, &hosts, 200, true).unwrap();
        // The server certificate is not replaced, because this process knows no other authority.
        for file in ["node.key", "node.crt"] {
            put(&made.join(file), &cluster.folder(node));
        }
        wait_for("the new certificate", || {
            let view = cluster.nodes.status(node)?;
            let own = view.certificates.iter().find(|one| one.what == "node")?;
            (own.days_left > 150).then_some(())
        });
    }
    client.run(&[b"SET", b"x", b"2"]).unwrap();
    assert_eq!(connected(&cluster), before, "no connection of peers was lost");
    let now = cluster.nodes.metric(1, "quorate_net_clients_accepted_total").unwrap();
    assert!(now <= accepted + 1, "{accepted}, {now}");
    // A restarted node connects to the others with its new certificate.
    cluster.nodes.node(3).unwrap().kill().unwrap();
    cluster.nodes.node(3).unwrap().restart().unwrap();
    wait_for("node 3", || {
        let applied = |node| Some(cluster.nodes.status(node)?.applied);
        (applied(3)? == applied(1)?).then_some(())
    });
    // Clients of the new authority are served as well as those of the old one.
    authority::issue_client_certificate(&all, "bea", 90, false).unwrap();
    let bea = ClientTrust::load(&ClientFiles::in_folder(&all.join("client-bea"))).unwrap();
    wait_for("a client of the new authority", || {
        let options = Options {
            command_timeout: Duration::from_secs(5),
            tls: Some(bea.clone()),
            ..Options::default()
        };
        let mut client = Client::new(&cluster.nodes.client_addresses(), options);
        (client.run(&[b"GET", b"x"]).ok()? == Reply::Bulk(b"2".to_vec())).then_some(())
    });
}

/// An expired certificate is an error in the status and the log, with a remedy. The new certificate
/// takes effect at once.
#[test]
fn an_expired_certificate_is_an_error_until_it_is_renewed() {
    let folder = TempDir::new().unwrap();
    for file in ["ca.crt", "ca.key", "clients-ca.crt", "clients-ca.key"] {
        fs::copy(certs().join(file), folder.path().join(file)).unwrap();
    }
    let cluster = Cluster::start(3, &["--store", "memory"]);
    let mut client = cluster.client();
    client.run(&[b"SET", b"x", b"1"]).unwrap();
    let renew = |days| {
        let hosts = ["127.0.0.1".to_owned()];
        // The server certificate remains valid, so that this process can still query the node.
        let made =
            authority::issue_node_certificates(folder.path(), 1, &hosts, days, true).unwrap();
        for file in ["node.key", "node.crt"] {
            put(&made.join(file), &cluster.folder(1));
        }
    };
    let error = || cluster.nodes.status(1).map(|view| view.error);
    // The certificate expires at the end of the second in which it is created.
    renew(0);
    let error_is = wait_for("the error", || error()?);
    let begin = "the certificate of the node expired on ";
    assert!(error_is.starts_with(begin), "{error_is}");
    let command = "'quorate cert node 1 --renew --host HOST'";
    assert!(error_is.contains(command), "{error_is}");
    wait_for("its line", || {
        let log = fs::read_to_string(&cluster.node(1).spec.log_path).ok()?;
        let mut lines = log.lines();
        let line = lines.find(|line| line.contains("a certificate has expired: "))?;
        assert!(line.contains("ERROR") && line.contains("since="), "{line}");
        Some(())
    });
    // Running connections continue.
    client.run(&[b"SET", b"x", b"2"]).unwrap();
    renew(90);
    wait_for("no error", || error()?.is_none().then_some(()));
}

/// [lie-3] Peers report what they remember of a node's log to the holder of its certificate. A
/// folder reset to an earlier state is detected, and the node returns in another incarnation.
#[test]
fn a_folder_that_was_set_back_is_noticed_by_peers_with_certificates() {
    let mut cluster = Cluster::start(3, &["--store", "memory"]);
    let mut client = cluster.client();
    let mut write = |from: u32| {
        for key in from..from + 100 {
            let key = format!("k{key}");
            client.run(&[b"SET", key.as_bytes(), b"1"]).unwrap();
        }
    };
    write(0);
    let data = cluster.node(3).spec.data_folder.clone();
    let yesterday = data.with_extension("yesterday");
    cluster.nodes.kill(&[3]).unwrap();
    let mut copies = Command::new("cp");
    let copied = copies.arg("-a").args([&data, &yesterday]).status();
    assert!(copied.unwrap().success());
    cluster.nodes.restart(&[3]).unwrap();
    write(100);
    cluster.wait_until_durable(3);
    assert!(!cluster.nodes.log_path(3).contains(" remembers write "), "a restart is no lie");
    cluster.nodes.kill(&[3]).unwrap();
    fs::remove_dir_all(&data).unwrap();
    fs::rename(&yesterday, &data).unwrap();
    cluster.nodes.restart(&[3]).unwrap();
    let log = cluster.nodes.log_path(3);
    assert!(log.contains(" remembers write "), "{log}");
    write(200);
    cluster.wait_until_durable(3);
    assert_eq!(cluster.refused(1) + cluster.refused(2), 0);
}

#[test]
fn a_node_with_the_certificate_of_another_does_not_start() {
    let folder = TempDir::new().unwrap();
    let data = folder.path().join("d");
    let data = data.to_str().unwrap();
    let start = |flags: &[&str]| {
        let all = [
            &[
                "start",
                "--data",
                data,
                "--peer",
                "127.0.0.1:0",
                "--client",
                "127.0.0.1:0",
                "--admin",
                "127.0.0.1:0",
            ][..],
            flags,
        ]
        .concat();
        let output = quorate(&all);
        assert_eq!(output.status.code(), Some(2), "{}", text(&output));
        text(&output)
    };
    let two = certs().join("node-2");
    let said = start(&["--node", "1", "--tls", two.to_str().unwrap()]);
    assert!(said.contains("this is node 1, but its certificate is for node 2"), "{said}");
    let said = start(&["--tls", folder.path().to_str().unwrap()]);
    assert!(said.contains("node.crt") && said.contains("quorate cert"), "{said}");
    let said = start(&["--tls", two.to_str().unwrap(), "--insecure"]);
    assert!(said.contains("exclude each other"), "{said}");
    let said = start(&["--tls-cert", "x"]);
    assert!(said.contains("--tls-key"), "{said}");
    let client = certs().join("client-ann/client.crt");
    let said = start(&["--tls", two.to_str().unwrap(), "--tls-cert", client.to_str().unwrap()]);
    assert!(said.contains("does not name a node"), "{said}");
}

#[test]
fn without_certificates_a_node_listens_on_this_machine_alone() {
    let folder = TempDir::new().unwrap();
    let data = folder.path().join("d");
    for door in ["--peer", "--client", "--admin", "--stream", "--stream-raw"] {
        let mut flags = vec!["start", "--data", data.to_str().unwrap()];
        for other in ["--peer", "--client", "--admin", "--stream"] {
            let address = if other == door { "0.0.0.0:0" } else { "127.0.0.1:0" };
            flags.extend([other, address]);
        }
        if door == "--stream-raw" {
            flags.extend([door, "0.0.0.0:0"]);
        }
        let output = quorate(&flags);
        let said = text(&output);
        assert!(!output.status.success(), "{said}");
        assert!(said.contains(door) && said.contains("there is no authentication"), "{said}");
        assert!(said.contains("--insecure"), "{said}");
    }
}
