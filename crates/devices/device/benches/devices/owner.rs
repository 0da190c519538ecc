//! A minimal owner: arms, starts, reads frames and raises floors.

use std::{
    thread,
    time::{Duration, Instant},
};

use quorate_offload::{
    Descriptor, Encapsulation, Header, Type,
    header::{COORDINATOR, HEADER_BYTES},
    port::{Device, Program},
};

use crate::{
    Fallible,
    group::{BALLOT, BOOT, CELLS, HOSTS, LEADER},
};

/// Number of slots below the last decided one that are retained.
const KEPT: u64 = CELLS as u64 / 4;

pub(crate) struct Owner<D> {
    device: D,
    leads: bool,
    counter: u64,
    frame: Vec<u8>,
    /// Exclusive upper bound of the slots known to be decided.
    pub(crate) decided: u64,
    /// Number of decisions received.
    pub(crate) heard: u64,
}

impl<D: Device> Owner<D> {
    pub(crate) fn new(device: D, host: u8) -> Self {
        Self { device, leads: host == LEADER, counter: 0, frame: Vec::new(), decided: 0, heard: 0 }
    }

    pub(crate) const fn device(&self) -> &D {
        &self.device
    }

    pub(crate) fn into_device(self) -> D {
        self.device
    }

    /// Sets the boot of both programs, arms the acceptor, and starts the coordinator of the leader.
    pub(crate) fn begin(&mut self, host: u8) -> Fallible<()> {
        for program in Program::ALL {
            let mut boot = self.plain(program, Type::Boot);
            boot.boot = BOOT;
            self.ask(program, &boot)?;
        }
        let mut arm = self.call(Program::Acceptor, Type::Arm);
        (arm.ballot, arm.position) = (BALLOT, host - 1);
        self.ask(Program::Acceptor, &arm)?;
        if self.leads {
            let mut start = self.call(Program::Coordinator, Type::Arm);
            (start.ballot, start.voted) = (BALLOT, u64::MAX);
            (start.value.kind, start.value.origin) = (HOSTS / 2 + 1, HOSTS.into());
            self.ask(Program::Coordinator, &start)?;
        }
        Ok(())
    }

    /// Reads all pending frames, and raises the floors above old decisions.
    pub(crate) fn turn(&mut self) {
        let before = self.decided;
        self.drain();
        if self.decided == before || self.decided <= KEPT {
            return;
        }
        for program in Program::ALL {
            if program == Program::Coordinator && !self.leads {
                continue;
            }
            let mut floor = self.call(program, Type::Floor);
            (floor.slot, floor.voted) = (self.decided - KEPT, u64::MAX);
            self.put(program, &floor);
        }
    }

    fn drain(&mut self) -> Option<Header> {
        let mut done = None;
        while self.device.take_frame(&mut self.frame).is_some() {
            let at = self.device.shape().form.header_offset();
            let header = self.frame.get(at..).and_then(|bytes| bytes.first_chunk());
            let header = header.and_then(|bytes: &[u8; HEADER_BYTES]| Header::read(bytes));
            match header {
                Some(header) if header.kind == Type::Decided => {
                    self.heard += 1;
                    self.decided = self.decided.max(header.slot + 1);
                }
                Some(header) if matches!(header.kind, Type::Done | Type::Refused) => {
                    done = Some(header);
                }
                _ => {}
            }
        }
        done
    }

    fn ask(&mut self, program: Program, header: &Header) -> Fallible<()> {
        self.put(program, header);
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(5) {
            match self.drain() {
                Some(answer) if answer.kind == Type::Done => return Ok(()),
                Some(answer) => return Err(format!("the device refuses: {answer:?}").into()),
                None => thread::yield_now(),
            }
        }
        Err("the device does not answer".into())
    }

    fn put(&mut self, program: Program, header: &Header) {
        let shape = self.device.shape();
        let mut frame = vec![0; shape.form.room_offset() + shape.room];
        let room = vec![0; shape.room];
        let written = shape.form.write_frame(
            &mut frame,
            &shape.owner_address,
            &shape.device_address,
            header,
            &room,
        );
        if written.is_some() {
            self.device.put_frame(program, &frame);
        }
    }

    fn plain(&self, program: Program, kind: Type) -> Header {
        Header {
            kind,
            flags: match program {
                Program::Acceptor => 0,
                Program::Coordinator => COORDINATOR,
            },
            ..Header::new_submit(self.device.shape().group, Descriptor::NONE, 0)
        }
    }

    fn call(&mut self, program: Program, kind: Type) -> Header {
        self.counter += 1;
        let mut header = self.plain(program, kind);
        header.boot = BOOT;
        (header.value.origin_boot, header.value.counter) = (1, self.counter);
        header
    }
}

/// Form of the frames at owners' ports.
pub(crate) const FORM: Encapsulation = Encapsulation::Raw;
