//! Reads whole blocks.

use std::os::fd::AsRawFd;

use io_uring::{opcode, squeue, types::Fd};

use super::{Buffer, Completed, Kind, Operation, Place, Ring};

impl Ring {
    pub(super) fn read(&mut self, token: u64, at: Place, buffer: Buffer, bytes: usize) {
        self.counters.reads += 1;
        match self.folder.file_for_read(at.segment) {
            Ok(file) => {
                let operation = Operation {
                    kind: Kind::Read,
                    token,
                    at,
                    buffer,
                    bytes,
                    file,
                };
                self.start(operation, entry);
            }
            Err(error) => {
                self.ready.push_back(Completed::Read {
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
    let bytes = &mut operation.buffer[..operation.bytes];
    let length = u32::try_from(bytes.len()).expect("bounded by an index entry");
    opcode::Read::new(file, bytes.as_mut_ptr(), length)
        .offset(operation.at.offset)
        .build()
}
