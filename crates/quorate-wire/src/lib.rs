//! Messages to bytes and back, hostile input included.
