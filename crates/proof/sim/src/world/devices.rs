//! Delivers frames between devices. Each frame travels independently and reaches a device even if
//! its owner is down.

use quorate_core::record::Class;
use quorate_node::host::Host as _;

use super::{Event, World, name};
use crate::{
    check::Verdict,
    device::{self, Device},
    dice::Dice,
};

/// Number of recent frames that are retained for strangers to replay.
const SENT_FRAMES_RETAINED: usize = 2048;

impl World {
    /// Attaches its node's device to a new process.
    pub(super) fn attach_device(&mut self, node: usize, boot: u32) {
        let Some(faults) = self.settings.device_faults else {
            return;
        };
        let seed = self.settings.seed;
        let process = &mut self.nodes[node];
        let device = process.device.get_or_insert_with(|| Device::new(seed, node, faults));
        let owning = device.access_for(process.start_count, boot);
        if let Some(running) = &mut process.running {
            running.host.set_device_source(Box::new(owning));
        }
    }

    /// Handles the death of the process that owned a device.
    pub(super) fn end_device_owner(&mut self, node: usize) {
        let dies = self.nodes[node].device.as_ref().map(Device::end_owner);
        if dies == Some(true) {
            self.counts.device_resets += 1;
        }
    }

    /// Sends a device's frames to all other stations.
    pub(super) fn send_device_frames(&mut self, node: usize) {
        let Some(device) = &self.nodes[node].device else {
            return;
        };
        for frame in device.take_sent() {
            self.counts.device_frames += 1;
            if self.frame_state.recent_frames.len() == SENT_FRAMES_RETAINED {
                self.frame_state.recent_frames.pop_front();
            }
            self.frame_state.recent_frames.push_back(frame.clone());
            self.send_to_stations(node, &frame);
        }
    }

    /// Sends a frame from one station to all others. Stations are devices of nodes, and clients of
    /// devices.
    pub(super) fn send_to_stations(&mut self, from: usize, frame: &[u8]) {
        let stations = self.nodes.len() + self.frame_clients.len();
        for to in (0..stations).filter(|to| *to != from) {
            self.send_frame_to(from, to, frame);
        }
    }

    fn send_frame_to(&mut self, from: usize, to: usize, frame: &[u8]) {
        let weather = self.network.conditions();
        let dice = &mut self.frame_state.dice;
        let mut delays = Vec::new();
        let delay = |dice: &mut Dice| {
            let delay = dice.between(weather.delay_min_us, weather.delay_max_us);
            match dice.chance(weather.late_of_1000, 1000) {
                true => delay * 10,
                false => delay,
            }
        };
        if !dice.chance(weather.lost_of_1000, 1000) {
            delays.push(delay(dice));
        }
        if dice.chance(weather.repeated_of_1000, 1000) {
            delays.push(delay(dice));
            delays.push(dice.below(4_000_000));
        }
        for us in delays {
            let mut bytes = frame.to_vec();
            self.flip_bits(&mut bytes);
            self.schedule_after(us, Event::FrameArrives { from, to, bytes });
        }
    }

    /// Flips a random bit in some frames. One of the checksums detects each flip.
    fn flip_bits(&mut self, bytes: &mut [u8]) {
        let rate = self.settings.device_faults.map(|faults| faults.damaged_of_1000);
        let rate = rate.filter(|rate| *rate > 0 && self.fault_state.faults_go_on());
        if rate.is_some_and(|rate| self.frame_state.dice.chance(rate, 1000)) {
            // Flips in the bits before this range damage no message: receivers drop such a frame,
            // or attribute it to a stranger.
            let bit = self.frame_state.dice.between(12 * 8, 8 * bytes.len() as u64 - 1);
            let bit = usize::try_from(bit).unwrap_or(0);
            bytes[bit / 8] ^= 1 << (bit % 8);
            self.counts.frames_damaged += 1;
        }
    }

    /// Schedules the next frame from a sender that is not a device.
    pub(super) fn plan_stranger_frame(&mut self) {
        let mean_us = self.settings.device_faults.and_then(|faults| faults.stranger_interval_us);
        if let Some(mean_us) = mean_us.filter(|_| self.fault_state.faults_go_on()) {
            let wait = self.frame_state.dice.interval(mean_us);
            self.schedule_after(wait, Event::StrangerFrame);
        }
    }

    /// Sends a station an old frame, or a frame that no device would send.
    pub(super) fn send_stranger_frame(&mut self) -> Verdict {
        self.plan_stranger_frame();
        let frames = &mut self.frame_state;
        if frames.recent_frames.is_empty() {
            return Ok(());
        }
        let nodes = self.nodes.len();
        let to = frames.dice.index(nodes + self.frame_clients.len());
        let mut bytes = frames.recent_frames[frames.dice.index(frames.recent_frames.len())].clone();
        if frames.dice.chance(1, 2) {
            let Some(forged) = device::forge_frame(&bytes, to, &mut frames.dice) else {
                return Ok(());
            };
            bytes = forged;
        }
        self.counts.stranger_frames += 1;
        match to.checked_sub(nodes) {
            Some(client) => self.deliver_frame_client_frame(client, &bytes),
            None => {
                self.deliver_frame(to, &bytes);
                Ok(())
            }
        }
    }

    /// Delivers an arbitrary frame to a node's device immediately.
    pub fn deliver_frame(&mut self, to: usize, bytes: &[u8]) {
        let device = self.nodes.get(to).and_then(|node| node.device.as_ref());
        if device.is_some_and(|device| device.receive_frame(bytes)) {
            self.schedule_turn(to);
        }
        self.send_device_frames(to);
    }

    /// Returns the most recent frames sent by devices, up to a few thousand, newest last.
    pub fn recent_device_frames(&self) -> impl Iterator<Item = &[u8]> {
        self.frame_state.recent_frames.iter().map(Vec::as_slice)
    }

    pub(super) fn deliver_to_station(&mut self, from: usize, to: usize, bytes: &[u8]) -> Verdict {
        let nodes = self.nodes.len();
        if let Some(client) = to.checked_sub(nodes) {
            return self.deliver_frame_client_frame(client, bytes);
        }
        if from >= nodes || !self.network.is_blocked(from, to) {
            self.deliver_frame(to, bytes);
        }
        Ok(())
    }

    /// Schedules the next power loss of a device whose owner keeps running.
    pub(super) fn plan_device_reset(&mut self) {
        let mean_us = self.settings.device_faults.and_then(|faults| faults.reset_interval_us);
        if let Some(mean_us) = mean_us.filter(|_| self.fault_state.faults_go_on()) {
            let wait = self.frame_state.dice.interval(mean_us);
            self.schedule_after(wait, Event::DeviceReset);
        }
    }

    /// Cuts the power of a random device. A device whose votes count loses its votes, so its node
    /// must be one that may forget.
    pub(super) fn reset_any_device(&mut self) {
        self.plan_device_reset();
        let node = self.frame_state.dice.index(self.nodes.len());
        let spared = self.settings.class == Class::Volatile && !self.fault_state.may_forget(node);
        if let Some(device) = self.nodes[node].device.as_ref().filter(|_| !spared) {
            device.reset_power();
            self.counts.device_resets += 1;
            self.trace_line(&name(node), "device", format_args!("loses power"));
        }
    }

    /// Schedules the next removal of a device from the network.
    pub(super) fn plan_device_removal(&mut self) {
        if let Some(mean_us) =
            self.settings.device_faults.and_then(|faults| faults.removal_interval_us)
        {
            let wait = self.frame_state.dice.interval(mean_us);
            self.schedule_after(wait, Event::DeviceRemoved);
        }
    }

    /// Removes a random device from the network.
    pub(super) fn remove_device(&mut self) {
        self.plan_device_removal();
        let node = self.frame_state.dice.index(self.nodes.len());
        if let Some(device) = &self.nodes[node].device {
            device.remove_from_network();
            self.counts.devices_removed += 1;
            self.trace_line(&name(node), "device", format_args!("is taken from its place"));
        }
    }

    /// Schedules the next stall of a device.
    pub(super) fn plan_device_stall(&mut self) {
        let mean_us = self.settings.device_faults.and_then(|faults| faults.stall_interval_us);
        if let Some(mean_us) = mean_us.filter(|_| self.fault_state.faults_go_on()) {
            let wait = self.frame_state.dice.interval(mean_us);
            self.schedule_after(wait, Event::DeviceStall);
        }
    }

    /// Stalls a random device for up to two seconds. Any device may stall, even if its votes count,
    /// because a stall erases nothing.
    pub(super) fn stall_any_device(&mut self) {
        self.plan_device_stall();
        let node = self.frame_state.dice.index(self.nodes.len());
        let us = self.frame_state.dice.between(10_000, 2_000_000);
        self.stall_device(node, us);
    }

    /// Stalls a node's device for `us` microseconds ([offload-9]).
    pub fn stall_device(&mut self, node: usize, us: u64) {
        if let Some(device) = &self.nodes[node].device {
            device.stall();
            self.counts.device_stalls += 1;
            self.trace_line(&name(node), "device", format_args!("stands still for {us} µs"));
            self.schedule_after(us, Event::DeviceResume(node));
        }
    }

    pub(super) fn resume_device(&mut self, node: usize) {
        if let Some(device) = &self.nodes[node].device {
            device.resume();
            self.send_device_frames(node);
            self.schedule_turn(node);
        }
    }

    pub(super) fn stop_device_faults(&mut self) {
        for device in self.nodes.iter().filter_map(|node| node.device.as_ref()) {
            device.stop_faults();
        }
    }
}
