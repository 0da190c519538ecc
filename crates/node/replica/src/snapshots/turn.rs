//! Work on snapshots within a turn: handles completed disk operations, and starts work that is due.

mod around;
mod load;
mod own;
mod renew;
mod scrub;
mod transfer;

use quorate_core::slot::Slot;
use quorate_log::disk::{Completed, Disk};

use super::{
    Snapshots,
    reading::{Chunk, Purpose},
};
use crate::ports::service::StateMachine;

use self::around::RETRY_DELAY_MS;
pub(crate) use self::{around::ReplicaParts, scrub::ChunkScrub, transfer::offer_frame};

/// Minimum interval in milliseconds between checks for due work while no work is in progress.
const CHECK_INTERVAL_MS: u64 = 5;

impl Snapshots {
    /// Runs a turn. The slots applied in this turn must be committed. `done` contains the completed
    /// disk operations. The store of streams has everything below `streams_kept_to`.
    pub(crate) fn advance<D: Disk, S: StateMachine>(
        &mut self,
        done: Vec<Completed>,
        streams_kept_to: Slot,
        around: &mut ReplicaParts<'_, '_, D, S>,
    ) {
        self.next_turn_at = None;
        self.streams_stored_to = streams_kept_to;
        for completed in done {
            self.on_completed(completed, around);
        }
        if let Some(start) = around.log().take_rebased() {
            self.on_rebased(start, around);
        }
        // While no work is in progress, check for due work only at intervals.
        if self.has_no_work() {
            if around.now < self.next_check_at {
                return;
            }
            self.next_check_at = around.now.plus_ms(CHECK_INTERVAL_MS);
        }
        self.end_job(around);
        if self.base_switch.is_none()
            && let Some(own) = self.own_snapshot()
        {
            self.operator_request.complete_with(own);
        }
        self.advance_renewal(around);
        self.start_due_work(around);
        self.take_snapshot(around);
        self.request_snapshot(around);
        self.serve_peers(around);
        self.advance_load(around);
        self.delete_unused_files(around.disk());
        // Work that lacked file descriptors is retried, because no event reports when it can start.
        if self.job.as_ref().is_some_and(|job| !job.writer().is_busy()) {
            let at = around.now.plus_ms(RETRY_DELAY_MS);
            self.next_turn_at = crate::wake::earliest_time([self.next_turn_at, Some(at)]);
        }
    }

    fn on_completed<D: Disk, S: StateMachine>(
        &mut self,
        completed: Completed,
        around: &mut ReplicaParts<'_, '_, D, S>,
    ) {
        let disk = around.storing.log_mut().disk_mut();
        let file = match completed {
            Completed::Read { token, buffer, result, .. } => {
                self.reads.on_read_done(token, buffer, result, disk);
                while let Some(chunk) = self.reads.take_chunk() {
                    self.on_chunk(chunk, around);
                }
                return;
            }
            // If a file could not be deleted, the next start retries.
            Completed::Retired { .. } => return,
            // Without the file, an interrupted transfer would just start over.
            Completed::SmallFileReplaced { .. } | Completed::SmallFileRead { .. } => return,
            Completed::Written { file, .. }
            | Completed::Flushed { file, .. }
            | Completed::Prepared { file, .. } => file,
        };
        if let Some(job) = &mut self.job
            && job.writer().parts().any(|part| part == file)
        {
            if let Err(error) = job.writer_mut().on_completed(completed, disk) {
                self.fail_job(error.to_string(), around);
            }
            return;
        }
        for writer in &mut self.abandoned_writers {
            if writer.parts().any(|part| part == file) {
                // The operation belongs to an abandoned snapshot.
                let _ = writer.on_completed(completed, disk);
                return;
            }
        }
    }

    fn on_chunk<D: Disk, S: StateMachine>(
        &mut self,
        chunk: Chunk,
        around: &mut ReplicaParts<'_, '_, D, S>,
    ) {
        match chunk.purpose {
            Purpose::Load => self.on_chunk_to_load(chunk, around),
            Purpose::Serve(to) => self.on_chunk_to_serve(to, chunk, around),
            Purpose::Resume => self.on_chunk_to_resume(chunk, around),
            Purpose::Scrub => self.on_chunk_scrubbed(chunk, around),
        }
    }
}
