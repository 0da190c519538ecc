//! What a node must never forget, on disk.
