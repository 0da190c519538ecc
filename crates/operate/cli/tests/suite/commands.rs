//! The command line as scripts use it: first lines, exit codes, JSON, a single clear error.

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{TcpListener, TcpStream},
    os::unix::{fs::FileExt as _, net::UnixStream},
    process::{Child, Command, Stdio},
};

use crate::common::{
    Cluster, NodeProcess, Signal, free_port, http, program, quorate, quorate_json, refused, signal,
    single, wait_end, wait_for, with,
};
use crate::top::terminal;
use quorate_client::{Client, Options, Reply};
use serde_json::Value as Json;

fn serve(spec: crate::common::NodeSpec) -> NodeProcess {
    let mut node = NodeProcess::spawn(spec).unwrap();
    node.wait_ready().unwrap_or_else(|error| panic!("{error}"));
    wait_for("a node that serves", || (http(&node.ready.admin, "/ready")?.0 == 200).then_some(()));
    node
}

fn client(node: &NodeProcess) -> Client {
    Client::new(std::slice::from_ref(&node.ready.client), Options::default())
}

/// `--data` alone founds a cluster of one, whose data survives a clean stop and a kill.
#[test]
fn a_cluster_of_one_keeps_its_data() {
    let folder = tempfile::tempdir().unwrap();
    let mut node = serve(single(&folder.path().join("n"), &[]));
    assert_eq!(node.ready.node, 1);
    client(&node).run(&[b"SET", b"x", b"1"]).unwrap();
    signal(&node, Signal::TERM);
    assert_eq!(wait_end(&mut node).code(), Some(0));
    node.restart().unwrap();
    assert_eq!(client(&node).run(&[b"INCR", b"x"]), Ok(Reply::Integer(2)));
    node.kill().unwrap();
    node.restart().unwrap();
    assert_eq!(client(&node).run(&[b"INCR", b"x"]), Ok(Reply::Integer(3)));
}

/// A command can be sent without a Redis client. Replies are printed as lines or as JSON, and an
/// error is reported once.
#[test]
fn a_command_for_the_service_is_sent_from_the_command_line() {
    let folder = tempfile::tempdir().unwrap();
    let node = serve(single(&folder.path().join("n"), &[]));
    let closed = "127.0.0.1:1";
    let nodes = format!("{closed},{}", node.ready.client);
    let kv = |words: &[&str]| quorate(&[&["kv", "--client", &nodes], words].concat());
    let said = |words: &[&str]| {
        let output = kv(words);
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(said(&["SET", "hello", "world"]), "OK\n");
    assert_eq!(said(&["get", "hello"]), "world\n");
    assert_eq!(said(&["GET", "nothing"]), "(nil)\n");
    assert_eq!(said(&["INCRBY", "x", "-5"]), "-5\n");
    assert_eq!(said(&["MGET", "x", "hello"]), "-5\nworld\n");
    assert_eq!(said(&["--json", "MGET", "x", "y"]), "{\"reply\":[\"-5\",null]}\n");
    let refused = kv(&["INCR", "hello"]);
    assert_eq!(refused.status.code(), Some(1));
    let text = String::from_utf8(refused.stderr).unwrap();
    assert!(text.contains("not an integer"), "{text}");
    assert_eq!(kv(&[]).status.code(), Some(0), "no commands");
}

/// Starts `quorate kv` with pipes.
fn piped_kv(arguments: &[&str]) -> Child {
    let mut command = quorate_testbed::process::command_of(&program());
    command.arg("kv").args(arguments);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Commands from a pipe are quoted as in Redis. A refused one sets the exit code, and others
/// follow.
#[test]
fn commands_for_the_service_are_read_from_a_pipe() {
    let folder = tempfile::tempdir().unwrap();
    let node = serve(single(&folder.path().join("n"), &[]));
    let piped = |client: &str, lines: &[u8]| {
        let mut kv = piped_kv(&["--client", client]);
        kv.stdin.take().unwrap().write_all(lines).unwrap();
        let output = kv.wait_with_output().unwrap();
        let texts = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
        (output.status.code(), texts)
    };
    let lines = b"SET a \"one\\ntwo\"\r\n\nINCR a\nSTRLEN 'a'\nMULTI\nGET a";
    let (code, [out, error]) = piped(&node.ready.client, lines);
    assert_eq!((code, &*out), (Some(2), "OK\n7\n"), "{error}");
    assert!(error.contains("line 3: ERR value is not an integer"), "{error}");
    assert!(error.contains("line 5: MULTI needs"), "{error}");
    assert_eq!(piped(&node.ready.client, b"INCR a\nGET b\n").0, Some(1));
    let (code, [out, _]) = piped(&node.ready.client, b"SET b \"c\nECHO d\n");
    assert_eq!((code, &*out), (Some(1), "d\n"));
    assert_eq!(piped("127.0.0.1:1", b"GET a\n").0, Some(3));
}

/// At a terminal, commands are asked for, errors end nothing, and the lines are kept without
/// passwords.
#[test]
fn commands_for_the_service_are_typed() {
    let folder = tempfile::tempdir().unwrap();
    let node = serve(single(&folder.path().join("n"), &[]));
    let (mut keys, its) = terminal();
    let end = || Stdio::from(its.try_clone().unwrap());
    let mut command = quorate_testbed::process::command_of(&program());
    command.args(["kv", "--client", &node.ready.client]).env("HOME", folder.path());
    command.env("TERM", "xterm").stdin(end()).stdout(end()).stderr(end());
    let mut shell = command.spawn().unwrap();
    let (mut shown, prompt) = (Vec::new(), format!("{}> ", node.ready.client));
    for (at, line) in
        ["INCR typed", "GET \"x", "AUTH a secret", "INCR typed", "quit"].iter().enumerate()
    {
        while String::from_utf8_lossy(&shown).matches(&*prompt).count() <= at {
            let mut bytes = [0; 1024];
            let count = keys.read(&mut bytes).unwrap();
            shown.extend_from_slice(&bytes[..count]);
        }
        keys.write_all(format!("{line}\r").as_bytes()).unwrap();
    }
    assert_eq!(shell.wait().unwrap().code(), Some(0));
    assert_eq!(client(&node).read(&[b"GET", b"typed"]), Ok(Reply::Bulk(b"2".to_vec())));
    let history = fs::read_to_string(folder.path().join(".quorate_history")).unwrap();
    assert!(history.contains("INCR typed") && !history.contains("secret"), "{history}");
}

#[test]
fn a_subscription_prints_messages_until_its_node_ends() {
    let folder = tempfile::tempdir().unwrap();
    let mut node = serve(single(&folder.path().join("n"), &[]));
    let mut kv = piped_kv(&["--client", &node.ready.client, "PSUBSCRIBE", "n*"]);
    let mut said = BufReader::new(kv.stderr.take().unwrap()).lines();
    assert_eq!(said.next().unwrap().unwrap(), "psubscribe n* 1 (Ctrl-C ends it)");
    client(&node).run(&[b"PUBLISH", b"news", b"rain"]).unwrap();
    let mut out = BufReader::new(kv.stdout.take().unwrap()).lines();
    assert_eq!(out.next().unwrap().unwrap(), "news rain");
    node.kill().unwrap();
    assert_eq!(kv.wait().unwrap().code(), Some(3));
}

/// A wait for all nodes names the missing one and ends with exit code 3.
#[test]
fn status_waits_until_all_nodes_serve() {
    let folder = tempfile::tempdir().unwrap();
    let mut node = NodeProcess::spawn(single(&folder.path().join("n"), &[])).unwrap();
    node.wait_ready().unwrap_or_else(|error| panic!("{error}"));
    let admin = &node.ready.admin;
    let (code, json) = quorate_json(&["status", "--wait", "--admin", admin, "--json"]);
    assert_eq!((code, &json["leader"]), (0, &Json::from(1)));
    assert_eq!(http(admin, "/ready").unwrap().0, 200);
    let both = format!("{admin},127.0.0.1:1");
    let (code, json) = quorate_json(&["status", "--wait=1", "--admin", &both, "--json"]);
    assert_eq!((code, &json["error"]["code"]), (3, &Json::from("not_ready")));
    let message = json["error"]["message"].as_str().unwrap();
    let begins = "not all nodes serve after 1 s: no node answers at 127.0.0.1:1";
    assert!(message.starts_with(begins), "{message}");
    // The node listens and waits, because its founder does not exist.
    let list = format!("1=127.0.0.1:1,2=127.0.0.1:{}", free_port());
    let lonely = single(&folder.path().join("m"), &["--node", "2", "--cluster", &list]);
    let mut lonely = NodeProcess::spawn(lonely).unwrap();
    lonely.wait_ready().unwrap_or_else(|error| panic!("{error}"));
    let admin = &lonely.ready.admin;
    let (code, json) = quorate_json(&["status", "--wait=1", "--admin", admin, "--json"]);
    assert_eq!((code, &json["error"]["code"]), (3, &Json::from("not_ready")));
    let message = json["error"]["message"].as_str().unwrap();
    assert!(message.contains("node 2: "), "{message}");
}

#[test]
fn each_refusal_is_one_clear_error() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("n");
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();

    for flag in ["--client", "--peer", "--admin", "--stream"] {
        let (code, text) = refused(&with(single(&folder.path().join("p"), &[]), flag, &taken));
        assert_eq!(code, 1, "{text}");
        let message = format!("cannot listen on {flag} {taken}: the address is in use");
        assert!(text.contains(&message), "{text}");
    }

    let foreign = folder.path().join("foreign");
    fs::create_dir(&foreign).unwrap();
    fs::write(foreign.join("thesis.txt"), "precious").unwrap();
    let (code, text) = refused(&single(&foreign, &[]));
    assert_eq!(code, 1, "{text}");
    assert!(text.contains("not a quorate data folder: it holds thesis.txt"), "{text}");

    let mut node = serve(single(&data, &[]));
    let (code, text) = refused(&single(&data, &[]));
    assert_eq!(code, 1, "{text}");
    assert!(text.contains("another process is using this folder"), "{text}");
    signal(&node, Signal::TERM);
    wait_end(&mut node);

    for (flags, message) in [
        (["--node", "2"], "this folder has node 1, not 2"),
        (["--durability", "volatile"], "this folder has durability durable, not volatile"),
        (["--store", "memory"], "this folder has store lsm, not memory"),
    ] {
        let (code, text) = refused(&single(&data, &flags));
        assert_eq!(code, 1, "{text}");
        assert!(text.contains(message), "{text}");
        assert_eq!(text.matches("ERROR ").count(), 1, "{text}");
    }
}

#[test]
fn bad_usage_exits_with_2() {
    for arguments in [
        &["start"][..],
        &["start", "--data", "d", "--node", "0"],
        &["start", "--data", "d", "--cluster", "1=a:1,2=b:2"],
        &["start", "--data", "d", "--nodes", "1"],
        &["launch"],
        &["demo", "--seconds", "never"],
        &["demo", "--file", "f"],
        &["demo", "--stream", "--replace"],
        &["demo", "--service", "etcd", "--replace"],
        &["demo", "--devices", "--replace"],
        &["demo", "--devices", "--keep"],
        &["demo", "--page", "127.0.0.1:0"],
        &["status", "--admin", "nonsense"],
        &["transfer", "--admin", "nonsense"],
        &["tune", "--admin", "127.0.0.1:7452,nonsense"],
        &["bench", "kv", "--connect", "nonsense"],
        &["status", "--json=perhaps"],
        &["start", "--data", "d", "--client", "127.0.0.1:7", "--admin", "127.0.0.1:7"],
    ] {
        let output = quorate(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(!output.stderr.is_empty(), "{arguments:?}");
    }
    let (code, json) = quorate_json(&["status", "--admins", "x", "--json"]);
    assert_eq!((code, json["error"]["code"].as_str()), (2, Some("bad_usage")));
    // An unknown log level must not disable logging.
    let mut command = Command::new(program());
    command.args(["status", "--json"]).env("QUORATE_LOG", "loud");
    let output = command.output().unwrap();
    let json: Json = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(2), "{json}");
    let message = json["error"]["message"].as_str().unwrap();
    assert!(message.starts_with("QUORATE_LOG=loud: "), "{json}");
}

/// Help is shown for every way in which it can be requested.
#[test]
fn help_helps() {
    let plain = quorate(&["start", "--help"]).stdout;
    assert!(!plain.is_empty());
    for arguments in
        [&["help", "start"][..], &["help", "start", "--help"], &["help", "start", "-h"]]
    {
        let output = quorate(arguments);
        assert_eq!(output.status.code(), Some(0), "{arguments:?}");
        assert_eq!(output.stdout, plain, "{arguments:?}");
    }
    let output = quorate(&["bench", "help", "kv", "--help"]);
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn nobody_there_exits_with_3_and_an_error_document() {
    let port = free_port();
    let address = format!("127.0.0.1:{port}");
    for command in ["status", "transfer", "snapshot"] {
        let (code, json) = quorate_json(&[command, "--admin", &address, "--json"]);
        assert_eq!(code, 3);
        assert_eq!(json["error"]["code"], "unreachable");
        assert!(json["error"]["message"].as_str().unwrap().contains(&address), "{json}");
    }
}

#[test]
fn status_finds_the_cluster_from_one_node_and_transfer_moves_the_lead() {
    let mut cluster = Cluster::start(3, &[]);
    let admin = cluster.nodes.all()[0].ready.admin.clone();
    // Nodes exchange addresses in their first handshakes.
    let status = wait_for("three nodes in the status", || {
        let (code, json) = quorate_json(&["status", "--admin", &admin, "--json"]);
        assert_eq!(code, 0);
        let all = json["nodes"].as_array()?.iter().all(|node| node["error"].is_null());
        (all && json["nodes"].as_array()?.len() == 3).then_some(json)
    });
    let leader = status["leader"].as_u64().unwrap();
    for node in status["nodes"].as_array().unwrap() {
        assert_eq!(node["cluster"], status["cluster"]);
        assert_eq!(node["durability"], "durable");
        assert_eq!(node["members"].as_array().unwrap().len(), 3);
    }
    let human = quorate(&["status", "--admin", &admin]);
    assert!(String::from_utf8(human.stdout).unwrap().contains("leads"));

    let next = leader % 3 + 1;
    let (code, json) =
        quorate_json(&["transfer", "--to", &next.to_string(), "--admin", &admin, "--json"]);
    assert_eq!((code, json["leader"].as_u64()), (0, Some(next)));
    wait_for("the new leader", || (u64::from(cluster.leader()) == next).then_some(()));

    let (code, json) = quorate_json(&["transfer", "--to", "9", "--admin", &admin, "--json"]);
    assert_eq!(code, 1, "{json}");

    let dead = u32::try_from(next % 3 + 1).unwrap();
    cluster.node(dead).kill().unwrap();
    let other = cluster.nodes.all().iter().find(|node| node.ready.node != dead).unwrap();
    let (code, json) = quorate_json(&["status", "--admin", &other.ready.admin, "--json"]);
    assert_eq!(code, 0);
    let nodes = json["nodes"].as_array().unwrap();
    let gone = nodes.iter().find(|node| node["node"] == dead).unwrap();
    assert_eq!(gone.as_object().unwrap().len(), 2, "{gone}");
    assert!(gone["error"].is_string(), "{gone}");
    // The silent node can be identified by its address as well.
    let all = cluster.nodes.admin_addresses().join(",");
    let (_, json) = quorate_json(&["status", "--admin", &all, "--json"]);
    let nodes = json["nodes"].as_array().unwrap();
    let gone = nodes.iter().find(|node| node["node"] == dead).unwrap();
    assert!(gone["error"].is_string(), "{gone}");
}

/// The history includes every second of each node, and all commands.
#[test]
fn nodes_remember_second_by_second_what_they_did() {
    let mut cluster = Cluster::start(3, &[]);
    let leader = cluster.leader();
    let admins = cluster.nodes.admin_addresses();
    let asked = admins[leader as usize - 1].clone();
    let history = |path: &str| serde_json::from_str::<Json>(&http(&asked, path)?.1).ok();
    wait_for("the first second", || {
        let seconds = history("/history")?["samples"].as_array()?.len();
        (seconds > 0).then_some(())
    });
    let mut client = Client::new(&cluster.nodes.client_addresses(), Options::default());
    for number in 0..50 {
        let key = format!("key-{number}");
        client.run(&[b"SET", key.as_bytes(), b"1"]).unwrap();
    }
    let sum = |samples: &Json, of: &dyn Fn(&Json) -> u64| -> u64 {
        samples.as_array().unwrap().iter().map(of).sum()
    };
    let count = |name: &'static str| move |sample: &Json| sample[name].as_u64().unwrap();
    let took = |sample: &Json| {
        let classes = sample["latencies"].as_array().unwrap().iter();
        classes.map(|class| class[1].as_u64().unwrap()).sum()
    };
    wait_for("all commands, on all nodes", || {
        let all = history("/history/all")?;
        let all = all.as_array()?;
        let applied = |node: &Json| sum(&node["samples"], &count("applied")) >= 50;
        let answered: u64 = all.iter().map(|node| sum(&node["samples"], &count("answered"))).sum();
        (all.len() == 3 && all.iter().all(applied) && answered >= 50).then_some(())
    });
    let own = history("/history").unwrap();
    assert_eq!(own["node"], leader);
    let last = own["samples"].as_array().unwrap().last().unwrap();
    assert_eq!(last["leader"], leader, "{last}");
    assert!(last["at_ms"].is_u64() && last["span_ms"].is_u64(), "{last}");
    assert_eq!(sum(&own["samples"], &took), sum(&own["samples"], &count("answered")));
    let gone = cluster.leader() % 3 + 1;
    cluster.node(gone).kill().unwrap();
    let all = history("/history/all").unwrap();
    assert_eq!(all.as_array().unwrap().len(), 2, "{all}");
}

#[test]
fn a_node_alone_of_three_is_alive_but_not_ready() {
    let mut cluster = Cluster::start(3, &[]);
    cluster.node(2).kill().unwrap();
    cluster.node(3).kill().unwrap();
    let admin = cluster.nodes.all()[0].ready.admin.clone();
    wait_for("a node that is not ready", || (http(&admin, "/ready")?.0 == 503).then_some(()));
    assert_eq!(http(&admin, "/health").unwrap().0, 200);
    let metrics = http(&admin, "/metrics").unwrap().1;
    assert!(metrics.contains("\nquorate_leading 0\n"), "{metrics}");
    let error = Client::new(
        &[cluster.nodes.all()[0].ready.client.clone()],
        Options { command_timeout: std::time::Duration::from_millis(500), ..Options::default() },
    )
    .run(&[b"SET", b"x", b"1"]);
    assert!(error.is_err(), "{error:?}");
}

/// Members wait for the founder. They print their first line before that, because a script could
/// not start the founder otherwise.
#[test]
fn a_joining_node_listens_before_the_founder_runs() {
    let folder = tempfile::tempdir().unwrap();
    let ports = [free_port(), free_port()];
    let list = format!("1=127.0.0.1:{},2=127.0.0.1:{}", ports[0], ports[1]);
    let spec = |node: &str| {
        let mut spec = single(&folder.path().join(node), &["--node", node, "--cluster", &list]);
        spec.flags.drain(2..4); // --peer: the one in the list is taken
        spec
    };
    let mut second = NodeProcess::spawn(spec("2")).unwrap();
    second.wait_ready().unwrap();
    assert!(second.ready.peer.ends_with(&ports[1].to_string()));
    assert_eq!(http(&second.ready.admin, "/health").unwrap().0, 200);
    let (code, body) = http(&second.ready.admin, "/status").unwrap();
    assert_eq!(code, 503, "{body}");
    // The status of the cluster includes the starting node and the reason for its wait.
    let (code, json) = quorate_json(&["status", "--admin", &second.ready.admin, "--json"]);
    assert_eq!((code, &json["nodes"][0]["node"]), (3, &Json::from(2)), "{json}");
    let why = json["nodes"][0]["error"].as_str().unwrap();
    assert!(why.contains("waiting for the founder"), "{json}");
    let human = quorate(&["status", "--admin", &second.ready.admin]);
    let text = String::from_utf8(human.stdout).unwrap();
    assert!(text.contains("2     starting"), "{text}");
    let first = serve(spec("1"));
    wait_for("the joined node", || (http(&second.ready.admin, "/ready")?.0 == 200).then_some(()));
    client(&first).run(&[b"SET", b"x", b"1"]).unwrap();
    assert_eq!(client(&second).read(&[b"GET", b"x"]).unwrap(), Reply::Bulk(b"1".to_vec()));
}

/// The stored membership takes precedence. A different list of nodes only causes a warning.
#[test]
fn a_differing_list_is_ignored_with_a_warning() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("n");
    let mut node = serve(single(&data, &[]));
    node.kill().unwrap();
    let node = serve(single(&data, &["--cluster", "1=127.0.0.1:1,2=127.0.0.1:2"]));
    let said = fs::read_to_string(&node.spec.log_path).unwrap();
    assert!(said.contains("differs from the stored membership"), "{said}");
}

#[test]
fn a_unix_socket_serves_clients_and_goes_with_the_node() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("client.sock");
    let mut node =
        serve(single(&folder.path().join("n"), &["--client-socket", path.to_str().unwrap()]));
    let mut stream = UnixStream::connect(&path).unwrap();
    stream.write_all(b"SET x 1\r\nGET x\r\n").unwrap();
    let mut reply = [0; 12];
    stream.read_exact(&mut reply).unwrap();
    assert_eq!(&reply, b"+OK\r\n$1\r\n1\r\n");
    signal(&node, Signal::TERM);
    assert_eq!(wait_end(&mut node).code(), Some(0));
    assert!(!path.exists());
}

/// The final error reaches the client, and the node keeps running.
#[test]
fn malformed_input_is_answered_and_closed() {
    let folder = tempfile::tempdir().unwrap();
    let node = serve(single(&folder.path().join("n"), &[]));
    let mut stream = TcpStream::connect(&node.ready.client).unwrap();
    stream.write_all(b"*1\r\n$-7\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    assert!(text.starts_with('-'), "{text}");
    client(&node).run(&[b"SET", b"x", b"1"]).unwrap();
}

#[test]
fn the_log_is_verified_offline_and_damage_exits_with_4() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("n");
    let mut node = serve(single(&data, &[]));
    let path = data.to_str().unwrap();
    for number in 0..200 {
        let value = format!("{number}").repeat(50);
        client(&node).run(&[b"SET", b"x", value.as_bytes()]).unwrap();
    }
    let running = quorate(&["log", "verify", path]);
    assert_eq!(running.status.code(), Some(1), "a running node's log is left alone");
    signal(&node, Signal::TERM);
    wait_end(&mut node);

    let (code, json) = quorate_json(&["log", "verify", path, "--json"]);
    assert_eq!(code, 0, "{json}");
    assert_eq!(json["damaged"].as_array().unwrap().len(), 0);
    assert!(json["records"].as_u64().unwrap() > 200, "{json}");
    assert!(json["next"].as_u64().unwrap() > 200, "{json}");
    assert!(json["decided"].as_u64() <= json["next"].as_u64(), "{json}");
    assert_eq!(json["torn_tail_bytes"], 0);
    let (code, json) = quorate_json(&["log", "inspect", path, "--json"]);
    assert_eq!(code, 0);
    assert!(json["log"].as_array().unwrap().iter().any(|item| item["vote"].is_object()));

    let segment = fs::read_dir(data.join("log")).unwrap().map(|entry| entry.unwrap().path());
    let segment = segment.filter(|path| path.extension().is_some()).min().unwrap();
    let file = fs::File::options().write(true).open(segment).unwrap();
    file.write_all_at(b"not what was written", 40 * 4096 + 100).unwrap();
    let (code, json) = quorate_json(&["log", "verify", path, "--json"]);
    assert_eq!(code, 4, "{json}");
    let damaged = &json["damaged"][0];
    assert!(damaged["segment"].is_u64() && damaged["offset"].is_u64(), "{json}");
    assert!(damaged["slots"].is_object() && damaged["reason"].is_string(), "{json}");

    let strange = quorate(&["log", "verify", folder.path().to_str().unwrap()]);
    assert_eq!(strange.status.code(), Some(1));
    let text = String::from_utf8(strange.stderr).unwrap();
    assert!(text.contains("the --data folder") && !text.contains("new node"), "{text}");
}

#[test]
fn a_simulation_reports_in_json() {
    let (code, json) = quorate_json(&["sim", "--seed", "7", "--steps", "500", "--json"]);
    assert_eq!(
        (code, json["seed"].as_u64(), json["holds"].as_bool()),
        (0, Some(7), Some(true)),
        "{json}"
    );
}

#[test]
fn the_demo_of_a_stream_finds_the_file_on_every_node() {
    const BYTES: usize = 24 << 20;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    let numbers = (0..BYTES as u32).map(|n| n.wrapping_mul(2_654_435_761).to_be_bytes()[0]);
    fs::write(&path, numbers.collect::<Vec<u8>>()).unwrap();
    let path = path.to_str().unwrap();
    let (code, json) = quorate_json(&["demo", "--stream", "--file", path, "--json"]);
    assert_eq!(code, 0, "{json}");
    let compared = json["compared"].as_array().unwrap();
    let expected: Vec<Json> =
        (1..=3).map(|node| serde_json::json!({"node": node, "equal": BYTES, "lost": 0})).collect();
    assert_eq!(compared, &expected, "{json}");
    assert_eq!(json["bytes"], BYTES, "{json}");
    // The writer was connected to the leader, which was killed.
    assert!(json["reconnects"].as_u64().unwrap() >= 1, "{json}");
    assert!(json["failover_ms"].is_u64(), "{json}");
}

fn demo_loses_nothing(service: &str) {
    let (code, json) = quorate_json(&["demo", "--service", service, "--seconds", "3", "--json"]);
    assert_eq!(code, 0, "{json}");
    assert_eq!(json["lost"], 0, "{json}");
    assert!(json["acknowledged"].as_u64().unwrap() > 0, "{json}");
    assert!(json["written"].as_u64() >= json["acknowledged"].as_u64(), "{json}");
    assert!(json["failover_ms"].is_u64(), "{json}");
    assert!(json["digest"].is_string(), "{json}");
}

#[test]
fn the_demo_loses_nothing() {
    demo_loses_nothing("kv");
}

#[test]
fn the_demo_with_a_client_of_etcd_loses_nothing() {
    demo_loses_nothing("etcd");
}
