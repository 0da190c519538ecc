//! Waits until all invocations of programs that are now running have ended ([offload-8]).
//!
//! An update of a map of maps returns only once all programs that may have seen the old value have
//! ended. The device programs do not use this map, but the guarantee covers all running programs,
//! regardless of the maps that they use.

use std::{
    sync::{Arc, Mutex, PoisonError},
    thread::{self, JoinHandle},
};

use aya::maps::{Array, ArrayOfMaps, MapData};

use crate::xdp::Failed;

/// A map of maps, and an empty map to store in it. Storing it waits for running programs.
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

/// A wait on a separate thread, for a reactor that must not block and polls for completion.
pub struct Draining(Option<JoinHandle<Result<(), Failed>>>);

impl Draining {
    pub(crate) fn begin(drain: Arc<Mutex<Drain>>) -> Self {
        let wait = move || drain.lock().unwrap_or_else(PoisonError::into_inner).wait();
        Self(Some(thread::spawn(wait)))
    }

    pub fn is_over(&mut self) -> Result<bool, Failed> {
        match self.0.take_if(|waiting| waiting.is_finished()) {
            Some(over) => over.join().map_err(|_| Failed::Answer)?.map(|()| true),
            None => Ok(self.0.is_none()),
        }
    }
}
