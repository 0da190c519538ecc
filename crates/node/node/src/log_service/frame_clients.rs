//! Requests from device clients, sent in place of a command's length ([offload-22]).

use quorate_replica::{front::Failure, front::Requests};
use quorate_wire::frame_clients::{DecodedRequest, Request};

use super::{CommandOutcome, REPLY_BYTES};

/// Result of answering the request at the start of the input.
pub(super) enum ParsedRequest {
    /// The request is incomplete, and more bytes are needed.
    Incomplete,
    /// The input is not a request.
    Malformed,
    /// The request was answered. The number is its length in bytes.
    Answered(CommandOutcome, usize),
}

/// Answers the request at the start of the input, if the client is permitted to make it.
pub(super) fn answer_request(
    input: &[u8],
    bytes_max: usize,
    may: bool,
    requests: &mut dyn Requests,
) -> ParsedRequest {
    let (request, length) = match Request::decode(input, bytes_max) {
        DecodedRequest::Incomplete => return ParsedRequest::Incomplete,
        DecodedRequest::Malformed => return ParsedRequest::Malformed,
        DecodedRequest::Request(request, length) => (request, length),
    };
    let clients = requests.frame_clients().filter(|_| may);
    let done = clients.ok_or(Failure::Unavailable).and_then(|clients| {
        Ok(match request {
            Request::LendName => {
                let name: [u8; REPLY_BYTES] = clients.assign_name()?.bytes();
                CommandOutcome::Done(name)
            }
            Request::QueryPosition(name) => {
                CommandOutcome::LogState(Box::new(clients.node_position(name).bytes()))
            }
            Request::Register(name) => {
                clients.register_session(name)?;
                CommandOutcome::Accepted
            }
            Request::OfferBatch { name, batch_number: counter, bytes } => {
                clients.propose_batch(name, counter, bytes)?;
                CommandOutcome::Accepted
            }
        })
    });
    ParsedRequest::Answered(done.unwrap_or_else(CommandOutcome::Failed), length)
}
