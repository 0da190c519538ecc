//! Waits until no program is running that began before ([offload-8]).
//!
//! The kernel guarantees this for an update of a map of maps: when it returns, all programs that
//! may have seen the old value have ended. The programs do not use this map; the guarantee covers
//! all running programs, whatever maps they use.

use std::{
    sync::{Arc, Mutex, PoisonError},
    thread::{self, JoinHandle},
};

use aya::maps::{Array, ArrayOfMaps, MapData};

use crate::xdp::Failed;

/// Map of maps, and the map that is stored in it.
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

/// A wait in a thread of its own, for a reactor that polls it and must not block.
pub struct Draining(Option<JoinHandle<Result<(), Failed>>>);

impl Draining {
    pub(crate) fn begin(drain: Arc<Mutex<Drain>>) -> Self {
        let wait = move || drain.lock().unwrap_or_else(PoisonError::into_inner).wait();
        Self(Some(thread::spawn(wait)))
    }

    /// Returns `Ok(true)` once the wait is over, and from then on.
    pub fn is_over(&mut self) -> Result<bool, Failed> {
        match self.0.take_if(|waiting| waiting.is_finished()) {
            Some(over) => over.join().map_err(|_| Failed::Answer)?.map(|()| true),
            None => Ok(self.0.is_none()),
        }
    }
}
