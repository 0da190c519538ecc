//! RESP, the protocol of Redis clients: requests and replies.

pub mod integer;
pub mod reply;
pub mod request;
