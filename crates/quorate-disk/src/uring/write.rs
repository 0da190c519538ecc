//! Writes whole blocks and makes exactly them durable ([disk-6]): one entry, RWF_DSYNC.

use std::os::fd::AsRawFd;

use io_uring::{opcode, squeue, types::Fd};

use super::{Buffer, Completed, Kind, Operation, Place, Ring};

impl Ring {
    pub(super) fn write(&mut self, token: u64, at: Place, buffer: Buffer, bytes: usize) {
        self.counters.writes += 1;
        self.counters.flushes += 1;
        self.counters.write_bytes += bytes as u64;
        match self.folder.file_for_write(at.segment) {
            Ok(file) => {
                let operation = Operation {
                    kind: Kind::Write,
                    token,
                    at,
                    buffer,
                    bytes,
                    file,
                };
                self.start(operation, entry);
            }
            Err(error) => {
                self.ready.push_back(Completed::Written {
                    token,
                    buffer,
                    result: Err(error),
                });
                self.event.signal();
            }
        }
    }
}

fn entry(operation: &mut Operation) -> squeue::Entry {
    let file = Fd(operation.file.as_raw_fd());
    let registered = operation.buffer.registered();
    let bytes = &operation.buffer[..operation.bytes];
    let length = u32::try_from(bytes.len()).expect("bounded by BATCH_BYTES_MAX");
    match registered {
        Some(index) => opcode::WriteFixed::new(file, bytes.as_ptr(), length, index)
            .offset(operation.at.offset)
            .rw_flags(libc::RWF_DSYNC)
            .build(),
        None => opcode::Write::new(file, bytes.as_ptr(), length)
            .offset(operation.at.offset)
            .rw_flags(libc::RWF_DSYNC)
            .build(),
    }
}
