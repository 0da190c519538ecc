//! Malformed input: the same response on every node, and never a panic.

use quorate::StateMachine as _;
use quorate_etcd::{
    check,
    command::Command,
    proto::etcdserverpb::{
        PutRequest, RangeRequest, RequestOp, TxnRequest, TxnResponse, request_op::Request,
    },
    refusal::Refusal,
};

use crate::{
    common::{apply, apply_bytes, service},
    dice::Dice,
    random,
};

fn some_command(dice: &mut Dice) -> Vec<u8> {
    match dice.below(4) {
        0 => Command::Put(random::put(dice)).encode(),
        2 => Command::Delete(random::delete(dice)).encode(),
        // Not validated, as by another version.
        1 => Command::Txn(random::txn(dice, 5, 3)).encode(),
        // Random bytes of a random kind.
        _ => {
            let kind = u8::try_from(dice.below(12)).unwrap();
            let bytes = (0..dice.below(30)).map(|_| u8::try_from(dice.below(256)).unwrap());
            [kind].into_iter().chain(bytes).collect()
        }
    }
}

#[test]
fn any_bytes_may_be_committed() {
    let mut dice = Dice::new(11);
    let (mut one, mut other) = (service(), service());
    for _ in 0..20_000 {
        let mut command = some_command(&mut dice);
        match dice.below(4) {
            0 => {
                for _ in 0..=dice.below(3) {
                    let at = dice.below(command.len());
                    command[at] = u8::try_from(dice.below(256)).unwrap();
                }
            }
            1 => command.truncate(dice.below(command.len())),
            2 => command.extend((0..dice.below(20)).map(|at| u8::try_from(at * 13).unwrap())),
            _ => {}
        }
        assert_eq!(apply_bytes(&mut one, &command), apply_bytes(&mut other, &command));
        let mut answer = Vec::new();
        one.query(&command, 0, &mut answer);
        assert!(!answer.is_empty());
    }
    assert_eq!(one.digest(), other.digest());
    assert!(one.mvcc().revision() > 100, "some of it made sense");
}

/// Extreme nesting does not exhaust the stack of the thread that applies commands.
#[test]
fn a_transaction_within_a_transaction_and_so_on_has_an_end() {
    // Field 2 of a transaction is an operation, whose field 4 is a transaction.
    let mut bytes = Vec::new();
    for _ in 0..100_000 {
        let mut op = vec![0x22];
        prost::encode_length_delimiter(bytes.len(), &mut op).unwrap();
        op.append(&mut bytes);
        bytes.push(0x12);
        prost::encode_length_delimiter(op.len(), &mut bytes).unwrap();
        bytes.append(&mut op);
        if bytes.len() > 100_000 {
            break;
        }
    }
    let command = [&[3][..], &bytes].concat();
    let reply = apply_bytes(&mut service(), &command);
    assert_eq!(reply, [1, Refusal::Malformed.to_byte()]);
    let shallow = Command::Txn(TxnRequest::default()).encode();
    assert_eq!(apply_bytes(&mut service(), &shallow)[0], 0);
}

/// A transaction nested to the maximum depth gets a response that can be decoded; a deeper one is
/// refused before it is proposed.
#[test]
fn nested_transactions_are_as_deep_as_their_answers_can_be_read() {
    let nested = |depth: usize| {
        let range = RequestOp {
            request: Some(Request::RequestRange(RangeRequest {
                key: "a".into(),
                ..RangeRequest::default()
            })),
        };
        (0..depth).fold(range, |inner, _| RequestOp {
            request: Some(Request::RequestTxn(TxnRequest {
                success: vec![inner],
                ..TxnRequest::default()
            })),
        })
    };
    let txn = |depth| match nested(depth).request {
        Some(Request::RequestTxn(txn)) => txn,
        _ => panic!("it is a transaction"),
    };
    let mut service = service();
    let put = PutRequest { key: "a".into(), ..PutRequest::default() };
    apply_bytes(&mut service, &Command::Put(put).encode());
    let deepest = txn(check::TXN_DEPTH_MAX);
    assert_eq!(check::check_txn(&deepest), Ok(()));
    let answer = apply::<TxnResponse>(&mut service, &Command::Txn(deepest));
    assert!(answer.unwrap().succeeded);
    assert_eq!(check::check_txn(&txn(check::TXN_DEPTH_MAX + 1)), Err(Refusal::NestedTooDeep));
}
