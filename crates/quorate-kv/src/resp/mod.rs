//! RESP, the protocol that Redis clients speak: requests in, replies out.

pub mod reply;
pub mod request;
