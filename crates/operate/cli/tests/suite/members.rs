//! `quorate member` with real processes: every command, and the requests that each refuses.

use std::{fs, path::Path, thread};

use crate::common::{
    Cluster, NodeProcess, NodeSpec, START_TIMEOUT, Signal, free_port, quorate, quorate_json,
    signal, single, wait_for, with,
};
use quorate_admin::client;
use serde_json::{Value as Json, json};

/// Runs a command with the given admin addresses. Returns its exit code and document.
fn member(admin: &str, line: &str) -> (i32, Json) {
    let words: Vec<&str> = ["member"].into_iter().chain(line.split(' ')).collect();
    quorate_json(&[&words[..], &["--json", "--admin", admin]].concat())
}

fn done(admin: &str, line: &str) -> Json {
    let (code, json) = member(admin, line);
    assert_eq!(code, 0, "{line}: {json}");
    json
}

fn refused(admin: &str, line: &str, exit: i32, code: &str) {
    let (ended, json) = member(admin, line);
    assert_eq!((ended, &json["error"]["code"]), (exit, &json!(code)), "{line}: {json}");
}

/// Returns the id and the weight of every member that has a vote.
fn weights(list: &Json) -> Vec<(u64, u64)> {
    let nodes = list["nodes"].as_array().unwrap().iter();
    let weight = |node: &Json| (node["node"].as_u64().unwrap(), node["weight"].as_u64().unwrap());
    nodes.map(weight).filter(|(_, weight)| *weight > 0).collect()
}

fn wait_leader(admin: &str, wanted: impl Fn(u64) -> bool) -> u64 {
    wait_for("the leader", || {
        done(admin, "list")["leader"].as_u64().filter(|leader| wanted(*leader))
    })
}

/// Runs all commands on a cluster of three, through any of its nodes.
#[test]
fn members_are_listed_weighed_demoted_promoted_and_removed() {
    let cluster = Cluster::start(3, &[]);
    let admins = cluster.nodes.admin_addresses();
    let leader = u64::from(cluster.leader());
    let follower = 1 + leader % 3;
    // Any node finds the leader.
    let other = &admins[follower as usize - 1];
    let list = done(other, "list");
    assert_eq!((&list["era"], weights(&list)), (&json!(0), vec![(1, 1), (2, 1), (3, 1)]));
    assert_eq!(list["leader"], leader);

    // A dry run changes nothing.
    let dry = done(other, &format!("remove {follower} --dry-run"));
    assert_eq!((&dry["result"], &dry["plan"]), (&json!("planned"), &Json::Null));
    assert!(dry["steps"].as_array().unwrap().len() >= 2, "{dry}");
    assert_eq!(done(other, "list")["era"], 0);

    let heavier = done(other, &format!("weight {follower} 2"));
    assert_eq!((&heavier["result"], &heavier["era"]), (&json!("reached"), &json!(1)));
    assert_eq!(heavier["eras"][0]["era"], 1);
    let again = done(other, &format!("weight {follower} 2"));
    assert_eq!((&again["result"], &again["era"]), (&json!("nothing_to_do"), &json!(1)));
    let uneven = format!("replace {leader} {follower}");
    refused(other, &uneven, 1, "already_votes");
    done(other, &format!("weight {follower} 1"));

    let demoted = done(other, &format!("demote {follower}"));
    assert_eq!(demoted["result"], "reached");
    let list = done(other, "list");
    let role = |list: &Json| list["nodes"][follower as usize - 1]["role"].clone();
    assert_eq!((role(&list), weights(&list).len()), (json!("learner"), 2));
    let status = cluster.status(follower as u32).unwrap();
    assert_eq!((&status["role"], &status["removed"]), (&json!("learner"), &json!(false)));
    assert_eq!(done(other, &format!("demote {follower}"))["result"], "nothing_to_do");
    assert_eq!(done(other, &format!("promote {follower}"))["result"], "reached");
    assert_eq!(role(&done(other, "list")), "voter");

    // Every node refuses an impossible request with the reason.
    for (line, code) in [
        ("remove 9", "unknown_node"),
        ("promote 9", "unknown_node"),
        ("priority 9 1", "unknown_node"),
        ("priority 9 1 --dry-run", "unknown_node"),
        ("address 9 h:1", "unknown_node"),
        ("drain 9", "unknown_node"),
    ] {
        refused(other, line, 1, code);
    }
    refused(other, &format!("replace {follower} 9"), 1, "unknown_node");
    let (code, json) = member(other, &format!("replace {follower} {follower}"));
    assert_eq!((code, &json["error"]["code"]), (2, &json!("bad_request")), "{json}");
    assert_eq!(done(other, "cancel")["result"], "nothing_to_do");

    // The leader can be removed as well, by a command sent to itself.
    let leader = u64::from(cluster.leader());
    let own = &admins[leader as usize - 1];
    let removed = done(own, &format!("remove {leader}"));
    assert_eq!((&removed["result"], &removed["settled"]), (&json!("reached"), &json!(true)));
    let list = done(other, "list");
    assert_eq!((weights(&list).len(), &list["removed"]), (2, &json!([leader])));
    assert_ne!(list["leader"], leader);
    let status = wait_for("the node to know", || {
        let status = cluster.status(leader as u32)?;
        (status["removed"] == true).then_some(status)
    });
    assert_eq!(status["error"], "this node was removed from the cluster");
    let again = done(other, &format!("remove {leader}"));
    assert_eq!((&again["result"], &again["settled"]), (&json!("nothing_to_do"), &json!(true)));

    // The last removal leaves a single voter, which cannot be removed.
    let rest = weights(&list);
    let last = wait_leader(other, |leader| rest.iter().any(|(node, _)| *node == leader));
    let gone = rest.iter().find(|(node, _)| *node != last).unwrap().0;
    let last_admin = &admins[last as usize - 1];
    done(last_admin, &format!("remove {gone}"));
    refused(last_admin, &format!("remove {last}"), 1, "last_voter");
    assert_eq!(weights(&done(last_admin, "list")), [(last, 1)]);
}

/// Priorities move leadership. Draining moves it away from a node, and it does not return.
#[test]
fn leadership_goes_by_priority_and_leaves_a_node_that_is_drained() {
    let cluster = Cluster::start(3, &[]);
    let admin = cluster.nodes.admin_addresses().join(",");
    let leader = u64::from(cluster.leader());
    let wanted = 1 + leader % 3;
    assert_eq!(done(&admin, &format!("priority {wanted} 5"))["result"], "done");
    wait_leader(&admin, |leader| leader == wanted);
    let dry = done(&admin, &format!("drain {wanted} --dry-run"));
    assert_eq!((&dry["leader"], &dry["priority_was"]), (&json!(wanted), &json!(5)));
    let drained = done(&admin, &format!("drain {wanted}"));
    assert_eq!((&drained["node"], &drained["priority_was"]), (&json!(wanted), &json!(5)));
    assert_ne!(drained["leader"], wanted);
    let list = done(&admin, "list");
    assert_eq!(list["nodes"][wanted as usize - 1]["priority"], 0);
    assert_ne!(list["leader"], wanted);
    // A second drain finds that the node does not lead.
    let again = done(&admin, &format!("drain {wanted}"));
    assert_eq!((&again["leader"], &again["priority_was"]), (&list["leader"], &Json::Null));
}

/// Two operators act at once. Each learns the result of their own request, and no plan stops half
/// way.
#[test]
fn of_two_operators_one_wins_and_the_other_is_told() {
    let cluster = Cluster::start(3, &[]);
    let admin = cluster.nodes.admin_addresses().join(",");
    let leader = u64::from(cluster.leader());
    let others: Vec<u64> = (1..=3).filter(|node| *node != leader).collect();
    let ends: Vec<(i32, Json)> = thread::scope(|scope| {
        let ask = |node: u64| {
            let admin = &admin;
            scope.spawn(move || member(admin, &format!("weight {node} 3")))
        };
        let asked: Vec<_> = others.iter().map(|node| ask(*node)).collect();
        asked.into_iter().map(|asked| asked.join().unwrap()).collect()
    });
    let won = ends.iter().filter(|(code, _)| *code == 0).count();
    assert!(won >= 1, "{ends:?}");
    for (code, json) in ends {
        // Both may succeed if one request arrives after the plan of the other has ended.
        let told = code == 0 || json["error"]["code"] == "under_way";
        assert!(told, "{json}");
    }
    let list = done(&admin, "list");
    let heavy = weights(&list).iter().filter(|(_, weight)| *weight == 3).count();
    assert_eq!(heavy, won, "{list}");
}

/// A plan that needs an absent node waits, names the reason, and can be cancelled. A command that
/// follows the plan reports the cancellation.
#[test]
fn a_plan_that_waits_is_cancelled() {
    let mut cluster = Cluster::start(3, &[]);
    let admin = cluster.nodes.admin_addresses().join(",");
    let leader = u64::from(cluster.leader());
    let paused = 1 + leader % 3;
    done(&admin, &format!("demote {paused}"));
    signal(cluster.node(paused as u32), Signal::STOP);
    let rest: Vec<String> = (1..=3u64)
        .filter(|node| *node != paused)
        .map(|node| cluster.nodes.admin_addresses()[node as usize - 1].clone())
        .collect();
    let rest = rest.join(",");
    // The promotion of a node that does not respond is refused, even though the node was connected
    // a moment ago.
    wait_for("the refusal", || {
        let (code, json) = member(&rest, &format!("promote {paused} --dry-run"));
        (code == 1 && json["error"]["code"] == "not_caught_up").then_some(())
    });
    signal(cluster.node(paused as u32), Signal::CONT);
    wait_for("the promotion", || {
        let (code, _) = member(&rest, &format!("promote {paused}"));
        (code == 0).then_some(())
    });
    // Cancel a plan with many steps half way.
    let heavy = format!("weight {leader} 40");
    thread::scope(|scope| {
        let follower = scope.spawn(|| member(&rest, &heavy));
        let ended = wait_for("the plan", || {
            let plan = done(&rest, "list")["plan"].clone();
            if plan.is_null() && !follower.is_finished() {
                return None;
            }
            Some(done(&rest, "cancel"))
        });
        let (code, json) = follower.join().unwrap();
        // The plan may have ended before the cancellation.
        if ended["result"] == "done" {
            assert_eq!((code, &json["error"]["code"]), (1, &json!("cancelled")), "{json}");
        } else {
            assert_eq!(code, 0, "{json}");
        }
    });
    assert_eq!(done(&rest, "list")["plan"], Json::Null);
}

/// The contacted leader dies during a plan. The cluster continues the plan, and the command follows
/// it through another node.
#[test]
fn a_plan_and_its_command_outlive_the_leader() {
    let mut cluster = Cluster::start(3, &[]);
    let admins = cluster.nodes.admin_addresses();
    let leader = cluster.leader();
    let (second, third) = (1 + leader % 3, 1 + (leader + 1) % 3);
    let asked = admins[leader as usize - 1].clone();
    let other = &admins[third as usize - 1];
    thread::scope(|scope| {
        let line = format!("weight {second} 60");
        let follower = scope.spawn(move || done(&asked, &line));
        wait_for("the plan", || {
            let begun = done(other, "list")["era"].as_u64().unwrap() > 1;
            (begun || follower.is_finished()).then_some(())
        });
        cluster.node(leader).kill().unwrap();
        let ended = follower.join().unwrap();
        assert_eq!(ended["result"], "reached", "{ended}");
    });
    let list = done(other, "list");
    let heavy = (u64::from(second), 60);
    assert!(weights(&list).contains(&heavy), "{list}");
    wait_leader(other, |now| now != u64::from(leader));
}

/// The admin address accepts requests as JSON and replies with HTTP statuses. Other nodes pass on
/// the leader's refusal.
#[test]
fn the_admin_address_takes_wishes_as_json() {
    let cluster = Cluster::start(3, &[]);
    let admins = cluster.nodes.admin_addresses();
    let leader = u64::from(cluster.leader());
    let follower = 1 + leader % 3;
    let post = |node: u64, body: &str| {
        let admin = &admins[node as usize - 1];
        let response = client::post(admin, "/members", body, START_TIMEOUT).unwrap();
        let json: Json = serde_json::from_str(&response.body).unwrap();
        (response.status, json)
    };
    let (status, json) = post(follower, "{\"raise\": true}");
    assert_eq!((status, &json["error"]["code"]), (409, &json!("not_leader")), "{json}");
    let (status, json) = post(leader, "{\"demote\": 9}");
    assert_eq!((status, &json["error"]["code"]), (409, &json!("unknown_node")), "{json}");
    let (status, json) = post(leader, "{\"demote\": \"all\"}");
    assert_eq!((status, &json["error"]["code"]), (422, &json!("bad_request")), "{json}");
    let (status, json) = post(leader, &format!("{{\"demote\": {follower}, \"dry_run\": true}}"));
    assert_eq!((status, &json["result"], &json["plan"]), (200, &json!("planned"), &Json::Null));
    let body = format!("{{\"priority\": [{leader}, 1]}}");
    assert_eq!(post(follower, &body), (200, json!({"result": "done"})));
    let body = "{\"add\": {\"peer\": \"127.0.0.1:9\", \"as\": \"learner\"}}";
    let four = (200, json!({"result": "node", "node": 4}));
    assert_eq!(post(follower, body), four);
    assert_eq!(post(leader, body), four, "asked again, it is the same id");
    let metrics = client::get(&admins[leader as usize - 1], "/metrics", START_TIMEOUT).unwrap();
    for line in [
        "quorate_members{role=\"voter\"} 3",
        "quorate_members{role=\"learner\"} 0",
        "quorate_plan_underway 0",
        "quorate_slots_waited_for_era_total 0",
    ] {
        assert!(metrics.body.lines().any(|other| other == line), "{line}");
    }
}

/// Returns the spec of a node in the folder `name`, with fixed ports.
fn spec(folder: &Path, name: &str, flags: &[&str]) -> NodeSpec {
    let mut spec = single(&folder.join(name), flags);
    for flag in ["--client", "--peer", "--admin", "--stream"] {
        spec = with(spec, flag, &format!("127.0.0.1:{}", free_port()));
    }
    spec
}

fn flag<'a>(spec: &'a NodeSpec, name: &str) -> &'a str {
    let at = spec.flags.iter().position(|flag| flag == name).unwrap();
    &spec.flags[at + 1]
}

fn start(spec: NodeSpec) -> NodeProcess {
    let mut node = NodeProcess::spawn(spec).unwrap();
    node.wait_ready().unwrap_or_else(|error| panic!("{error}"));
    node
}

/// Growing from one to three nodes with reserved ids, replacing a dead machine and moving an
/// address work as documented.
#[test]
fn ids_are_reserved_a_machine_is_replaced_and_an_address_moved() {
    let folder = tempfile::tempdir().unwrap();
    let one = start(spec(folder.path(), "n1", &[]));
    let admin = one.ready.admin.clone();
    // A node that requests no id gets the one reserved for its address.
    let join = |name: &str, says: bool| {
        let spec = spec(folder.path(), name, &["--join", &admin]);
        let added = done(&admin, &format!("add --peer {}", flag(&spec, "--peer")));
        let node = added["node"].as_u64().unwrap();
        let line = added["start"].as_str().unwrap();
        assert!(
            line.contains(&format!("--node {node} --peer {}", flag(&spec, "--peer"))),
            "{line}"
        );
        let mut spec = spec;
        if says {
            spec.flags.extend(["--node".to_owned(), node.to_string()]);
        }
        let node_process = start(spec);
        assert_eq!(u64::from(node_process.ready.node), node);
        wait_for("its vote", || {
            let list = done(&admin, "list");
            let voters = weights(&list);
            (list["plan"].is_null() && voters.iter().any(|(voter, _)| *voter == node)).then_some(())
        });
        node_process
    };
    let mut two = join("n2", true);
    let three = join("n3", false);
    assert_eq!(weights(&done(&admin, "list")), [(1, 1), (2, 1), (3, 1)]);

    // A machine dies, and a new one replaces it.
    two.kill().unwrap();
    let four = spec(folder.path(), "n4", &["--join", &admin, "--as", "learner"]);
    let four = start(four);
    assert_eq!(four.ready.node, 4);
    let replaced = wait_for("the replacement", || {
        let (code, json) = member(&admin, "replace 2 4");
        (code == 0).then_some(json)
    });
    assert_eq!((&replaced["result"], &replaced["settled"]), (&json!("reached"), &json!(true)));
    let list = done(&admin, "list");
    assert_eq!((weights(&list), &list["removed"]), (vec![(1, 1), (3, 1), (4, 1)], &json!([2])));
    assert_eq!(done(&admin, "replace 2 4")["result"], "nothing_to_do");
    let status = quorate(&["status", "--admin", &admin]);
    let text = String::from_utf8(status.stdout).unwrap();
    assert!(!text.contains("unreachable"), "{text}");

    // A machine moves. The other nodes are notified first.
    let moved = with(three.spec.clone(), "--peer", &format!("127.0.0.1:{}", free_port()));
    let to = flag(&moved, "--peer").to_owned();
    assert_eq!(done(&admin, &format!("address 3 {to}"))["result"], "done");
    drop(three);
    let three = start(moved);
    wait_for("node 3 at its new place", || {
        let list = done(&admin, "list");
        let node = list["nodes"].as_array()?.iter().find(|node| node["node"] == 3)?.clone();
        (node["connected"] == true && node["peer"] == to.as_str()).then_some(())
    });

    // An id reserved for a learner is given to a learner.
    let five = spec(folder.path(), "n5", &["--join", &admin]);
    let added = done(&admin, &format!("add --as learner --peer {}", flag(&five, "--peer")));
    let five = start(five);
    assert_eq!(added["node"], five.ready.node);
    assert!(
        fs::read_to_string(five.spec.data_folder.join("identity"))
            .unwrap()
            .contains("joins learner")
    );
    drop(three);
}

/// [level-5] Any node reports what blocks the next level, can raise it, and reports the new one
/// afterwards.
#[test]
fn the_feature_level_is_shown_held_back_and_raised() {
    let mut cluster = Cluster::start(3, &["--feature-level", "hold"]);
    let admins = cluster.nodes.admin_addresses();
    let leader = cluster.leader();
    let (away, other) = (1 + leader % 3, 1 + (leader + 1) % 3);
    let admin = &admins[other as usize - 1];
    let (code, json) = member(admin, "feature --raise");
    assert_eq!((code, &json["error"]["code"]), (1, &json!("not_confirmed")));
    let before = done(admin, "feature");
    assert_eq!((&before["level"], &before["supports"]), (&json!(8), &json!(10)));
    assert_eq!(before["downgrade"], json!(true));
    cluster.nodes.kill(&[away]).unwrap();
    wait_for("what holds it back", || {
        let (code, json) = member(admin, "feature --raise --dry-run");
        (code == 1 && json["error"]["code"] == "held_back").then_some(())
    });
    cluster.nodes.restart(&[away]).unwrap();
    cluster.wait_until_all_serve();
    for (level, downgrade) in [(9, true), (10, false)] {
        let raised = wait_for("the raise", || {
            let (code, json) = member(admin, "feature --raise --yes");
            (code == 0).then_some(json)
        });
        assert_eq!(
            (&raised["raised"], &raised["level"], &raised["downgrade"]),
            (&json!(true), &json!(level), &json!(downgrade))
        );
    }
    // The node's folder records the level, for releases without feature levels. The node starts
    // with that level.
    wait_for("all to be there", || {
        let level = |id| cluster.status(id).map(|status| status["level"]["level"].clone());
        (1..=3).all(|id| level(id) == Some(json!(10))).then_some(())
    });
    cluster.nodes.terminate(&[away]).unwrap();
    let folder = cluster.node(away).spec.data_folder.clone();
    let identity = fs::read_to_string(folder.join("identity")).unwrap();
    assert!(identity.starts_with("quorate identity 2\nlevel 10\n"), "{identity}");
    cluster.nodes.restart(&[away]).unwrap();
    cluster.wait_until_all_serve();
}
