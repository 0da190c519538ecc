//! What one request may read and answer: a transaction that asks for more changes nothing.

use quorate_etcd::{
    mvcc::{Budget, Mvcc},
    proto::etcdserverpb::{
        Compare, DeleteRangeRequest, PutRequest, RangeRequest, RequestOp, TxnRequest,
        request_op::Request,
    },
    refusal::Refusal,
    store::memory::MemoryStore,
};

fn put(key: u8) -> PutRequest {
    PutRequest {
        key: vec![key].into(),
        value: vec![0; 1000].into(),
        ..PutRequest::default()
    }
}

fn filled() -> Mvcc {
    let mut mvcc = Mvcc::new(Box::new(MemoryStore::new()));
    for key in 1..=10 {
        mvcc.put(&put(key), Budget::COMMAND).unwrap();
    }
    mvcc
}

fn everything() -> RangeRequest {
    RangeRequest {
        key: vec![0].into(),
        range_end: vec![0].into(),
        ..RangeRequest::default()
    }
}

fn op(request: Request) -> RequestOp {
    RequestOp {
        request: Some(request),
    }
}

/// All entries of the store.
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
        let txn = TxnRequest {
            success: vec![op(Request::RequestRange(range))],
            ..TxnRequest::default()
        };
        mvcc.read_txn(&txn, Budget::of(bytes, visits)).map(drop)
    };
    assert_eq!(ask(everything(), 20_000, 10), Ok(()));
    assert_eq!(ask(everything(), 10_000, 10), Err(Refusal::TooMuch));
    assert_eq!(ask(everything(), 20_000, 9), Err(Refusal::TooMuch));
    let keys = RangeRequest {
        keys_only: true,
        ..everything()
    };
    assert_eq!(ask(keys, 1000, 10), Ok(()));
}

#[test]
fn a_transaction_beyond_its_budget_leaves_no_trace() {
    let mut mvcc = filled();
    let before = entries(&mvcc);
    let delete = DeleteRangeRequest {
        key: vec![3].into(),
        range_end: vec![6].into(),
        prev_kv: true,
    };
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
    assert_eq!(
        mvcc.txn(&txn, Budget::of(10_000, 100)),
        Err(Refusal::TooMuch)
    );
    assert_eq!(entries(&mvcc), before);
    assert_eq!(mvcc.revision(), 11);
    assert!(mvcc.txn(&txn, Budget::of(20_000, 100)).is_ok());
    assert_eq!(mvcc.revision(), 12);
}

#[test]
fn comparing_counts_too() {
    let mut mvcc = filled();
    let compare = Compare {
        // Every version is 1.
        target_union: Some(quorate_etcd::proto::etcdserverpb::compare::TargetUnion::Version(1)),
        key: vec![0].into(),
        range_end: vec![0].into(),
        ..Compare::default()
    };
    let txn = TxnRequest {
        compare: vec![compare.clone(), compare],
        ..TxnRequest::default()
    };
    assert_eq!(mvcc.txn(&txn, Budget::of(0, 19)), Err(Refusal::TooMuch));
    assert!(mvcc.txn(&txn, Budget::of(0, 20)).unwrap().succeeded);
}
