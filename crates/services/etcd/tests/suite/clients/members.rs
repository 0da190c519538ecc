//! Membership changes requested by clients.

use std::time::Duration;

use quorate_etcd::proto::etcdserverpb::{
    Member, MemberAddRequest, MemberListRequest, MemberPromoteRequest, MemberRemoveRequest,
    MemberUpdateRequest, MoveLeaderRequest, cluster_client::ClusterClient,
    maintenance_client::MaintenanceClient,
};
use tonic::{Code, transport::Channel};

use super::{Node, check, get, put, runtime, three};

const NOT_FOUND: &str = "etcdserver: member not found";

fn add(url: &str, is_learner: bool) -> MemberAddRequest {
    MemberAddRequest { peer_ur_ls: vec![url.to_owned()], is_learner }
}

async fn list(cluster: &mut ClusterClient<Channel>) -> Vec<Member> {
    let list = MemberListRequest { linearizable: true };
    cluster.member_list(list).await.unwrap().into_inner().members
}

/// Returns the index of the leader, once all nodes agree on it.
fn leader(nodes: &[Node]) -> usize {
    for _ in 0..1000 {
        let leaders = nodes.iter().map(|node| node.replica().status().unwrap().leader);
        let leaders: Vec<_> = leaders.collect();
        if let Some(leader) =
            leaders[0].filter(|leader| leaders.iter().all(|one| *one == Some(*leader)))
        {
            return usize::try_from(leader.0).unwrap() - 1;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("there is no leader");
}

#[test]
fn a_member_is_added_as_an_id_that_a_node_takes_later() {
    let folder = tempfile::tempdir().unwrap();
    let node = Node::alone(folder.path());
    runtime().block_on(async {
        let mut cluster = ClusterClient::new(node.channel());
        let added =
            cluster.member_add(add("http://127.0.0.1:7001", true)).await.unwrap().into_inner();
        let member = added.member.unwrap();
        assert_eq!((member.id, member.is_learner), (2, true));
        assert_eq!(member.peer_ur_ls, ["http://127.0.0.1:7001"]);
        assert_eq!(added.members.len(), 2);
        let members = list(&mut cluster).await;
        assert_eq!(members[1].peer_ur_ls, ["http://127.0.0.1:7001"]);
        assert!(members[1].is_learner && members[1].name.is_empty(), "no node is there yet");
        let again = cluster.member_add(add("http://127.0.0.1:7001", true)).await;
        check(again, Code::FailedPrecondition, "etcdserver: Peer URLs already exists");
        let update =
            MemberUpdateRequest { id: 2, peer_ur_ls: vec!["http://127.0.0.1:7002".to_owned()] };
        let updated = cluster.member_update(update).await.unwrap().into_inner();
        assert_eq!(updated.members[1].peer_ur_ls, ["http://127.0.0.1:7002"]);
        let not_ready =
            "etcdserver: can only promote a learner member which is in sync with leader";
        let promoted = cluster.member_promote(MemberPromoteRequest { id: 2 }).await;
        check(promoted, Code::FailedPrecondition, not_ready);
        let not_learner = "etcdserver: can only promote a learner member";
        let promoted = cluster.member_promote(MemberPromoteRequest { id: 1 }).await;
        check(promoted, Code::FailedPrecondition, not_learner);
        let removed =
            cluster.member_remove(MemberRemoveRequest { id: 2 }).await.unwrap().into_inner();
        assert_eq!(removed.members.len(), 1);
        for id in [2, 9, u64::MAX] {
            check(
                cluster.member_remove(MemberRemoveRequest { id }).await,
                Code::NotFound,
                NOT_FOUND,
            );
            check(
                cluster.member_promote(MemberPromoteRequest { id }).await,
                Code::NotFound,
                NOT_FOUND,
            );
        }
        let last = "etcdserver: re-configuration failed due to not enough started members";
        let last_one = cluster.member_remove(MemberRemoveRequest { id: 1 }).await;
        check(last_one, Code::FailedPrecondition, last);
    });
}

#[test]
fn a_member_is_removed_and_the_others_go_on() {
    let folder = tempfile::tempdir().unwrap();
    let nodes = three(folder.path());
    runtime().block_on(async {
        nodes[0].kv().put(put("a", "1")).await.unwrap();
        let leads = leader(&nodes);
        let (follower, leaves) = ((leads + 1) % 3, (leads + 2) % 3);
        let id = u64::try_from(leaves + 1).unwrap();
        let mut at_follower = ClusterClient::new(nodes[follower].channel());
        let removed =
            at_follower.member_remove(MemberRemoveRequest { id }).await.unwrap().into_inner();
        let ids: Vec<u64> = removed.members.iter().map(|member| member.id).collect();
        assert!(ids.len() == 2 && !ids.contains(&id), "{ids:?}");
        nodes[leads].kv().put(put("b", "1")).await.unwrap();
        assert_eq!(nodes[follower].kv().range(get("b")).await.unwrap().into_inner().count, 1);
        let mut maintenance = MaintenanceClient::new(nodes[leads].channel());
        let gone = maintenance.move_leader(MoveLeaderRequest { target_id: id }).await;
        check(gone, Code::FailedPrecondition, "etcdserver: bad leader transferee");
        let target_id = u64::try_from(follower + 1).unwrap();
        maintenance.move_leader(MoveLeaderRequest { target_id }).await.unwrap();
        nodes[leads].kv().put(put("c", "1")).await.unwrap();
    });
}
