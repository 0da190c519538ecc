//! RESP, the protocol that Redis clients speak: requests in, replies out.

pub mod integer;
pub mod reply;
pub mod request;
mod words;
