//! RESP, the protocol that Redis clients speak: requests in, replies out.

mod arguments;
pub mod integer;
pub mod reply;
pub mod request;
mod words;
