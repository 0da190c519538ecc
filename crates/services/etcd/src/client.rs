//! A minimal blocking gRPC client for Quorate's own programs.

use std::{
    io,
    time::{Duration, Instant},
};

use prost::Message;
use tokio::{
    runtime::{Builder, Runtime},
    time::{sleep, timeout},
};
use tonic::{
    Request, Status,
    client::Grpc,
    codegen::http::uri::PathAndQuery,
    transport::{Channel, Endpoint},
};
use tonic_prost::ProstCodec;

use crate::proto::etcdserverpb::{
    HashKvRequest, HashKvResponse, PutRequest, PutResponse, RangeRequest, RequestOp, TxnRequest,
    TxnResponse, request_op::Request as Op, response_op::Response,
};

/// Timeout of an attempt at one member. The next member is tried afterwards.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(1);
const RETRY_PAUSE: Duration = Duration::from_millis(20);
const KEYS_PER_REQUEST: usize = 100;

/// A client of a cluster, configured with the addresses of its members.
#[derive(Debug)]
pub struct Client {
    runtime: Runtime,
    members: Vec<Channel>,
    /// Index of the member that answered last.
    last_member: usize,
    request_timeout: Duration,
}

async fn send_request<Q: Message + 'static, A: Message + Default + 'static>(
    member: &Channel,
    path: &'static str,
    request: Q,
) -> Result<A, Status> {
    let mut grpc = Grpc::new(member.clone()).max_decoding_message_size(usize::MAX);
    let ready = grpc.ready().await;
    ready.map_err(|error| Status::unavailable(error.to_string()))?;
    let path = PathAndQuery::from_static(path);
    let answer = grpc.unary(Request::new(request), path, ProstCodec::<Q, A>::default());
    Ok(answer.await?.into_inner())
}

/// Puts a key through any member and returns that member's index. Retries are harmless, because
/// they store the same value.
async fn put(
    members: Vec<Channel>,
    mut at: usize,
    put: PutRequest,
    until: Instant,
) -> Result<usize, Status> {
    loop {
        let asked = members.get(at % members.len().max(1));
        let asked = asked.ok_or_else(|| Status::unavailable("there are no members"))?;
        let asked = send_request::<_, PutResponse>(asked, "/etcdserverpb.KV/Put", put.clone());
        let refused = match timeout(ATTEMPT_TIMEOUT, asked).await {
            Ok(Ok(_)) => return Ok(at % members.len()),
            Ok(Err(refused)) => refused,
            Err(_) => Status::deadline_exceeded("no answer in time"),
        };
        if Instant::now() >= until {
            return Err(refused);
        }
        sleep(RETRY_PAUSE).await;
        at += 1;
    }
}

impl Client {
    /// Creates a client of `members` (each `HOST:PORT`) that retries a failed request for up to
    /// `deadline`.
    pub fn new(members: &[String], deadline: Duration) -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let channel = |address: &String| {
            let endpoint = Endpoint::from_shared(format!("http://{address}"));
            let endpoint = endpoint.map_err(io::Error::other)?.connect_timeout(ATTEMPT_TIMEOUT);
            // The connection is established lazily, by a task of this runtime.
            let _within = runtime.enter();
            Ok(endpoint.connect_lazy())
        };
        let members = members.iter().map(channel).collect::<io::Result<_>>()?;
        Ok(Self { runtime, members, last_member: 0, request_timeout: deadline })
    }

    /// Puts keys concurrently and returns their results.
    pub fn put_all(&mut self, pairs: &[(String, String)]) -> Vec<Result<(), Status>> {
        let until = Instant::now() + self.request_timeout;
        let puts = pairs.iter().map(|(key, value)| {
            let request = PutRequest {
                key: key.clone().into(),
                value: value.clone().into(),
                ..PutRequest::default()
            };
            let _within = self.runtime.enter();
            tokio::spawn(put(self.members.clone(), self.last_member, request, until))
        });
        let puts: Vec<_> = puts.collect();
        let mut all = Vec::new();
        for put in puts {
            let put = self.runtime.block_on(put);
            let put = put.unwrap_or_else(|error| Err(Status::internal(error.to_string())));
            if let Ok(at) = put {
                self.last_member = at;
            }
            all.push(put.map(drop));
        }
        all
    }

    /// Returns the values of `keys` from the first member, from its local state or linearizably.
    pub fn get_all(
        &self,
        keys: &[String],
        serializable: bool,
    ) -> Result<Vec<Option<Vec<u8>>>, Status> {
        let mut all = Vec::with_capacity(keys.len());
        for some in keys.chunks(KEYS_PER_REQUEST) {
            let range = |key: &String| RequestOp {
                request: Some(Op::RequestRange(RangeRequest {
                    key: key.clone().into(),
                    serializable,
                    ..RangeRequest::default()
                })),
            };
            let txn =
                TxnRequest { success: some.iter().map(range).collect(), ..TxnRequest::default() };
            let answer: TxnResponse = self.send_unary("/etcdserverpb.KV/Txn", txn)?;
            all.extend(answer.responses.into_iter().map(|one| match one.response {
                Some(Response::ResponseRange(found)) => {
                    found.kvs.into_iter().next().map(|kv| kv.value.to_vec())
                }
                _ => None,
            }));
        }
        Ok(all)
    }

    /// Returns the first member's hash of all data at `revision`, or at the current revision if it
    /// is 0, with the revision that was hashed.
    pub fn hash_at_revision(&self, revision: i64) -> Result<(u32, i64), Status> {
        let request = HashKvRequest { revision };
        let answer: HashKvResponse =
            self.send_unary("/etcdserverpb.Maintenance/HashKV", request)?;
        Ok((answer.hash, answer.hash_revision))
    }

    fn send_unary<Q: Message + 'static, A: Message + Default + 'static>(
        &self,
        path: &'static str,
        request: Q,
    ) -> Result<A, Status> {
        let none = || Status::unavailable("there are no members");
        let member = self.members.first().ok_or_else(none)?;
        // The timeout needs the runtime's timer.
        let asked =
            async { timeout(self.request_timeout, send_request(member, path, request)).await };
        let asked = self.runtime.block_on(asked);
        asked.unwrap_or_else(|_| Err(Status::deadline_exceeded("no answer in time")))
    }
}
