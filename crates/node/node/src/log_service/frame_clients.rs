//! Requests from device clients, sent in place of a command's length ([offload-22]).

use quorate_replica::{front::Failure, front::Requests};
use quorate_wire::frame_clients::{Found, Request};

use super::{Ended, REPLY_BYTES};

/// Result of answering the request at the start of the input.
pub(super) enum ParsedRequest {
    /// The request is incomplete, and more bytes are needed.
    Incomplete,
    /// The input is not a request.
    Malformed,
    /// The request was answered. The number is its length in bytes.
    Whole(Ended, usize),
}

/// Answers the request at the start of the input, if the client is permitted to make it.
pub(super) fn answer_request(
    input: &[u8],
    bytes_max: usize,
    may: bool,
    requests: &mut dyn Requests,
) -> ParsedRequest {
    let (request, length) = match Request::find(input, bytes_max) {
        Found::Incomplete => return ParsedRequest::Incomplete,
        Found::Malformed => return ParsedRequest::Malformed,
        Found::Request(request, length) => (request, length),
    };
    let clients = requests.frame_clients().filter(|_| may);
    let done = clients.ok_or(Failure::Unavailable).and_then(|clients| {
        Ok(match request {
            Request::Lend => {
                let name: [u8; REPLY_BYTES] = clients.assign_name()?.bytes();
                Ended::Done(name)
            }
            Request::Stand(name) => Ended::Stands(Box::new(clients.stand(name).bytes())),
            Request::Register(name) => {
                clients.register(name)?;
                Ended::Taken
            }
            Request::Offer { name, counter, bytes } => {
                clients.offer(name, counter, bytes)?;
                Ended::Taken
            }
        })
    });
    ParsedRequest::Whole(done.unwrap_or_else(Ended::Failed), length)
}
