//! Transactions. Comparisons select the branches, then all operations are checked, and then either
//! all or none are executed.

use super::{
    base::Mvcc,
    budget::Budget,
    write::{Transaction, response_header},
};
use crate::{
    proto::etcdserverpb::{
        RequestOp, ResponseHeader, ResponseOp, TxnRequest, TxnResponse, request_op::Request,
        response_op::Response,
    },
    refusal::Refusal,
};

/// Branches of a transaction, selected before anything changes.
struct SelectedBranches {
    succeeded: bool,
    /// Paths of the nested transactions in the selected branch.
    nested: Vec<Self>,
}

impl SelectedBranches {
    fn operations<'t>(&self, txn: &'t TxnRequest) -> &'t [RequestOp] {
        match self.succeeded {
            true => &txn.success,
            false => &txn.failure,
        }
    }
}

/// Returns whether neither branch changes anything. A nested transaction counts as a change.
pub fn is_readonly(txn: &TxnRequest) -> bool {
    let mut ops = txn.success.iter().chain(&txn.failure);
    ops.all(|op| matches!(op.request, Some(Request::RequestRange(_))))
}

/// Returns whether a node may execute the transaction on its local state, which requires at least
/// one read and only serializable ones.
pub fn is_serializable(txn: &TxnRequest) -> bool {
    let mut ops = txn.success.iter().chain(&txn.failure).peekable();
    ops.peek().is_some()
        && ops.all(
            |op| matches!(&op.request, Some(Request::RequestRange(range)) if range.serializable),
        )
}

impl Mvcc {
    /// Executes a transaction that changes nothing ([`is_readonly`]).
    pub fn execute_read_txn(
        &self,
        txn: &TxnRequest,
        mut budget: Budget,
    ) -> Result<TxnResponse, Refusal> {
        let succeeded = self.all_match(&txn.compare, &mut budget)?;
        let path = SelectedBranches { succeeded, nested: Vec::new() };
        self.check_operations(txn, &path)?;
        let now = self.state.revision;
        let mut responses = Vec::new();
        for op in path.operations(txn) {
            let response = match &op.request {
                Some(Request::RequestRange(range)) => {
                    let answer = self.range(range, now, &mut budget)?;
                    Some(Response::ResponseRange(answer))
                }
                Some(_) => return Err(Refusal::Malformed),
                None => None,
            };
            responses.push(ResponseOp { response });
        }
        Ok(TxnResponse { header: response_header(now), succeeded, responses })
    }

    /// Executes a transaction. On failure, nothing is changed.
    pub fn execute_txn(
        &mut self,
        txn: &TxnRequest,
        mut budget: Budget,
    ) -> Result<TxnResponse, Refusal> {
        let path = self.path(txn, &mut budget)?;
        self.check_operations(txn, &path)?;
        let mut writing = Transaction::new(self);
        match writing.execute(txn, &path, &mut budget) {
            Ok(mut answer) => {
                answer.header = response_header(writing.finish());
                Ok(answer)
            }
            Err(refusal) => {
                writing.roll_back();
                Err(refusal)
            }
        }
    }

    fn path(&self, txn: &TxnRequest, budget: &mut Budget) -> Result<SelectedBranches, Refusal> {
        let mut path = SelectedBranches {
            succeeded: self.all_match(&txn.compare, budget)?,
            nested: Vec::new(),
        };
        for op in path.operations(txn) {
            if let Some(Request::RequestTxn(txn)) = &op.request {
                path.nested.push(self.path(txn, budget)?);
            }
        }
        Ok(path)
    }

    /// Checks the operations of the selected branches in the state before the first change.
    fn check_operations(&self, txn: &TxnRequest, path: &SelectedBranches) -> Result<(), Refusal> {
        let mut inner = path.nested.iter();
        for op in path.operations(txn) {
            match &op.request {
                Some(Request::RequestRange(range)) => match range.revision {
                    0 => {}
                    future if future > self.state.revision => return Err(Refusal::FutureRevision),
                    past if past < self.state.compacted_revision => return Err(Refusal::Compacted),
                    _ => {}
                },
                Some(Request::RequestPut(put)) => self.check_put(put)?,
                Some(Request::RequestTxn(txn)) => {
                    if let Some(path) = inner.next() {
                        self.check_operations(txn, path)?;
                    }
                }
                Some(Request::RequestDeleteRange(_)) | None => {}
            }
        }
        Ok(())
    }
}

impl Transaction<'_> {
    fn execute(
        &mut self,
        txn: &TxnRequest,
        path: &SelectedBranches,
        budget: &mut Budget,
    ) -> Result<TxnResponse, Refusal> {
        let mut inner = path.nested.iter();
        let mut responses = Vec::new();
        for op in path.operations(txn) {
            let response = match &op.request {
                Some(Request::RequestRange(range)) => {
                    let answer = self.mvcc.range(range, self.visible_revision(), budget)?;
                    Some(Response::ResponseRange(answer))
                }
                Some(Request::RequestPut(put)) => {
                    Some(Response::ResponsePut(self.put(put, budget)?))
                }
                Some(Request::RequestDeleteRange(delete)) => {
                    let answer = self.delete(delete, budget)?;
                    Some(Response::ResponseDeleteRange(answer))
                }
                Some(Request::RequestTxn(txn)) => match inner.next() {
                    Some(path) => {
                        let answer = self.execute(txn, path, budget)?;
                        Some(Response::ResponseTxn(answer))
                    }
                    None => None,
                },
                None => None,
            };
            responses.push(ResponseOp { response });
        }
        Ok(TxnResponse {
            // The revision is set once, in the header of the whole response.
            header: Some(ResponseHeader::default()),
            succeeded: path.succeeded,
            responses,
        })
    }
}
