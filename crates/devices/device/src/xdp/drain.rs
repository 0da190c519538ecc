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

use crate::xdp::XdpError;

/// A map of maps, and an empty map to store in it. Storing it waits for running programs.
pub(crate) struct DrainMaps {
    drain_map: ArrayOfMaps<MapData, Array<MapData, u32>>,
    empty_map: Array<MapData, u32>,
}

impl DrainMaps {
    pub(crate) fn new(
        drained: ArrayOfMaps<MapData, Array<MapData, u32>>,
        nothing: Array<MapData, u32>,
    ) -> Arc<Mutex<Self>> {
        Arc::new(Mutex::new(Self { drain_map: drained, empty_map: nothing }))
    }

    pub(crate) fn wait_for_programs(&mut self) -> Result<(), XdpError> {
        Ok(self.drain_map.set(0, &self.empty_map, 0)?)
    }
}

/// A wait on a separate thread, for a reactor that must not block and polls for completion.
pub struct DrainWait(Option<JoinHandle<Result<(), XdpError>>>);

impl DrainWait {
    pub(crate) fn start(drain: Arc<Mutex<DrainMaps>>) -> Self {
        let wait = move || drain.lock().unwrap_or_else(PoisonError::into_inner).wait_for_programs();
        Self(Some(thread::spawn(wait)))
    }

    pub fn is_done(&mut self) -> Result<bool, XdpError> {
        match self.0.take_if(|waiting| waiting.is_finished()) {
            Some(over) => over.join().map_err(|_| XdpError::MismatchedAnswer)?.map(|()| true),
            None => Ok(self.0.is_none()),
        }
    }
}
