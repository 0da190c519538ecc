//! Queue of frames for the owner, bounded per program, with a count of dropped frames
//! ([offload-14]).
//!
//! It consists of a standard channel and, for each program, a counter of its queued frames. The
//! thread increments the counter before it sends, and the owner decrements it after it receives, so
//! the counter is never below the number of queued frames.

use std::sync::{
    Arc,
    atomic::{AtomicU64, AtomicUsize, Ordering},
    mpsc::{Receiver, Sender, channel},
};

use quorate_offload::port::{FrameOrigin, Program};

/// Capacity reserved for responses, so that an owner that lags can still control its device.
const RESPONSES_RESERVED: usize = 256;

#[derive(Debug, Default)]
struct TapShared {
    waiting_counts: [AtomicUsize; 2],
    lost: AtomicU64,
}

/// Sending end, used by the device's thread.
#[derive(Debug)]
pub(crate) struct TapSender {
    frame_sender: Sender<(Program, FrameOrigin, Vec<u8>)>,
    /// Buffers that the owner returned for reuse.
    returned_buffers: Receiver<Vec<u8>>,
    shared: Arc<TapShared>,
    frames_max: usize,
    /// Set if a frame was queued since the owner was last woken.
    has_queued: bool,
}

/// Receiving end, used by the owner.
#[derive(Debug)]
pub(crate) struct TapReceiver {
    frames: Receiver<(Program, FrameOrigin, Vec<u8>)>,
    spare: Sender<Vec<u8>>,
    shared: Arc<TapShared>,
}

/// Creates a queue with a capacity of `most` frames per program.
pub(crate) fn tap_channel(most: usize) -> (TapSender, TapReceiver) {
    let ((frames, taken), (spare, given)) = (channel(), channel());
    let shared = Arc::<TapShared>::default();
    let filler = TapSender {
        frame_sender: frames,
        returned_buffers: given,
        shared: Arc::clone(&shared),
        frames_max: most,
        has_queued: false,
    };
    let taker = TapReceiver { frames: taken, spare, shared };
    (filler, taker)
}

const fn program_index(program: Program) -> usize {
    match program {
        Program::Acceptor => 0,
        Program::Coordinator => 1,
    }
}

impl TapSender {
    /// Queues a frame for the owner. `is_answer` is set if the owner requested it.
    pub(crate) fn put(
        &mut self,
        (program, came): (Program, FrameOrigin),
        frame: &[u8],
        is_answer: bool,
    ) {
        let waiting = &self.shared.waiting_counts[program_index(program)];
        let most = self.frames_max + if is_answer { RESPONSES_RESERVED } else { 0 };
        if waiting.load(Ordering::Relaxed) >= most {
            self.shared.lost.fetch_add(1, Ordering::Relaxed);
        } else {
            waiting.fetch_add(1, Ordering::Relaxed);
            let mut copy = self.returned_buffers.try_recv().unwrap_or_default();
            copy.clear();
            copy.extend_from_slice(frame);
            // Sending fails only if the owner no longer exists.
            let _ = self.frame_sender.send((program, came, copy));
        }
        // A lost frame wakes the owner, too, because it checks the count.
        self.has_queued = true;
    }

    /// Requests to wake the owner for a reason other than a frame.
    pub(crate) const fn request_wake(&mut self) {
        self.has_queued = true;
    }

    /// Returns whether the owner must be woken, and resets the flag.
    pub(crate) fn take_filled(&mut self) -> bool {
        std::mem::take(&mut self.has_queued)
    }
}

impl TapReceiver {
    pub(crate) fn take(&mut self, frame: &mut Vec<u8>) -> Option<(Program, FrameOrigin)> {
        let (program, came, taken) = self.frames.try_recv().ok()?;
        self.shared.waiting_counts[program_index(program)].fetch_sub(1, Ordering::Relaxed);
        let before = std::mem::replace(frame, taken);
        let _ = self.spare.send(before);
        Some((program, came))
    }

    pub(crate) fn lost(&self) -> u64 {
        self.shared.lost.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dropped_frames_are_counted_and_responses_have_reserved_space() {
        let (mut filler, mut taker) = tap_channel(2);
        for number in 0..4 {
            filler.put((Program::Acceptor, FrameOrigin::NetworkResponse), &[number], false);
        }
        filler.put((Program::Coordinator, FrameOrigin::LocalResponse), &[7], false);
        filler.put((Program::Acceptor, FrameOrigin::LocalResponse), &[9], true);
        assert!(filler.take_filled() && !filler.take_filled());
        assert_eq!(taker.lost(), 2);
        let mut frame = Vec::new();
        let mut taken = Vec::new();
        while let Some(from) = taker.take(&mut frame) {
            taken.push((from, frame.clone()));
        }
        let [a, c] = Program::ALL.map(|program| (program, FrameOrigin::LocalResponse));
        let asked = (Program::Acceptor, FrameOrigin::NetworkResponse);
        assert_eq!(taken, [(asked, vec![0]), (asked, vec![1]), (c, vec![7]), (a, vec![9])]);
        let network = (Program::Acceptor, FrameOrigin::Network);
        filler.put(network, &[5], false);
        assert_eq!(taker.take(&mut frame), Some(network));
        assert_eq!(taker.lost(), 2);
    }
}
