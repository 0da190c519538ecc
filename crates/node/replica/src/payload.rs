//! A payload: the bytes of a value, held by reference by the log, the store and the queues to peers.

use std::{fmt, ops::Deref, sync::Arc};

/// Bytes that nobody changes any more. A copy is another reference to the same bytes.
#[derive(Clone, PartialEq, Eq)]
pub struct Payload(Arc<Vec<u8>>);

impl Payload {
    /// These bytes, shared from now on. They are not copied.
    pub fn new(bytes: Vec<u8>) -> Self {
        Self(Arc::new(bytes))
    }

    /// How many references there are: 1 if nobody else holds these bytes.
    pub fn holders(&self) -> usize {
        Arc::strong_count(&self.0)
    }
}

impl Deref for Payload {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Payload({} bytes)", self.len())
    }
}
