//! The functions of `quorate_paxos.h`, which encode and decode the messages of LibPaxos3 for
//! libevpaxos.

use std::ffi::{c_int, c_void};

use super::{
    errors::run_call,
    pointers::{OutPointer, bytes, copy_out},
};
use crate::{
    error::{Code, Failed},
    evpaxos::message::{DecodeResult, Message},
};

/// The C type `quorate_paxos_message` of `quorate_paxos.h`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct PaxosMessage {
    kind: u32,
    aid: u32,
    iid: u32,
    to: u32,
    ballot: u32,
    value_ballot: u32,
    value: *const c_void,
    length: usize,
}

impl PaxosMessage {
    /// Converts a message for C without copying the value.
    fn new(message: &Message<'_>) -> Self {
        let none = Self {
            kind: 0,
            aid: 0,
            iid: 0,
            to: 0,
            ballot: 0,
            value_ballot: 0,
            value: std::ptr::null(),
            length: 0,
        };
        let with =
            |value: &[u8]| Self { value: value.as_ptr().cast(), length: value.len(), ..none };
        match *message {
            Message::Prepare { iid, ballot } => Self { iid, ballot, ..none },
            Message::Promise { aid, iid, ballot, value_ballot, value } => {
                Self { kind: 1, aid, iid, ballot, value_ballot, ..with(value) }
            }
            Message::Accept { iid, ballot, value } => Self { kind: 2, iid, ballot, ..with(value) },
            Message::Accepted { aid, iid, ballot, value_ballot, value } => {
                Self { kind: 3, aid, iid, ballot, value_ballot, ..with(value) }
            }
            Message::Preempted { aid, iid, ballot } => Self { kind: 4, aid, iid, ballot, ..none },
            Message::Repeat { from, last_missing: to } => Self { kind: 5, iid: from, to, ..none },
            Message::Trim { iid } => Self { kind: 6, iid, ..none },
            Message::AcceptorState { aid, trim_iid } => {
                Self { kind: 7, aid, iid: trim_iid, ..none }
            }
            Message::ClientValue { value } => Self { kind: 8, ..with(value) },
        }
    }

    /// Converts a message from C.
    ///
    /// # Safety
    /// `self.value` must be null or valid for reads of `self.length` bytes.
    unsafe fn message<'a>(&self) -> Result<Message<'a>, Failed> {
        let Self { aid, iid, ballot, value_ballot, .. } = *self;
        // SAFETY: the caller's contract.
        let value = unsafe { bytes(self.value, self.length) }?;
        if u32::try_from(value.len()).is_err() {
            return Err(Failed::new(Code::Size, "the value is too large for a message"));
        }
        Ok(match self.kind {
            0 => Message::Prepare { iid, ballot },
            1 => Message::Promise { aid, iid, ballot, value_ballot, value },
            2 => Message::Accept { iid, ballot, value },
            3 => Message::Accepted { aid, iid, ballot, value_ballot, value },
            4 => Message::Preempted { aid, iid, ballot },
            5 => Message::Repeat { from: iid, last_missing: self.to },
            6 => Message::Trim { iid },
            7 => Message::AcceptorState { aid, trim_iid: iid },
            8 => Message::ClientValue { value },
            kind => {
                let detail = format!("there is no message of kind {kind}");
                return Err(Failed::new(Code::Invalid, detail));
            }
        })
    }
}

/// Decodes a message of LibPaxos3; see `quorate_paxos.h`.
///
/// # Safety
/// `from` must be null or valid for reads of `length` bytes. `message` and `used` must each be null
/// or valid for writes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn quorate_paxos_decode(
    from: *const c_void,
    length: usize,
    value_max: usize,
    message: *mut PaxosMessage,
    used: *mut usize,
) -> c_int {
    run_call(|| {
        // SAFETY: the caller's contract.
        let (from, message, used) = unsafe {
            (
                bytes(from, length)?,
                OutPointer::required(message, "the place of the message")?,
                OutPointer::required(used, "the place of the length")?,
            )
        };
        used.write(0);
        match Message::decode(from, value_max) {
            DecodeResult::Message(found, length) => {
                message.write(PaxosMessage::new(&found));
                used.write(length);
                Ok(())
            }
            DecodeResult::NeedMore => Ok(()),
            DecodeResult::Malformed => Err(Failed::new(Code::Invalid, "no message of LibPaxos3")),
        }
    })
}

/// Encodes a message of LibPaxos3; see `quorate_paxos.h`.
///
/// # Safety
/// `message` must be null or valid for reads, together with the bytes of its value. `buffer` must
/// be null or valid for writes of `capacity` bytes, and `length` null or valid for writes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn quorate_paxos_encode(
    message: *const PaxosMessage,
    buffer: *mut c_void,
    capacity: usize,
    length: *mut usize,
) -> c_int {
    run_call(|| {
        let null = || Failed::new(Code::Invalid, "the message is null");
        // SAFETY: the caller's contract.
        let (message, length) = unsafe {
            (
                message.as_ref().ok_or_else(null)?.message()?,
                OutPointer::required(length, "the place of the length")?,
            )
        };
        let mut encoded = Vec::new();
        message.encode(&mut encoded);
        // SAFETY: the caller's contract.
        unsafe { copy_out(&encoded, buffer, capacity, &length) }
    })
}
