//! Streamed ranges: the pages of a range are sent as they are read, so that a node holds a few of
//! them at a time, however large the range is.
//!
//! All pages show the revision of the first one. As in etcd, the last response alone has the
//! header, the count and `more`, and the responses merged are the response to the same Range. If
//! the revision is compacted meanwhile, the stream ends with an error, and the client starts again.

use std::{sync::Arc, time::Duration};

use tokio::{sync::mpsc, time::timeout};
use tonic::Status;

use super::{
    asking::{Freshness, ReplicaAccess},
    errors,
    gate::Requester,
    memory::MemoryShare,
    queue::{Queued, ResponseStream},
};
use crate::{
    command::Query,
    mvcc::{PAGE_VISITS_MAX, Paging},
    proto::etcdserverpb::{RangeRequest, RangeResponse, RangeStreamResponse},
};

/// Maximum number of responses queued for the client. While the queue is full, reading pauses.
const QUEUED_CHUNKS_MAX: usize = 2;
/// Time after which the stream of a client that does not read is ended.
const STALL_TIMEOUT: Duration = Duration::from_secs(60);

type ChunkSender = mpsc::Sender<Queued<RangeStreamResponse>>;

/// Starts to stream a valid range.
pub(super) fn start(
    asking: &Arc<ReplicaAccess>,
    asker: Requester,
    request: RangeRequest,
) -> ResponseStream<RangeStreamResponse> {
    let (chunks, receiver) = mpsc::channel(QUEUED_CHUNKS_MAX);
    let asking = Arc::clone(asking);
    tokio::spawn(async move {
        if let Err(status) = send_range(&asking, &asker, request, &chunks).await {
            let _ = timeout(STALL_TIMEOUT, chunks.send(Err(status).into())).await;
        }
    });
    ResponseStream(receiver)
}

async fn send_range(
    asking: &ReplicaAccess,
    asker: &Requester,
    request: RangeRequest,
    chunks: &ChunkSender,
) -> Result<(), Status> {
    let mut freshness = Freshness::from_serializable(request.serializable);
    let mut paging = Paging::new(request);
    loop {
        let query = Query::Page(paging.next(PAGE_VISITS_MAX));
        let (page, share) = asking.query(asker, &query, freshness).await?;
        freshness = Freshness::Local;
        let is_last = paging.add_page(page).map_err(errors::refusal_status)?;
        let kvs = paging.take_chunk();
        if is_last {
            let mut range = RangeResponse { kvs, ..paging.finish() };
            asking.complete_header(&mut range.header);
            return send_chunk(chunks, range, share).await;
        }
        if !kvs.is_empty() {
            send_chunk(chunks, RangeResponse { kvs, ..RangeResponse::default() }, share).await?;
        }
    }
}

/// Queues a response, and waits while the queue is full.
async fn send_chunk(
    chunks: &ChunkSender,
    range: RangeResponse,
    share: MemoryShare,
) -> Result<(), Status> {
    let response = RangeStreamResponse { range_response: Some(range) };
    let sent =
        timeout(STALL_TIMEOUT, chunks.send(Queued::with_memory(response, share, None))).await;
    let gone = Status::cancelled("the client does not read its stream");
    sent.map_err(|_| gone.clone())?.map_err(|_| gone)
}
