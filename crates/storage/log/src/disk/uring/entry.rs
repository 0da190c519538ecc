//! Submission entries, one per operation. A write that must be durable at once has RWF_DSYNC
//! ([disk-6]), so that a commit is one submission.

use std::os::fd::AsRawFd;

use io_uring::{
    opcode, squeue,
    types::{Fd, FsyncFlags},
};

use super::InFlight;
use crate::disk::{Durability, operation::Task};

pub(super) fn ring_entry_for(in_flight: &mut InFlight) -> squeue::Entry {
    let file = Fd(in_flight.file.as_raw_fd());
    let offset = in_flight.operation.at.offset;
    match &mut in_flight.operation.task {
        Task::Write { output, bytes, durability } => {
            let flags = match durability {
                Durability::Flushed => libc::RWF_DSYNC,
                Durability::AfterFlush => 0,
            };
            let registered = output.registered_index();
            let bytes = &output[..*bytes];
            match registered {
                Some(index) => opcode::WriteFixed::new(file, bytes.as_ptr(), length(bytes), index)
                    .offset(offset)
                    .rw_flags(flags)
                    .build(),
                None => opcode::Write::new(file, bytes.as_ptr(), length(bytes))
                    .offset(offset)
                    .rw_flags(flags)
                    .build(),
            }
        }
        Task::Read { buffer, bytes } => {
            let bytes = &mut buffer[..*bytes];
            opcode::Read::new(file, bytes.as_mut_ptr(), length(bytes)).offset(offset).build()
        }
        Task::Flush => opcode::Fsync::new(file).flags(FsyncFlags::DATASYNC).build(),
    }
}

fn length(bytes: &[u8]) -> u32 {
    u32::try_from(bytes.len()).expect("no buffer has 4 GiB")
}
