//! Files of Redis and Valkey (RDB): a streaming reader of versions 5 to 12, and a writer of
//! version 9. Nothing here knows nodes or commands.
//!
//! The crates that read these formats stop at old versions, or wrap a library in C. The bytes are
//! untrusted: every length is checked against what is left before it is used, and memory grows only
//! with bytes that have arrived.
//!
//! Reading order: [`types`], [`read`], `values`, `stream`, `packed` (the compact encodings),
//! `input` (bytes, lengths, checksum), [`write`].

mod crc64;
mod input;
mod lzf;
mod packed;
pub(crate) mod read;
mod stream;
pub(crate) mod types;
mod values;
pub(crate) mod write;

#[cfg(test)]
mod tests;
