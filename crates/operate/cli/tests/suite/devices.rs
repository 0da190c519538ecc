//! Devices of nodes as users see them. Without root, or where no kernel programs can be loaded,
//! these tests are skipped with a message.

use std::{env, fs};

use crate::common::{
    Cluster, NodeProcess, START_TIMEOUT, Signal, patient, program, quorate_json, single, wait_for,
};
use quorate_client::Client;
use quorate_testbed::{
    nodes::{NodeCluster, fetch},
    process::loopback_cluster,
};
use serde_json::Value as Json;

/// Reports a skipped test. With `QUORATE_NO_SKIPS=true` the test fails instead.
fn skip(why: &str) {
    let all = env::var("QUORATE_NO_SKIPS").is_ok_and(|value| value == "true");
    assert!(!all, "devices in the kernel are not tested: {why}");
    eprintln!("skipped: devices in the kernel: {why}");
}

/// [offload-8], [offload-12] A leader is killed with SIGKILL while its device continues to vote,
/// and uses that device again after its return. Nothing acknowledged is lost, and the demo leaves
/// nothing behind on the machine.
#[test]
fn the_demo_in_the_kernel_loses_nothing() {
    let words = ["demo", "--plane", "kernel", "--seconds", "4", "--json"];
    let (code, json) = quorate_json(&words);
    if json["error"]["code"] == "no_network" {
        return skip(json["error"]["message"].as_str().unwrap());
    }
    assert_eq!((code, json["lost"].as_u64()), (0, Some(0)), "{json}");
    assert!(json["failover_ms"].is_u64(), "{json}");
    let device = json["devices"]["name"].as_str().unwrap();
    if !device.starts_with("in the kernel") {
        return skip(device);
    }
    let acknowledged = json["acknowledged"].as_u64().unwrap();
    let votes = json["devices"]["votes"].as_u64().unwrap();
    // Batches contain several writes.
    assert!(acknowledged > 100 && votes > 30, "{json}");
}

/// [offload-11], [offload-15] A learner, as a client outside the voters, submits commands to the
/// leader's device in frames, and learns from the decisions that the device counts.
#[test]
fn a_learner_submits_and_learns_by_frames() {
    let flags = ["--durability", "volatile", "--device", "udp"];
    let cluster = Cluster::start(3, &flags);
    let admin = cluster.nodes.admin_addresses().swap_remove(0);
    let folder = tempfile::tempdir().unwrap();
    let flags = ["--join", &admin, "--as", "learner", "--device", "udp"];
    let mut learner = NodeProcess::spawn(single(&folder.path().join("n4"), &flags)).unwrap();
    learner.wait_ready().unwrap();
    let device = || {
        let body = fetch(&learner.ready.admin, "/status", START_TIMEOUT)?;
        let status: Json = serde_json::from_str(&body).unwrap();
        Some(status["device"].clone())
    };
    let mut client = Client::new(&[learner.ready.client.clone()], patient());
    let mut written = 0_u64;
    // Wait until the learner has received frames from the leader's device, and the device has
    // received frames from the learner.
    let device = wait_for("a command that went by frames, and decisions by them", || {
        for _ in 0..20 {
            client.run(&[b"INCR", b"key"]).unwrap();
            written += 1;
        }
        let device = device()?;
        let is = |name: &str| device[name].as_u64().is_some_and(|count| count > 100);
        (is("offered") && is("counted")).then_some(device)
    });
    assert_eq!(device["votes"], 0, "{device}");
    let reply = cluster.client_of(1).read(&[b"GET", b"key"]).unwrap();
    assert_eq!(reply.bytes(), Some(written.to_string().as_bytes()), "{reply:?}");
}

/// Panics unless the interpreter of switch programs is in the folder of the binary, where `cargo
/// test` of the workspace builds it.
fn require_interpreter() {
    let path = program().with_file_name("quorate-p4");
    assert!(path.exists(), "build it first: cargo build --bin quorate-p4");
}

/// An external device process, a thread and a node without a device serve the demo's page, whose
/// buttons `cargo xtask page` presses.
#[test]
fn the_demo_with_a_page_loses_nothing() {
    require_interpreter();
    let words = ["demo", "--devices", "--plane", "tcp", "--seconds", "3", "--json"];
    let (code, json) = quorate_json(&words);
    assert_eq!((code, json["lost"].as_u64()), (0, Some(0)), "{json}");
    assert!(json["acknowledged"].as_u64().unwrap() > 0, "{json}");
    assert!(json["checked"].as_u64().unwrap() > 0, "{json}");
    let device = |at: usize| json["devices"][at].as_str().unwrap_or_default();
    assert!(device(0).starts_with("box, process"), "{json}");
    assert!(device(1).starts_with("thread, by datagrams"), "{json}");
    assert!(json["devices"][2].is_null(), "{json}");
}

/// Returns a node's report about its device.
fn device_of(cluster: &Cluster, id: u32) -> Option<Json> {
    Some(cluster.status(id)?["device"].clone()).filter(|device| !device.is_null())
}

/// Returns the process that runs this program for a node's device.
fn process_of(cluster: &mut Cluster, id: u32, program: &str) -> Option<u32> {
    let children = cluster.node(id).child_pids().unwrap();
    children.into_iter().find(|child| {
        let words = fs::read(format!("/proc/{child}/cmdline")).unwrap_or_default();
        words.split(|byte| *byte == 0).any(|word| word == program.as_bytes())
    })
}

/// [offload-9], [offload-12] Switch programs assign slots and vote for nodes. When one of them is
/// killed and loses its memory, nothing acknowledged is lost. The program is used again after its
/// restart.
#[test]
fn boxes_give_out_slots_and_may_lose_their_memory() {
    require_interpreter();
    let mut cluster = Cluster::start(3, &["--device", "p4"]);
    let mut client = cluster.client_from(1);
    let mut written = 0_u64;
    for round in 0..3 {
        let leader = wait_for("a leader whose box gives out slots", || {
            let leader = cluster.nodes.leader().ok()?;
            let device = device_of(&cluster, leader)?;
            assert!(device["kind"] != "udp", "{device}");
            device["gives_from"].is_u64().then_some(leader)
        });
        let before = device_of(&cluster, leader).unwrap()["given"].as_u64().unwrap();
        wait_for("slots from it", || {
            client.run(&[b"INCR", b"key"]).unwrap();
            written += 1;
            let device = device_of(&cluster, leader)?;
            (device["given"].as_u64()? >= before + 10).then_some(())
        });
        let program = ["coordinator", "acceptor"][round % 2];
        let process = wait_for("its process", || process_of(&mut cluster, leader, program));
        let process = rustix::process::Pid::from_raw(process.try_into().unwrap()).unwrap();
        rustix::process::kill_process(process, Signal::KILL).unwrap();
        for _ in 0..20 {
            client.run(&[b"INCR", b"key"]).unwrap();
            written += 1;
        }
    }
    let reply = cluster.client_of(1).read(&[b"GET", b"key"]).unwrap();
    assert_eq!(reply.bytes(), Some(written.to_string().as_bytes()), "{reply:?}");
}

/// An external device process ends with its node, however the node ends, and even while the process
/// is stopped.
#[test]
fn a_box_ends_with_its_node() {
    require_interpreter();
    let mut cluster = Cluster::start(1, &["--device", "p4"]);
    let processes = ["acceptor", "coordinator"].map(|program| {
        let process = wait_for("its process", || process_of(&mut cluster, 1, program));
        rustix::process::Pid::from_raw(process.try_into().unwrap()).unwrap()
    });
    for process in processes {
        rustix::process::kill_process(process, Signal::STOP).unwrap();
    }
    cluster.node(1).kill().unwrap();
    for process in processes {
        // An ended process has no command line, even before it is reaped.
        let words = format!("/proc/{}/cmdline", process.as_raw_nonzero());
        wait_for("its end", || fs::read(&words).unwrap_or_default().is_empty().then_some(()));
    }
}

/// One node votes by a switch program, one by a thread, one by itself. They work together under any
/// leader.
#[test]
fn groups_are_mixed() {
    require_interpreter();
    let mut nodes = NodeCluster::with_empty_folder("quorate-test-").unwrap();
    let specs = loopback_cluster(&program(), nodes.data_folder(), 3, &["--durability", "volatile"])
        .unwrap();
    let devices = ["p4", "udp", "off"].into_iter();
    let specs = specs.into_iter().zip(devices).map(|(mut spec, device)| {
        spec.flags.extend(["--device", device].map(str::to_owned));
        spec
    });
    nodes.start(specs.collect()).unwrap();
    let cluster = Cluster { nodes };
    cluster.wait_until_all_serve();
    let mut client = cluster.client_from(3);
    let mut written = 0_u64;
    for leader in [1, 2, 1] {
        wait_for("the leader that is wanted", || {
            let admin = cluster.nodes.admin_addresses().swap_remove(0);
            let to = leader.to_string();
            quorate_json(&["transfer", "--to", &to, "--admin", &admin, "--json"]);
            (cluster.nodes.leader().ok()? == leader).then_some(())
        });
        let given = || device_of(&cluster, leader)?["given"].as_u64();
        let before = wait_for("its device", given);
        wait_for("slots that it gave out", || {
            client.run(&[b"INCR", b"key"]).unwrap();
            written += 1;
            (given()? >= before + 10).then_some(())
        });
    }
    // Each of the two voted for slots that the other assigned.
    for id in [1, 2] {
        let device = device_of(&cluster, id).unwrap();
        assert_eq!(device["kind"], ["", "p4", "udp"][id as usize]);
        assert!(device["votes"].as_u64().unwrap() >= 20, "{device}");
    }
    let reply = cluster.client_of(2).read(&[b"GET", b"key"]).unwrap();
    assert_eq!(reply.bytes(), Some(written.to_string().as_bytes()), "{reply:?}");
}

/// A device that does not answer frames with frames is reported, and a thread votes instead.
#[test]
fn a_box_that_does_not_answer_is_passed_over() {
    for (command, why) in [
        ("process:false", "does not answer"),
        ("process:/nowhere/quorate-none", "does not answer"),
        ("rtl:/nowhere", "does not answer"),
    ] {
        let cluster = Cluster::start(1, &["--device", command]);
        let device = wait_for("its device", || device_of(&cluster, 1));
        assert_eq!(device["kind"], "udp", "{device}");
        assert!(device["name"].as_str().unwrap().contains(why), "{device}");
    }
}

/// Conflicting options are reported before anything is started.
#[test]
fn a_cluster_that_nobody_reaches_is_not_kept() {
    for flag in ["--keep", "--replace"] {
        let (code, json) = quorate_json(&["demo", "--plane", "kernel", flag, "--json"]);
        assert_eq!(code, 2, "{json}");
    }
}
