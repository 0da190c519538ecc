//! Frames between devices: each flies by itself, and reaches a device whether its owner lives or
//! not.

use quorate_core::record::Class;
use quorate_node::host::Host as _;

use super::{Event, World, name};
use crate::{
    check::Verdict,
    device::{self, Device},
    dice::Dice,
};

/// Frames that strangers may send again.
const SENT_MAX: usize = 2048;

impl World {
    /// Makes a process that runs from now on the owner of its node's device.
    pub(super) fn own_device(&mut self, node: usize, boot: u32) {
        let Some(faults) = self.settings.devices else {
            return;
        };
        let seed = self.settings.seed;
        let process = &mut self.nodes[node];
        let device = process.device.get_or_insert_with(|| Device::new(seed, node, faults));
        let owning = device.owning(process.life, boot);
        if let Some(running) = &mut process.running {
            running.host.lend_device(Box::new(owning));
        }
    }

    /// Handles the death of a node's process.
    pub(super) fn orphan_device(&mut self, node: usize) {
        let dies = self.nodes[node].device.as_ref().map(Device::orphan);
        if dies == Some(true) {
            self.counts.device_resets += 1;
        }
    }

    /// Sends the frames of a device to all others.
    pub(super) fn send_device_frames(&mut self, node: usize) {
        let Some(device) = &self.nodes[node].device else {
            return;
        };
        for frame in device.take_sent() {
            self.counts.device_frames += 1;
            if self.frames.sent.len() == SENT_MAX {
                self.frames.sent.pop_front();
            }
            self.frames.sent.push_back(frame.clone());
            self.fly_to_stations(node, &frame);
        }
    }

    /// Sends a frame of this station to all others: devices of nodes, and clients of devices.
    pub(super) fn fly_to_stations(&mut self, from: usize, frame: &[u8]) {
        let stations = self.nodes.len() + self.frame_clients.len();
        for to in (0..stations).filter(|to| *to != from) {
            self.fly_frame(from, to, frame);
        }
    }

    fn fly_frame(&mut self, from: usize, to: usize, frame: &[u8]) {
        let weather = self.network.weather();
        let dice = &mut self.frames.dice;
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
            self.damage(&mut bytes);
            self.after(us, Event::Frame { from, to, bytes });
        }
    }

    /// Turns a bit; one of the sums detects each.
    fn damage(&mut self, bytes: &mut [u8]) {
        let rate = self.settings.devices.map(|faults| faults.damaged_of_1000);
        let rate = rate.filter(|rate| *rate > 0 && self.chaos.goes_on());
        if rate.is_some_and(|rate| self.frames.dice.chance(rate, 1000)) {
            // Bits before that belong to no message: others drop the frame, or take it for a
            // stranger's.
            let bit = self.frames.dice.between(12 * 8, 8 * bytes.len() as u64 - 1);
            let bit = usize::try_from(bit).unwrap_or(0);
            bytes[bit / 8] ^= 1 << (bit % 8);
            self.counts.frames_damaged += 1;
        }
    }

    /// Plans the next frame of a sender that is no device.
    pub(super) fn plan_stranger(&mut self) {
        let mean_us = self.settings.devices.and_then(|faults| faults.strangers_us);
        if let Some(mean_us) = mean_us.filter(|_| self.chaos.goes_on()) {
            let wait = self.frames.dice.interval(mean_us);
            self.after(wait, Event::DeviceStranger);
        }
    }

    /// Sends to a device an old frame, or one that no device would send.
    pub(super) fn send_as_stranger(&mut self) -> Verdict {
        self.plan_stranger();
        let frames = &mut self.frames;
        if frames.sent.is_empty() {
            return Ok(());
        }
        let nodes = self.nodes.len();
        let to = frames.dice.index(nodes + self.frame_clients.len());
        let mut bytes = frames.sent[frames.dice.index(frames.sent.len())].clone();
        if frames.dice.chance(1, 2) {
            let Some(forged) = device::forged(&bytes, to, &mut frames.dice) else {
                return Ok(());
            };
            bytes = forged;
        }
        self.counts.frames_of_strangers += 1;
        match to.checked_sub(nodes) {
            Some(client) => self.frame_client_hears(client, &bytes),
            None => {
                self.deliver_frame(to, &bytes);
                Ok(())
            }
        }
    }

    /// Delivers any frame to the device of a node, now.
    pub fn deliver_frame(&mut self, to: usize, bytes: &[u8]) {
        let device = self.nodes.get(to).and_then(|node| node.device.as_ref());
        if device.is_some_and(|device| device.hear(bytes)) {
            self.wake(to);
        }
        self.send_device_frames(to);
    }

    /// Returns the frames sent by devices until now, the newest last: the last few thousand.
    pub fn device_frames(&self) -> impl Iterator<Item = &[u8]> {
        self.frames.sent.iter().map(Vec::as_slice)
    }

    /// Delivers a frame to a station.
    pub(super) fn station_hears(&mut self, from: usize, to: usize, bytes: &[u8]) -> Verdict {
        let nodes = self.nodes.len();
        if let Some(client) = to.checked_sub(nodes) {
            return self.frame_client_hears(client, bytes);
        }
        if from >= nodes || !self.network.is_blocked(from, to) {
            self.deliver_frame(to, bytes);
        }
        Ok(())
    }

    /// Plans the next loss of power of a device while its owner lives.
    pub(super) fn plan_reset(&mut self) {
        let mean_us = self.settings.devices.and_then(|faults| faults.resets_us);
        if let Some(mean_us) = mean_us.filter(|_| self.chaos.goes_on()) {
            let wait = self.frames.dice.interval(mean_us);
            self.after(wait, Event::DeviceReset);
        }
    }

    /// Cuts the power of a device. Where its votes count they are forgotten: that happens to nodes
    /// that may forget.
    pub(super) fn reset_device(&mut self) {
        self.plan_reset();
        let node = self.frames.dice.index(self.nodes.len());
        let spared = self.settings.class == Class::Volatile && !self.chaos.may_forget(node);
        if let Some(device) = self.nodes[node].device.as_ref().filter(|_| !spared) {
            device.reset();
            self.counts.device_resets += 1;
            self.line(&name(node), "device", format_args!("loses power"));
        }
    }

    /// Plans the next removal of a device from its place.
    pub(super) fn plan_taking(&mut self) {
        if let Some(mean_us) = self.settings.devices.and_then(|faults| faults.taken_us) {
            let wait = self.frames.dice.interval(mean_us);
            self.after(wait, Event::DeviceTaken);
        }
    }

    /// Removes a device from its place.
    pub(super) fn take_device(&mut self) {
        self.plan_taking();
        let node = self.frames.dice.index(self.nodes.len());
        if let Some(device) = &self.nodes[node].device {
            device.take_away();
            self.counts.devices_taken += 1;
            self.line(&name(node), "device", format_args!("is taken from its place"));
        }
    }

    /// Plans the next stall of a device.
    pub(super) fn plan_device_stall(&mut self) {
        let mean_us = self.settings.devices.and_then(|faults| faults.stalls_us);
        if let Some(mean_us) = mean_us.filter(|_| self.chaos.goes_on()) {
            let wait = self.frames.dice.interval(mean_us);
            self.after(wait, Event::DeviceStall);
        }
    }

    /// Stalls a device for up to two seconds: where votes count, too, since nothing is forgotten.
    pub(super) fn stall_any_device(&mut self) {
        self.plan_device_stall();
        let node = self.frames.dice.index(self.nodes.len());
        let us = self.frames.dice.between(10_000, 2_000_000);
        self.stall_device(node, us);
    }

    /// Stalls the device of this node for this long ([offload-9]).
    pub fn stall_device(&mut self, node: usize, us: u64) {
        if let Some(device) = &self.nodes[node].device {
            device.stall();
            self.counts.device_stalls += 1;
            self.line(&name(node), "device", format_args!("stands still for {us} µs"));
            self.after(us, Event::DeviceResume(node));
        }
    }

    /// Resumes a stalled device.
    pub(super) fn resume_device(&mut self, node: usize) {
        if let Some(device) = &self.nodes[node].device {
            device.resume();
            self.send_device_frames(node);
            self.wake(node);
        }
    }

    /// Ends all faults of devices.
    pub(super) fn calm_devices(&mut self) {
        for device in self.nodes.iter().filter_map(|node| node.device.as_ref()) {
            device.calm();
        }
    }
}
