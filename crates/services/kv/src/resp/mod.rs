//! RESP, the protocol of Redis clients: requests and replies.

mod arguments;
pub mod integer;
pub mod reply;
pub mod request;
mod words;
