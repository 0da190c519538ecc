//! Requests and replies of a system, as bytes.

pub mod framed;
pub mod resp;

pub use quorate_node::log_service::introduction::Malformed;

use crate::load::Answer;

/// A client protocol whose replies come in the order of the requests.
pub trait Protocol {
    /// Appends the n-th command.
    fn request(&mut self, number: u64, out: &mut Vec<u8>);

    /// The reply at the start of the input, and its length; `None` if it is not complete.
    fn reply<'a>(&self, input: &'a [u8]) -> Result<Option<(usize, Answer<'a>)>, Malformed>;
}
