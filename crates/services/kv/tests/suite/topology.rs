//! ROLE, SENTINEL and INFO replication: the discovery of nodes by clients.

use quorate_kv::front::{ClusterMode, RespFront, Settings};
use quorate_replica::front::Front as _;

use super::common::Node;

/// Returns a follower with this leader, if any. Node 3 is not connected.
fn follower(leader: Option<u32>) -> Node {
    let mut node = Node::memory();
    (node.world.node, node.world.leader) = (2, leader);
    node
}

#[test]
fn the_leader_is_the_master() {
    let mut node = Node::memory();
    let client = node.connect();
    node.say(client, "SET a 1");
    let reply = "*3|$6|master|:2|*2|*3|$7|fd00::2|$4|7002|$1|1|*3|$7|fd00::3|$4|7003|$1|0|";
    assert_eq!(node.say(client, "ROLE"), reply);
    let info = node.say(client, "INFO replication");
    let expected = "role:master|connected_slaves:1|slave0:ip=fd00::2,port=7002,state=online,offset=1,lag=0|\
        master_replid:0000000000000000000000000000000700000000|master_repl_offset:2|quorate_cluster";
    assert!(info.contains(expected), "{info}");
}

#[test]
fn a_follower_names_its_master() {
    let mut node = follower(Some(1));
    let client = node.connect();
    assert_eq!(node.say(client, "ROLE"), "*5|$5|slave|$7|fd00::1|:7001|$9|connected|:1|");
    let info = node.say(client, "INFO replication");
    let expected = "role:slave|master_host:fd00::1|master_port:7001|master_link_status:up|";
    assert!(info.contains(expected), "{info}");
    // Every node accepts writes.
    assert!(info.contains("slave_read_only:0"), "{info}");
    assert_eq!(node.say(client, "SET a 1"), "+OK|");

    node.world.leader = None;
    assert_eq!(node.say(client, "ROLE"), "*5|$5|slave|$0||:0|$7|connect|:2|");
    assert!(node.say(client, "INFO replication").contains("master_link_status:down"));
}

#[test]
fn each_node_answers_as_a_sentinel() {
    let mut node = follower(Some(1));
    let client = node.connect();
    let mut say = |request: &str| node.say(client, &format!("SENTINEL {request}"));
    assert_eq!(say("GET-MASTER-ADDR-BY-NAME any"), "*2|$7|fd00::1|$4|7001|");
    let master = say("MASTER cache");
    assert!(
        master.starts_with("*26|$4|name|$5|cache|$2|ip|$7|fd00::1|$4|port|$4|7001|"),
        "{master}"
    );
    for part in ["$5|flags|$6|master|", "$10|num-slaves|$1|2|", "$6|quorum|$1|2|"] {
        assert!(master.contains(part), "{master}");
    }
    assert!(say("MASTERS").starts_with("*1|*26|$4|name|$8|mymaster|"));
    let replicas = say("REPLICAS cache");
    assert!(replicas.starts_with("*2|*28|$4|name|$12|fd00::2:7002|"), "{replicas}");
    assert!(replicas.contains("$5|flags|$5|slave|"), "this node: {replicas}");
    assert!(replicas.contains("$5|flags|$25|slave,s_down,disconnected|"), "node 3: {replicas}");
    assert!(replicas.contains("$11|master-host|$7|fd00::1|$11|master-port|$4|7001|"), "{replicas}");
    assert_eq!(say("SLAVES cache"), replicas);
    let others = say("SENTINELS cache");
    assert!(others.starts_with("*2|*18|$4|name|$40|0000000000000000000000000000000700000001|"));
    assert!(!others.contains("fd00::2"), "{others}");
    assert_eq!(say("MYID"), "$40|0000000000000000000000000000000700000002|");
    assert_eq!(say("CKQUORUM cache"), "+OK 2 usable nodes; the group has a leader|");
    assert!(say("FAILOVER cache").starts_with("-ERR unknown subcommand 'FAILOVER'"));
    assert!(say("MASTER").starts_with("-ERR wrong number of arguments for 'sentinel|master'"));
}

#[test]
fn without_a_leader_there_is_no_master() {
    let mut node = follower(None);
    let client = node.connect();
    let mut say = |request: &str| node.say(client, &format!("SENTINEL {request}"));
    assert_eq!(say("GET-MASTER-ADDR-BY-NAME any"), "*-1|");
    assert_eq!(say("MASTERS"), "*0|");
    for request in ["MASTER any", "CKQUORUM any"] {
        assert!(say(request).starts_with("-ERR this group has no leader now"));
    }
    assert!(say("REPLICAS any").starts_with("*3|"));
}

#[test]
fn subscribers_learn_of_a_new_leader() {
    let mut node = follower(Some(1));
    let (listener, all, other) = (node.connect(), node.connect(), node.connect());
    node.say(listener, "SENTINEL GET-MASTER-ADDR-BY-NAME cache");
    node.say(listener, "SUBSCRIBE +switch-master");
    node.say(all, "PSUBSCRIBE *");
    node.say(other, "SUBSCRIBE +slave");
    let mut lead = |leader: Option<u32>| {
        node.world.leader = leader;
        node.world.wall_ms += 10;
        node.front.run_turn(&mut node.world);
        node.settle();
        [listener, all, other].map(|client| node.take(client))
    };
    assert_eq!(lead(Some(1)), [""; 3], "no change");
    assert_eq!(lead(None), [""; 3], "an election");
    let [named, matched, unrelated] = lead(Some(2));
    let of = |name: &str| format!("{name} fd00::1 7001 fd00::2 7002");
    let message =
        |name: &str| format!("*3|$7|message|$14|+switch-master|${}|{}|", of(name).len(), of(name));
    assert_eq!(named, message("cache") + &message("mymaster"));
    assert!(matched.contains(&of("cache")), "{matched}");
    assert_eq!(unrelated, "");
    assert_eq!(lead(Some(2)), [""; 3], "told once");
    let [back, ..] = lead(Some(1));
    assert!(back.contains("cache fd00::2 7002 fd00::1 7001"), "{back}");
}

/// Returns a follower that has a leader, in this cluster mode.
fn in_cluster(mode: ClusterMode) -> Node {
    let mut node = follower(Some(1));
    node.front = RespFront::new(Settings { cluster_mode: mode, ..Settings::default() });
    node
}

#[test]
fn a_plain_node_is_no_cluster() {
    let mut node = Node::memory();
    let client = node.connect();
    assert!(
        node.say(client, "CLUSTER SLOTS").starts_with("-ERR This instance has cluster support")
    );
    assert!(node.say(client, "INFO cluster").contains("cluster_enabled:0"));
}

#[test]
fn slots_are_spread_over_the_reachable_nodes() {
    let mut node = in_cluster(ClusterMode::Emulated);
    let client = node.connect();
    let mut say = |request: &str| node.say(client, request);
    let id = |node: u32| format!("{:032x}{node:08x}", 7);
    let expected = format!(
        "*2|*3|:0|:8191|*4|$7|fd00::1|:7001|$40|{}|*0|*3|:8192|:16383|*4|$7|fd00::2|:7002|$40|{}|*0|",
        id(1),
        id(2)
    );
    assert_eq!(say("CLUSTER SLOTS"), expected);
    let shards = say("CLUSTER SHARDS");
    assert!(
        shards.starts_with("*3|*4|$5|slots|*2|:0|:8191|$5|nodes|*1|*14|$2|id|$40|"),
        "{shards}"
    );
    assert!(shards.contains("$6|health|$4|fail|"), "node 3: {shards}");
    let nodes = say("CLUSTER NODES");
    let lines = [
        format!("{} fd00::1:7001@17001 master - 0 0 0 connected 0-8191", id(1)),
        format!("{} fd00::2:7002@17002 myself,master - 0 0 0 connected 8192-16383", id(2)),
        format!("{} fd00::3:7003@17003 master,fail - 0 0 0 disconnected", id(3)),
    ];
    assert!(nodes.contains(&lines.join("\n")), "{nodes}");
    let info = say("CLUSTER INFO");
    assert!(info.contains("cluster_state:ok") && info.contains("cluster_size:2"), "{info}");
    assert_eq!(say("CLUSTER MYID"), format!("$40|{}|", id(2)));
    assert_eq!(say("CLUSTER KEYSLOT foo"), ":12182|");
    assert_eq!(say(&format!("CLUSTER REPLICAS {}", id(3))), "*0|");
    assert_eq!(say("CLUSTER REPLICAS x"), "-ERR Unknown node x|");
    assert!(say("CLUSTER COUNTKEYSINSLOT 7").starts_with("-ERR keys are not kept by slot"));
    assert_eq!(say("CLUSTER COUNTKEYSINSLOT 16384"), "-ERR Invalid slot|");
    assert!(say("CLUSTER MEET a 1").starts_with("-ERR unknown subcommand 'MEET'"));
    assert_eq!(say("ASKING"), "+OK|");
    assert!(say("INFO server").contains("redis_mode:cluster"));
    assert!(say("HELLO 2").contains("$4|mode|$7|cluster|"));
    // This node accepts keys of any slot.
    assert_eq!(say("SET foo 1"), "+OK|");
}

#[test]
fn the_leader_may_have_all_slots() {
    let mut node = in_cluster(ClusterMode::Leader);
    let client = node.connect();
    let slots = node.say(client, "CLUSTER SLOTS");
    assert!(slots.starts_with("*1|*3|:0|:16383|*4|$7|fd00::1|"), "{slots}");
    // During an election, the slots are spread over the reachable nodes.
    node.world.leader = None;
    assert!(node.say(client, "CLUSTER SLOTS").starts_with("*2|*3|:0|:8191|"));
    assert!(node.say(client, "CLUSTER INFO").contains("cluster_state:fail"));
}
