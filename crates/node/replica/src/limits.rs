//! Capacity of every queue of a replica, in bytes where a queue stores bytes.

/// Maximum number of open batches of one origin ([session-2]).
pub const OPEN_BATCHES_MAX: usize = 64;

/// Memory in bytes charged for a waiting command in addition to its length, for its tag, deadline
/// and bookkeeping. This also bounds a flood of empty commands.
pub const COMMAND_OVERHEAD_BYTES: usize = 64;

/// Capacities of a replica. They never influence the results of execution, so nodes may differ in
/// them; limits that must be equal everywhere are in [`crate::applying::sessions`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum number of this node's batches in flight. While the window is full, the next batch
    /// grows.
    pub window_batches: usize,
    /// Size in bytes at which a batch is complete. A larger command gets a batch without others.
    pub batch_bytes: usize,
    /// Maximum size in bytes of commands that are accepted but not yet in a batch.
    pub pending_bytes: usize,
    /// Size in bytes of replies and notices waiting for the front above which none are added.
    pub completion_bytes: usize,
    /// Maximum size in bytes of the replies of one batch, which is applied as a whole. Further
    /// replies are dropped, and their clients get an unknown outcome.
    pub reply_bytes: usize,
    /// Maximum number of waiting reads, and of waiting session registrations.
    pub waiting_requests: usize,
    /// Maximum size in bytes of payloads that undecided or unapplied slots need. Above this limit,
    /// proposals of other nodes are dropped, and this node's own proposals wait.
    pub payload_bytes: usize,
    /// Maximum size in bytes of applied or superseded payloads retained for slow followers.
    pub recent_bytes: usize,
    /// Maximum number of stream bytes that have arrived but have not been applied.
    pub stream_bytes: usize,
    /// Window of one stream, in bytes ([stream-8]).
    pub stream_window_bytes: usize,
    /// Maximum size in bytes of other nodes' batches that wait at the leader for a free slot.
    pub forwarded_bytes: usize,
    /// Size in bytes of unwritten records above which nothing new is proposed or voted for.
    pub log_backlog_bytes: u64,
    /// Maximum number of decided entries waiting in memory to be applied. Above this limit,
    /// proposals of other nodes are dropped.
    pub decided_entries: usize,
    /// Maximum number of bytes read from the log in one turn.
    pub log_read_bytes: usize,
    /// Maximum number of bytes applied in one turn.
    pub apply_bytes: usize,
    /// Maximum number of catch-up bytes sent in one turn.
    pub serve_bytes: usize,
    /// Maximum number of peers' catch-up ranges and payload requests in the queue.
    pub serve_requests: usize,
}

impl Default for Limits {
    fn default() -> Self {
        const KIB: usize = 1 << 10;
        const MIB: usize = 1 << 20;
        Self {
            window_batches: 4,
            batch_bytes: 256 * KIB,
            pending_bytes: 32 * MIB,
            completion_bytes: 32 * MIB,
            reply_bytes: 256 * MIB,
            waiting_requests: 64 * KIB,
            payload_bytes: 256 * MIB,
            recent_bytes: 64 * MIB,
            stream_bytes: 256 * MIB,
            stream_window_bytes: 16 * MIB,
            forwarded_bytes: 32 * MIB,
            log_backlog_bytes: 64 << 20,
            decided_entries: 64 * KIB,
            log_read_bytes: MIB,
            apply_bytes: 4 * MIB,
            serve_bytes: MIB,
            serve_requests: 256,
        }
    }
}

impl Limits {
    /// Raises each limit that would stop a replica from working to the lowest value that works.
    pub fn raised_for(mut self, command_bytes_max: usize) -> Self {
        let one = command_bytes_max.saturating_add(1024);
        self.window_batches = self.window_batches.clamp(1, OPEN_BATCHES_MAX);
        self.batch_bytes = self.batch_bytes.max(1);
        self.waiting_requests = self.waiting_requests.max(1);
        self.decided_entries = self.decided_entries.max(1);
        self.serve_requests = self.serve_requests.max(1);
        for bytes in [
            &mut self.pending_bytes,
            &mut self.completion_bytes,
            &mut self.payload_bytes,
            &mut self.forwarded_bytes,
            &mut self.log_read_bytes,
            &mut self.apply_bytes,
            &mut self.serve_bytes,
        ] {
            *bytes = (*bytes).max(one);
        }
        self
    }
}
