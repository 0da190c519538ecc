//! Protocol messages and services, generated from `proto/*.proto` by `generate/`; do not edit them.

/// All of them, as Protobuf describes itself.
pub const DESCRIPTORS: &[u8] = include_bytes!("descriptors.bin");

#[allow(missing_docs, unused_qualifications, clippy::all, clippy::use_self, reason = "generated")]
#[rustfmt::skip]
pub mod authpb;

#[allow(missing_docs, unused_qualifications, clippy::all, clippy::use_self, reason = "generated")]
#[rustfmt::skip]
pub mod mvccpb;

#[allow(missing_docs, unused_qualifications, clippy::all, clippy::use_self, reason = "generated")]
#[rustfmt::skip]
pub mod etcdserverpb;

#[allow(missing_docs, unused_qualifications, clippy::all, clippy::use_self, reason = "generated")]
#[rustfmt::skip]
pub mod v3lockpb;

#[allow(missing_docs, unused_qualifications, clippy::all, clippy::use_self, reason = "generated")]
#[rustfmt::skip]
pub mod v3electionpb;

#[allow(missing_docs, unused_qualifications, clippy::all, clippy::use_self, reason = "generated")]
#[rustfmt::skip]
pub mod health;
