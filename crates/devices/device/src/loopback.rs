//! In-memory network between the devices of one process, for tests. It loses, duplicates and
//! reorders frames at random from a seed.

use std::{
    io,
    os::fd::{AsFd as _, BorrowedFd},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use quorate_core::dice::Dice;

use crate::{
    wake::WakeEvent,
    wire::{ArrivedFrames, Wire},
};

const QUEUE_MAX: usize = 4096;

/// Receive queue of a device.
#[derive(Debug)]
struct StationQueue {
    mac: [u8; 6],
    frames: Vec<Vec<u8>>,
    wake: Arc<WakeEvent>,
}

#[derive(Debug)]
struct NetworkState {
    dice: Dice,
    lost: u64,
    repeated: u64,
    reordered: u64,
    stations: Vec<StationQueue>,
}

/// An in-memory network. Clones refer to the same one.
#[derive(Clone, Debug)]
pub struct Network(Arc<Mutex<NetworkState>>);

impl Network {
    /// Creates a network that loses, duplicates and reorders frames with the given probabilities in
    /// percent.
    pub fn new(seed: u64, lost: u64, repeated: u64, reordered: u64) -> Self {
        Self(Arc::new(Mutex::new(NetworkState {
            dice: Dice::new(seed),
            lost,
            repeated,
            reordered,
            stations: Vec::new(),
        })))
    }

    /// Connects a device, which receives frames for address `mac` and for all multicast groups.
    pub fn join(&self, mac: [u8; 6]) -> io::Result<Loopback> {
        let wake = Arc::new(WakeEvent::new()?);
        let station = self.lock().stations.len();
        self.lock().stations.push(StationQueue {
            mac,
            frames: Vec::new(),
            wake: Arc::clone(&wake),
        });
        Ok(Loopback { network: self.clone(), station, wake })
    }

    fn lock(&self) -> MutexGuard<'_, NetworkState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug)]
pub struct Loopback {
    network: Network,
    station: usize,
    wake: Arc<WakeEvent>,
}

impl Wire for Loopback {
    fn send(&mut self, frame: &[u8]) {
        let Some(to) = frame.first_chunk::<6>() else {
            return;
        };
        let mut state = self.network.lock();
        let NetworkState { dice, lost, repeated, reordered, stations } = &mut *state;
        for (number, station) in stations.iter_mut().enumerate() {
            let is_for = station.mac == *to || to[0] & 1 == 1;
            if number == self.station || !is_for || dice.chance(*lost, 100) {
                continue;
            }
            for _ in 0..1 + u64::from(dice.chance(*repeated, 100)) {
                if station.frames.len() < QUEUE_MAX {
                    station.frames.push(frame.to_vec());
                }
                let last = station.frames.len() - 1;
                if dice.chance(*reordered, 100) {
                    station.frames.swap(last, dice.index(last + 1));
                }
            }
            station.wake.signal();
        }
    }

    fn receive(&mut self, arrived: &mut ArrivedFrames) {
        let mut state = self.network.lock();
        let frames = &mut state.stations[self.station].frames;
        let count = frames.len().min(ArrivedFrames::MAX);
        for frame in frames.drain(..count) {
            *arrived.push() = frame;
        }
        // Drained under the lock, so that a later frame signals again.
        if frames.is_empty() {
            self.wake.clear();
        }
    }

    fn readable_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }
}
