//! Alarms: while a member has no space, the data may not grow on any node.

use prost::Message;
use quorate_etcd::{
    command::{Command, Figures, LeaseGrant, Query},
    proto::etcdserverpb::{
        AlarmMember, AlarmRequest, AlarmResponse, AlarmType, DeleteRangeRequest,
        DeleteRangeResponse, LeaseGrantResponse, PutRequest, PutResponse, RequestOp, TxnRequest,
        TxnResponse, alarm_request::AlarmAction, request_op::Request,
    },
    refusal::Refusal,
    service::Service,
};

use crate::common::{apply, ask, image, loaded, service};

fn alarm(action: AlarmAction, kind: AlarmType, member_id: u64) -> Command {
    Command::Alarm(AlarmRequest { action: action.into(), alarm: kind.into(), member_id })
}

fn alarms(service: &Service, kind: AlarmType) -> Vec<AlarmMember> {
    let request = AlarmRequest { alarm: kind.into(), ..AlarmRequest::default() };
    let answer: AlarmResponse = ask(service, &Query::Alarms(request)).unwrap();
    answer.alarms
}

fn put() -> PutRequest {
    PutRequest { key: "a".into(), ..PutRequest::default() }
}

fn refused<M: Message + Default + PartialEq + std::fmt::Debug>(
    service: &mut Service,
    command: &Command,
) {
    assert_eq!(apply::<M>(service, command), Err(Refusal::NoSpace));
}

#[test]
fn without_space_nothing_grows() {
    let mut service = service();
    apply::<PutResponse>(&mut service, &Command::Put(put())).unwrap();
    let raise = alarm(AlarmAction::Activate, AlarmType::Nospace, 2);
    let raised: AlarmResponse = apply(&mut service, &raise).unwrap();
    assert_eq!(alarms(&service, AlarmType::None), raised.alarms);
    // The alarm is part of the state.
    let mut service = loaded(&image(&mut service, 100));
    refused::<PutResponse>(&mut service, &Command::Put(put()));
    let granted = LeaseGrant { id: 1, ttl: 5, now_ms: 0 };
    refused::<LeaseGrantResponse>(&mut service, &Command::Grant(granted));
    let op = |request| RequestOp { request: Some(request) };
    let within =
        TxnRequest { failure: vec![op(Request::RequestPut(put()))], ..TxnRequest::default() };
    let txn =
        TxnRequest { success: vec![op(Request::RequestTxn(within))], ..TxnRequest::default() };
    refused::<TxnResponse>(&mut service, &Command::Txn(txn));
    let delete = DeleteRangeRequest { key: "a".into(), ..DeleteRangeRequest::default() };
    let deletes = TxnRequest {
        success: vec![op(Request::RequestDeleteRange(delete.clone()))],
        ..TxnRequest::default()
    };
    apply::<TxnResponse>(&mut service, &Command::Txn(deletes)).unwrap();
    let deleted: DeleteRangeResponse = apply(&mut service, &Command::Delete(delete)).unwrap();
    assert_eq!(deleted.deleted, 0);
    let other = alarm(AlarmAction::Deactivate, AlarmType::Nospace, 1);
    assert_eq!(apply::<AlarmResponse>(&mut service, &other).unwrap().alarms, []);
    refused::<PutResponse>(&mut service, &Command::Put(put()));
    let disarm = alarm(AlarmAction::Deactivate, AlarmType::Nospace, 2);
    let ended: AlarmResponse = apply(&mut service, &disarm).unwrap();
    assert_eq!(ended.alarms, raised.alarms);
    apply::<PutResponse>(&mut service, &Command::Put(put())).unwrap();
}

#[test]
fn alarms_are_of_kinds_and_bounded_in_number() {
    let mut service = service();
    let corrupt = alarm(AlarmAction::Activate, AlarmType::Corrupt, 1);
    apply::<AlarmResponse>(&mut service, &corrupt).unwrap();
    assert_eq!(alarms(&service, AlarmType::Corrupt).len(), 1);
    assert_eq!(alarms(&service, AlarmType::Nospace), []);
    // An alarm of this kind does not block writes.
    apply::<PutResponse>(&mut service, &Command::Put(put())).unwrap();
    for member in 2..=1000 {
        let raise = alarm(AlarmAction::Activate, AlarmType::Corrupt, member);
        apply::<AlarmResponse>(&mut service, &raise).unwrap();
    }
    let raise = alarm(AlarmAction::Activate, AlarmType::Nospace, 1);
    let more = apply::<AlarmResponse>(&mut service, &raise);
    assert_eq!(more, Err(Refusal::TooManyAlarms));
    apply::<AlarmResponse>(&mut service, &corrupt).unwrap();
    assert_eq!(alarms(&service, AlarmType::None).len(), 1000);
    let figures: Figures = ask(&service, &Query::Figures).unwrap();
    assert_eq!(figures.revision, 2, "alarms are no revisions");
}
