//! Waits until no program runs that began before ([offload-8]).
//!
//! The kernel promises it of an update of a map of maps: who comes back from it knows that all
//! programs which may have seen the old value have ended. No program looks at this map; the promise
//! is about programs that run, not about it.

use std::{
    sync::{Arc, Mutex, PoisonError},
    thread::{self, JoinHandle},
};

use aya::maps::{Array, ArrayOfMaps, MapData};

use crate::xdp::Failed;

/// The map, and what is put into it.
pub(crate) struct Drain {
    drained: ArrayOfMaps<MapData, Array<MapData, u32>>,
    nothing: Array<MapData, u32>,
}

impl Drain {
    pub(crate) fn new(
        drained: ArrayOfMaps<MapData, Array<MapData, u32>>,
        nothing: Array<MapData, u32>,
    ) -> Arc<Mutex<Self>> {
        Arc::new(Mutex::new(Self { drained, nothing }))
    }

    pub(crate) fn wait(&mut self) -> Result<(), Failed> {
        Ok(self.drained.set(0, &self.nothing, 0)?)
    }
}

/// Waits in a thread of its own: a reactor asks now and then, and is never blocked.
pub struct Draining(Option<JoinHandle<Result<(), Failed>>>);

impl Draining {
    pub(crate) fn begin(drain: Arc<Mutex<Drain>>) -> Self {
        let wait = move || drain.lock().unwrap_or_else(PoisonError::into_inner).wait();
        Self(Some(thread::spawn(wait)))
    }

    /// Returns `Ok(true)` once it is over; then always.
    pub fn is_over(&mut self) -> Result<bool, Failed> {
        match self.0.take_if(|waiting| waiting.is_finished()) {
            Some(over) => over.join().map_err(|_| Failed::Answer)?.map(|()| true),
            None => Ok(self.0.is_none()),
        }
    }
}
