//! Client protocols: encoding of requests and decoding of replies.

pub mod framed;
pub mod resp;

pub use quorate_node::log_service::introduction::Malformed;

use crate::load::CommandOutcome;

/// A client protocol whose replies arrive in the order of the requests.
pub trait Protocol {
    /// Appends the request for command number `number`.
    fn encode_request(&mut self, number: u64, out: &mut Vec<u8>);

    /// Decodes the reply at the start of the input and returns its length with the answer; `None`
    /// if the reply is incomplete.
    fn decode_reply<'a>(
        &self,
        input: &'a [u8],
    ) -> Result<Option<(usize, CommandOutcome<'a>)>, Malformed>;
}
