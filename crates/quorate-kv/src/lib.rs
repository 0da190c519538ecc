//! The replicated key-value service and its Redis front.
