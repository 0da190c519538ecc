//! Request budgets: a transaction that exceeds its budget changes nothing.

use quorate_etcd::{
    mvcc::{Budget, Mvcc, is_serializable},
    proto::etcdserverpb::{
        Compare, DeleteRangeRequest, PutRequest, RangeRequest, RequestOp, TxnRequest,
        request_op::Request,
    },
    refusal::Refusal,
    store::memory::MemoryStore,
};

fn put(key: u8) -> PutRequest {
    PutRequest { key: vec![key].into(), value: vec![0; 1000].into(), ..PutRequest::default() }
}

fn filled() -> Mvcc {
    let mut mvcc = Mvcc::new(Box::new(MemoryStore::new()));
    for key in 1..=10 {
        mvcc.put(&put(key), Budget::COMMAND).unwrap();
    }
    mvcc
}

fn everything() -> RangeRequest {
    RangeRequest { key: vec![0].into(), range_end: vec![0].into(), ..RangeRequest::default() }
}

fn op(request: Request) -> RequestOp {
    RequestOp { request: Some(request) }
}

fn entries(mvcc: &Mvcc) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut entries = Vec::new();
    mvcc.store().scan(&[], &[u8::MAX], &mut |key, value| {
        entries.push((key.to_vec(), value.to_vec()));
        std::ops::ControlFlow::Continue(())
    });
    entries
}

#[test]
fn a_range_ends_where_the_budget_does() {
    let mvcc = filled();
    let ask = |range, bytes, visits| {
        let txn =
            TxnRequest { success: vec![op(Request::RequestRange(range))], ..TxnRequest::default() };
        mvcc.execute_read_txn(&txn, Budget::of(bytes, visits)).map(drop)
    };
    assert_eq!(ask(everything(), 20_000, 10), Ok(()));
    assert_eq!(ask(everything(), 10_000, 10), Err(Refusal::BudgetExceeded));
    assert_eq!(ask(everything(), 20_000, 9), Err(Refusal::BudgetExceeded));
    let keys = RangeRequest { keys_only: true, ..everything() };
    assert_eq!(ask(keys, 1000, 10), Ok(()));
}

#[test]
fn a_transaction_beyond_its_budget_leaves_no_trace() {
    let mut mvcc = filled();
    let before = entries(&mvcc);
    let delete =
        DeleteRangeRequest { key: vec![3].into(), range_end: vec![6].into(), prev_kv: true };
    let txn = TxnRequest {
        compare: Vec::new(),
        success: vec![
            op(Request::RequestPut(put(1))),
            op(Request::RequestPut(put(77))),
            op(Request::RequestDeleteRange(delete)),
            op(Request::RequestRange(everything())),
        ],
        failure: Vec::new(),
    };
    assert_eq!(mvcc.execute_txn(&txn, Budget::of(10_000, 100)), Err(Refusal::BudgetExceeded));
    assert_eq!(entries(&mvcc), before);
    assert_eq!(mvcc.revision(), 11);
    assert!(mvcc.execute_txn(&txn, Budget::of(20_000, 100)).is_ok());
    assert_eq!(mvcc.revision(), 12);
}

#[test]
fn comparing_counts_too() {
    let mut mvcc = filled();
    let compare = Compare {
        // Every key has version 1.
        target_union: Some(quorate_etcd::proto::etcdserverpb::compare::TargetUnion::Version(1)),
        key: vec![0].into(),
        range_end: vec![0].into(),
        ..Compare::default()
    };
    let txn = TxnRequest { compare: vec![compare.clone(), compare], ..TxnRequest::default() };
    assert_eq!(mvcc.execute_txn(&txn, Budget::of(0, 19)), Err(Refusal::BudgetExceeded));
    assert!(mvcc.execute_txn(&txn, Budget::of(0, 20)).unwrap().succeeded);
}

fn at(revision: i64) -> RangeRequest {
    RangeRequest { revision, ..everything() }
}

/// Visiting a key is charged even if it did not exist at the revision.
#[test]
fn keys_that_were_not_there_yet_count_too() {
    let mut mvcc = filled();
    mvcc.delete(
        &DeleteRangeRequest { key: vec![4].into(), ..DeleteRangeRequest::default() },
        Budget::COMMAND,
    )
    .unwrap();
    let page = |from: u8, visits| {
        let request = quorate_etcd::command::PageRequest {
            request: Some(at(2)),
            revision: 0,
            from: vec![from].into(),
            key_limit: 100,
            visit_limit: visits,
        };
        mvcc.page(&request).unwrap()
    };
    let first = page(2, 3);
    assert_eq!((first.count, &first.next[..]), (0, &[4, 0][..]), "2, 3 and 4 were looked at");
    assert_eq!(page(1, 1).count, 1);
    assert!(page(8, 3).next == [10, 0][..] && page(8, 4).next.is_empty());
    let ask = |visits| {
        let txn =
            TxnRequest { success: vec![op(Request::RequestRange(at(2)))], ..TxnRequest::default() };
        mvcc.execute_read_txn(&txn, Budget::of(20_000, visits)).map(drop)
    };
    assert_eq!((ask(9), ask(10)), (Err(Refusal::BudgetExceeded), Ok(())));
}

/// A sorted range with a limit is charged only for the keys that it returns.
#[test]
fn a_sorted_range_with_a_limit_may_look_at_more_than_it_answers() {
    let mvcc = filled();
    let ask = |limit, bytes| {
        let range = RangeRequest { sort_order: 2, sort_target: 3, limit, ..everything() };
        let txn =
            TxnRequest { success: vec![op(Request::RequestRange(range))], ..TxnRequest::default() };
        let answer = mvcc.execute_read_txn(&txn, Budget::of(bytes, 10))?;
        let Some(quorate_etcd::proto::etcdserverpb::response_op::Response::ResponseRange(range)) =
            answer.responses[0].response.clone()
        else {
            panic!("it was a range");
        };
        Ok(range.kvs.iter().map(|kv| kv.mod_revision).collect::<Vec<_>>())
    };
    assert_eq!(ask(1, 5000), Ok(vec![11]));
    assert_eq!(ask(2, 7000), Ok(vec![11, 10]));
    assert_eq!(ask(0, 5000), Err(Refusal::BudgetExceeded));
    assert_eq!(ask(9, 5000), Err(Refusal::BudgetExceeded));
}

/// A transaction is charged for the undo data of deletions. A single deletion has none.
#[test]
fn deleting_within_a_transaction_counts() {
    let all = DeleteRangeRequest { key: vec![0].into(), range_end: vec![0].into(), prev_kv: false };
    let txn = TxnRequest {
        success: vec![op(Request::RequestDeleteRange(all.clone()))],
        ..TxnRequest::default()
    };
    let mut mvcc = filled();
    let before = entries(&mvcc);
    assert_eq!(mvcc.execute_txn(&txn, Budget::of(5000, 100)), Err(Refusal::BudgetExceeded));
    assert_eq!(entries(&mvcc), before);
    assert!(mvcc.execute_txn(&txn, Budget::of(6000, 100)).is_ok());
    let mut mvcc = filled();
    assert_eq!(mvcc.delete(&all, Budget::of(0, 0)).unwrap().deleted, 10);
}

/// A deletion of more keys than one internal step handles still uses one revision.
#[test]
fn many_keys_are_deleted_in_one_revision() {
    let mut mvcc = Mvcc::new(Box::new(MemoryStore::new()));
    for key in 0..2500_u16 {
        let request =
            PutRequest { key: key.to_be_bytes().to_vec().into(), ..PutRequest::default() };
        mvcc.put(&request, Budget::COMMAND).unwrap();
    }
    let most =
        DeleteRangeRequest { key: vec![0, 1].into(), range_end: vec![0].into(), prev_kv: false };
    let done = mvcc.delete(&most, Budget::COMMAND).unwrap();
    assert_eq!((done.deleted, done.header.unwrap().revision), (2499, 2502));
    assert_eq!(mvcc.delete(&most, Budget::COMMAND).unwrap().deleted, 0);
}

/// A transaction is serializable if its reads are. Comparisons do not count as reads.
#[test]
fn a_transaction_that_only_compares_is_not_serializable() {
    let compare = TxnRequest { compare: vec![Compare::default()], ..TxnRequest::default() };
    assert!(!is_serializable(&compare));
    let range = RangeRequest { serializable: true, ..everything() };
    let reads = TxnRequest { success: vec![op(Request::RequestRange(range))], ..compare };
    assert!(is_serializable(&reads));
}
