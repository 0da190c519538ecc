//! Finds the leader, numbers commands, retries safely.
