//! `quorate start --join`: three commands form a cluster of three nodes, even if any of the
//! processes is killed in the meantime.

use std::{
    fs,
    io::{Read as _, Write as _},
    net::{Shutdown, TcpListener, TcpStream},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use crate::common::{
    NodeProcess, NodeSpec, START_TIMEOUT, Signal, free_port, http, patient, quorate, signal,
    single, wait_end, wait_for, with,
};
use quorate_admin::client::{self, Response};
use quorate_client::{Client, Reply};
use serde_json::{Value as Json, json};
use tempfile::TempDir;

/// Returns the spec of a node in the folder `name`, with fixed ports.
fn spec(folder: &Path, name: &str, flags: &[&str]) -> NodeSpec {
    let mut spec = single(&folder.join(name), flags);
    for flag in ["--client", "--peer", "--admin", "--stream"] {
        spec = with(spec, flag, &format!("127.0.0.1:{}", free_port()));
    }
    spec
}

fn admin_of(spec: &NodeSpec) -> String {
    let at = spec.flags.iter().position(|flag| flag == "--admin").unwrap();
    spec.flags[at + 1].clone()
}

fn start(spec: NodeSpec) -> NodeProcess {
    let mut node = NodeProcess::spawn(spec).unwrap();
    node.wait_ready().unwrap_or_else(|error| panic!("{error}"));
    node
}

fn said(spec: &NodeSpec, what: &str) -> bool {
    let text = fs::read_to_string(&spec.log_path).unwrap_or_default();
    text.contains(what)
}

fn wait_said(spec: &NodeSpec, what: &str) {
    wait_for(what, || said(spec, what).then_some(()));
}

fn status(node: &NodeProcess) -> Option<Json> {
    let (code, body) = http(&node.ready.admin, "/status")?;
    (code == 200).then(|| serde_json::from_str(&body).unwrap())
}

/// Returns the weights of all members, as known to a node.
fn weights(node: &NodeProcess) -> Option<Vec<(u64, u64)>> {
    let members = status(node)?["members"].as_array()?.clone();
    let weight = |member: &Json| Some((member["node"].as_u64()?, member["weight"].as_u64()?));
    members.iter().map(weight).collect()
}

fn wait_weights(node: &NodeProcess, expected: &[(u64, u64)]) {
    wait_for("the weights", || (weights(node)? == expected).then_some(()));
}

fn client(nodes: &[&NodeProcess]) -> Client {
    let addresses: Vec<String> = nodes.iter().map(|node| node.ready.client.clone()).collect();
    Client::new(&addresses, patient())
}

fn post(admin: &str, path: &str, body: &Json) -> Response {
    client::post(admin, path, &body.to_string(), START_TIMEOUT).unwrap()
}

/// Returns the ids in the address book. No other id was ever assigned.
fn ids_in_book(spec: &NodeSpec) -> Vec<String> {
    let text = fs::read_to_string(spec.data_folder.join("peers")).unwrap_or_default();
    let peers = text.lines().filter_map(|line| line.strip_prefix("peer "));
    let id = |line: &str| line.split(' ').next().unwrap().to_owned();
    peers.map(id).collect()
}

/// Without a list of addresses or ids, the first node founds the cluster. The others name the
/// founder's --admin address.
#[test]
fn three_commands_make_a_cluster_of_three() {
    let folder = TempDir::new().unwrap();
    let mut one = start(spec(folder.path(), "n1", &[]));
    client(&[&one]).run(&[b"SET", b"x", b"1"]).unwrap();
    let join = one.ready.admin.clone();
    let mut two = start(spec(folder.path(), "n2", &["--join", &join]));
    wait_weights(&two, &[(1, 1), (2, 1)]);
    // Any node can be contacted.
    let join = two.ready.admin.clone();
    let mut three = start(spec(folder.path(), "n3", &["--join", &join]));
    wait_weights(&three, &[(1, 1), (2, 1), (3, 1)]);
    assert_eq!((two.ready.node, three.ready.node), (2, 3));
    for step in
        ["asking for an id", "got id 3", "is caught up: requesting its vote", "node 3 now votes"]
    {
        wait_said(&three.spec, step);
    }

    // The founder is one of three voters, so the others continue without it.
    one.kill().unwrap();
    let mut others = client(&[&two, &three]);
    assert_eq!(others.read(&[b"GET", b"x"]).unwrap(), Reply::Bulk(b"1".to_vec()));
    others.run(&[b"SET", b"x", b"2"]).unwrap();

    // The same commands are repeated. Afterwards the folder alone suffices, because it contains the
    // identity.
    one.restart().unwrap();
    two.kill().unwrap();
    two.restart().unwrap();
    three.kill().unwrap();
    three.spec.flags.truncate(6);
    let peer = three.spec.flags.iter().position(|flag| flag == "--peer").unwrap();
    three.spec.flags.drain(peer..peer + 2);
    three.restart().unwrap();
    for node in [&one, &two, &three] {
        wait_weights(node, &[(1, 1), (2, 1), (3, 1)]);
        wait_for("all to serve", || (http(&node.ready.admin, "/ready")?.0 == 200).then_some(()));
        let value = client(&[node]).read(&[b"GET", b"x"]).unwrap();
        assert_eq!(value, Reply::Bulk(b"2".to_vec()));
    }
    assert_eq!(three.ready.node, 3);
}

/// Proxy for an admin address. It can change requests and drop responses.
struct Way {
    address: String,
    /// Responses are dropped while this is set.
    loses: Arc<AtomicBool>,
    lost: Arc<AtomicBool>,
}

impl Way {
    fn to(admin: &str, change: impl Fn(String) -> String + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (loses, lost) = (Arc::<AtomicBool>::default(), Arc::<AtomicBool>::default());
        let (losing, told, admin) = (loses.clone(), lost.clone(), admin.to_owned());
        thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let Some(request) = read_request(&mut stream) else {
                    continue;
                };
                let mut there = TcpStream::connect(&admin).unwrap();
                there.set_read_timeout(Some(START_TIMEOUT)).unwrap();
                there.write_all(change(request).as_bytes()).unwrap();
                let mut answer = Vec::new();
                let _ = there.read_to_end(&mut answer);
                if losing.load(Ordering::SeqCst) {
                    told.store(true, Ordering::SeqCst);
                    // The client keeps waiting.
                    thread::spawn(move || stream.read(&mut [0]));
                } else {
                    let _ = stream.write_all(&answer);
                    let _ = stream.shutdown(Shutdown::Write);
                }
            }
        });
        Self { address, loses, lost }
    }
}

/// Reads the head and the body of a request. `None` for a connection without a request. The server
/// should close the connection after its response.
fn read_request(stream: &mut TcpStream) -> Option<String> {
    stream.set_read_timeout(Some(START_TIMEOUT)).unwrap();
    let mut text = String::new();
    let mut chunk = [0; 4096];
    loop {
        let count = stream.read(&mut chunk).ok().filter(|count| *count > 0)?;
        text.push_str(std::str::from_utf8(&chunk[..count]).unwrap());
        let Some((head, body)) = text.split_once("\r\n\r\n") else {
            continue;
        };
        let head = head.to_lowercase();
        let length = head.split("content-length: ").nth(1)?;
        let length: usize = length.split("\r\n").next()?.parse().ok()?;
        if body.len() >= length {
            return Some(text.replacen("\r\n", "\r\nConnection: close\r\n", 1));
        }
    }
}

/// [join-2] A joining node is killed with SIGKILL before its request, before the response arrives,
/// after it, and while catching up. It continues and never gets a second id.
#[test]
fn a_joiner_that_is_killed_at_any_step_goes_on_with_the_same_id() {
    let folder = TempDir::new().unwrap();
    let one = spec(folder.path(), "n1", &[]);
    let admin = admin_of(&one);
    let joiner = spec(folder.path(), "n2", &["--join", &admin]);
    let begin = || NodeProcess::spawn(joiner.clone()).unwrap();

    // No node can be contacted, so the joining node waits and reports that.
    let mut two = begin();
    wait_said(&joiner, "waiting for an id");
    assert!(!joiner.data_folder.join("identity").exists());
    two.kill().unwrap();
    let one = start(one);
    let mut database = client(&[&one]);
    for key in 0..200 {
        let key = format!("k{key}");
        database.run(&[b"SET", key.as_bytes(), &[b'x'; 1000]]).unwrap();
    }

    // The cluster assigns an id, but the node does not receive it.
    let way = Way::to(&admin, |request| request);
    way.loses.store(true, Ordering::SeqCst);
    let astray = with(joiner.clone(), "--join", &way.address);
    let mut two = NodeProcess::spawn(astray.clone()).unwrap();
    wait_for("the lost answer", || way.lost.load(Ordering::SeqCst).then_some(()));
    two.kill().unwrap();
    assert!(!joiner.data_folder.join("identity").exists());
    wait_for("the id", || (ids_in_book(&one.spec) == ["1", "2"]).then_some(()));

    // Kill the node at each of these log lines.
    for step in ["got id 2", "peer connected", "node started", "caught up"] {
        fs::write(&joiner.log_path, "").unwrap();
        let mut two = begin();
        wait_for(step, || {
            let ended = two.child.try_wait().unwrap();
            assert_eq!(ended, None, "{}", two.log_tail());
            let done = step == "got id 2" && joiner.data_folder.join("identity").exists();
            (done || said(&joiner, step)).then_some(())
        });
        two.kill().unwrap();
    }
    let mut two = start(joiner.clone());
    assert_eq!(two.ready.node, 2);
    wait_weights(&two, &[(1, 1), (2, 1)]);
    assert_eq!(ids_in_book(&one.spec), ["1", "2"]);
    // A folder that has joined starts with its id even if no node responds at the address in
    // `--join`.
    two.kill().unwrap();
    two.spec = astray;
    two.restart().unwrap();
    assert_eq!(two.ready.node, 2);
    let value = client(&[&two]).read(&[b"GET", b"k7"]).unwrap();
    assert_eq!(value, Reply::Bulk(vec![b'x'; 1000]));
}

#[test]
fn a_joiner_that_cannot_be_dialled_back_is_refused_with_the_reason() {
    let folder = TempDir::new().unwrap();
    let one = start(spec(folder.path(), "n1", &[]));
    let closed = free_port();
    let joiner = spec(folder.path(), "n2", &[]);
    let at = joiner.flags.iter().position(|flag| flag == "--peer").unwrap();
    let (listens, says) = (joiner.flags[at + 1].clone(), format!("127.0.0.1:{closed}"));
    let way = Way::to(&one.ready.admin, move |request| request.replace(&listens, &says));
    let mut joiner = joiner;
    joiner.flags.extend(["--join".to_owned(), way.address.clone()]);
    let mut two = NodeProcess::spawn(joiner.clone()).unwrap();
    assert_eq!(wait_end(&mut two).code(), Some(1));
    let text = fs::read_to_string(&joiner.log_path).unwrap();
    let reason = format!("node 1 cannot connect to it at 127.0.0.1:{closed}: Connection refused");
    assert!(text.contains(&reason), "{text}");
    assert!(text.contains("hint: start it with a --peer address"), "{text}");

    // It does not suffice that another process listens at the address.
    let elsewhere = json!({"nonce": "77", "peer": one.ready.peer, "as": "voter"});
    let refused = post(&one.ready.admin, "/join", &elsewhere);
    assert_eq!(refused.status, 409);
    assert!(refused.body.contains("unreachable_peer"), "{}", refused.body);
    assert!(refused.body.contains("another node listens there"), "{}", refused.body);
    for body in [
        json!({"nonce": "x", "peer": "a:1", "as": "voter"}),
        json!({"nonce": "7", "peer": "a:1", "as": "king"}),
    ] {
        assert_eq!(post(&one.ready.admin, "/join", &body).status, 422);
    }
    assert_eq!(weights(&one).unwrap(), [(1, 1)]);
    assert!(!one.spec.data_folder.join("peers").exists(), "no id was given out");

    // With the same folder and a reachable address, the node is admitted.
    joiner = with(joiner, "--join", &one.ready.admin);
    let two = start(joiner);
    wait_weights(&two, &[(1, 1), (2, 1)]);
}

/// A joining node waits for a cluster that is not founded yet or has no quorum, and reports it.
#[test]
fn a_joiner_waits_until_there_is_a_cluster() {
    let folder = TempDir::new().unwrap();
    let peers = [free_port(), free_port()].map(|port| format!("127.0.0.1:{port}"));
    let list = format!("1={},2={}", peers[0], peers[1]);
    let member = |node: &str| {
        let spec = spec(folder.path(), node, &["--node", node, "--cluster", &list]);
        let peer = &peers[node.parse::<usize>().unwrap() - 1];
        with(spec, "--peer", peer)
    };
    let two = start(member("2"));
    let joiner = spec(folder.path(), "3", &["--join", &two.ready.admin]);
    let mut three = NodeProcess::spawn(joiner.clone()).unwrap();
    wait_said(&joiner, "waiting for the founder");
    let mut one = start(member("1"));
    three.wait_ready().unwrap();
    wait_weights(&three, &[(1, 1), (2, 1), (3, 1)]);
    one.kill().unwrap();
    three.kill().unwrap();
    let joiner = spec(folder.path(), "4", &["--join", &two.ready.admin, "--as", "learner"]);
    let mut four = NodeProcess::spawn(joiner.clone()).unwrap();
    wait_said(&joiner, "waiting for an id: ");
    one.restart().unwrap();
    four.wait_ready().unwrap();
    wait_said(&joiner, "it learns");
    assert_eq!(four.ready.node, 4);
    let weight = |(node, weight): (u64, u64)| (node == 4).then_some(weight);
    assert_eq!(weights(&four).unwrap().into_iter().find_map(weight), Some(0));
    signal(&four, Signal::TERM);
    assert_eq!(wait_end(&mut four).code(), Some(0));
}

/// All founding members are gone. A joining node learns the current addresses and ignores older
/// ones in its log, and an unspecified address is reported as one that can be dialled.
#[test]
fn a_cluster_outlives_its_founder() {
    let folder = TempDir::new().unwrap();
    let port = free_port();
    let everywhere =
        with(spec(folder.path(), "n1", &["--insecure"]), "--peer", &format!("0.0.0.0:{port}"));
    let mut one = start(everywhere);
    let join = one.ready.admin.clone();
    let two = start(spec(folder.path(), "n2", &["--join", &join]));
    wait_weights(&two, &[(1, 1), (2, 1)]);
    let text = fs::read_to_string(two.spec.data_folder.join("peers")).unwrap();
    assert!(text.contains(&format!("peer 1 127.0.0.1:{port}\n")), "{text}");
    let three = start(spec(folder.path(), "n3", &["--join", &join]));
    wait_weights(&three, &[(1, 1), (2, 1), (3, 1)]);
    client(&[&one]).run(&[b"SET", b"x", b"1"]).unwrap();

    let nodes = [&one, &two, &three];
    wait_for("the removal", || {
        let leader = status(&two)?["leader"].as_u64()?;
        let leader = nodes.iter().find(|node| u64::from(node.ready.node) == leader)?;
        let answer = post(&leader.ready.admin, "/members", &json!({"remove": 1}));
        (answer.status == 200).then_some(())
    });
    wait_for("the mark", || {
        let text = fs::read_to_string(one.spec.data_folder.join("identity")).unwrap();
        text.contains("\nremoved\n").then_some(())
    });
    one.kill().unwrap();

    let mut four = start(spec(folder.path(), "n4", &["--join", &two.ready.admin]));
    wait_weights(&four, &[(2, 1), (3, 1), (4, 1)]);
    let identity = fs::read_to_string(four.spec.data_folder.join("identity")).unwrap();
    assert!(identity.contains("member 1 ") && !identity.contains("member 2 "), "{identity}");
    // The node finds the other nodes again by itself, even if it has to replay its log.
    for store in ["kept", "lost"] {
        four.kill().unwrap();
        if store == "lost" {
            fs::remove_dir_all(four.spec.data_folder.join("kv")).unwrap();
        }
        four.restart().unwrap();
        wait_for("it to serve", || (http(&four.ready.admin, "/ready")?.0 == 200).then_some(()));
        let value = client(&[&four]).read(&[b"GET", b"x"]).unwrap();
        assert_eq!(value, Reply::Bulk(b"1".to_vec()));
    }
    let book = fs::read_to_string(four.spec.data_folder.join("peers")).unwrap();
    assert!(book.contains("removed 1\n") && !book.contains("peer 1 "), "{book}");
}

/// [member-4] A machine that lost its folder does not return as an additional voter. It joins as a
/// learner and receives the vote of its former node.
#[test]
fn a_machine_whose_folder_is_lost_takes_the_place_of_its_predecessor() {
    let folder = TempDir::new().unwrap();
    let one = start(spec(folder.path(), "n1", &[]));
    let join = ["--join", &one.ready.admin];
    let _two = start(spec(folder.path(), "n2", &join));
    wait_weights(&one, &[(1, 1), (2, 1)]);
    let mut three = start(spec(folder.path(), "n3", &join));
    wait_weights(&one, &[(1, 1), (2, 1), (3, 1)]);
    three.kill().unwrap();
    fs::remove_dir_all(&three.spec.data_folder).unwrap();
    let mut again = NodeProcess::spawn(three.spec.clone()).unwrap();
    assert_eq!(wait_end(&mut again).code(), Some(1));
    assert!(said(&three.spec, "'quorate member replace 3 NEW'"), "{}", three.log_tail());

    let mut spec = three.spec.clone();
    spec.flags.extend(["--as", "learner"].map(str::to_owned));
    let four = start(spec);
    wait_said(&four.spec, "node 4 is caught up: it learns without a vote");
    let replaced = quorate(&["member", "replace", "3", "4", "--admin", &one.ready.admin]);
    assert!(replaced.status.success(), "{}", String::from_utf8_lossy(&replaced.stderr));
    for node in [&one, &four] {
        wait_weights(node, &[(1, 1), (2, 1), (4, 1)]);
    }
}

/// [member-1] The node learns of its removal and reports it, and its folder no longer belongs to
/// any node.
#[test]
fn a_removed_node_says_so_and_does_not_start_again() {
    let folder = TempDir::new().unwrap();
    let one = start(spec(folder.path(), "n1", &[]));
    let join = ["--join", &one.ready.admin];
    let mut two = start(spec(folder.path(), "n2", &join));
    wait_weights(&one, &[(1, 1), (2, 1)]);
    let mut three = start(spec(folder.path(), "n3", &join));
    wait_weights(&one, &[(1, 1), (2, 1), (3, 1)]);

    // One node is running when it is removed, the other one is down.
    two.kill().unwrap();
    for removed in [2, 3] {
        wait_for("the removal", || {
            let leader = status(&one)?["leader"].as_u64()?;
            assert_eq!(leader, 1);
            let answer = post(&one.ready.admin, "/members", &json!({"remove": removed}));
            (answer.status == 200).then_some(())
        });
        wait_for("the weights", || {
            let gone = |all: Vec<(u64, u64)>| all.iter().all(|(node, _)| *node != removed);
            weights(&one).is_some_and(gone).then_some(())
        });
    }
    wait_for("the mark", || {
        let text = fs::read_to_string(three.spec.data_folder.join("identity")).unwrap();
        text.contains("\nremoved\n").then_some(())
    });
    signal(&three, Signal::TERM);
    wait_end(&mut three);
    fs::write(&three.spec.log_path, "").unwrap();
    let mut again = NodeProcess::spawn(three.spec.clone()).unwrap();
    assert_eq!(wait_end(&mut again).code(), Some(1));
    let text = fs::read_to_string(&three.spec.log_path).unwrap();
    assert!(text.contains("was removed from its cluster"), "{text}");
    assert!(text.contains("hint:"), "{text}");

    two.restart().unwrap();
    wait_for("the notice", || {
        let notices = status(&two)?["notices"].to_string();
        notices.contains("this node was removed").then_some(())
    });
}
