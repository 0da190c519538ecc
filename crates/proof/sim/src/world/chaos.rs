//! Faults of act one, and the repair of their effects before act two.

use quorate_core::{effect::Role, record::Class, time::Time};
use quorate_log::disk::{Family, Source as _};

use super::{Event, World, name};
use crate::{
    disk::rottable_blocks,
    faults::Fault,
    node::{Arrival, StoreDisk},
};

/// Number of recent log writes that do not rot. It exceeds the number of writes in flight
/// ([model-3]).
pub(super) const UNROTTED_WRITES: usize = 8;

impl World {
    /// Injects the fault with this index in the settings, and schedules the next fault of the same
    /// kind.
    pub(crate) fn inject_fault(&mut self, index: usize) {
        if !self.fault_state.faults_go_on {
            return;
        }
        let (fault, mean_us) = self.settings.fault_intervals[index];
        let wait = self.dice.interval(mean_us);
        self.schedule_after(wait, Event::InjectFault(index));
        if !self.waits_for_level() {
            self.apply_fault(fault);
        }
    }

    /// Injects a fault of the given kind now.
    pub fn apply_fault(&mut self, fault: Fault) {
        let node = self.dice.index(self.nodes.len());
        let (a, b) = self.pick_pair(node);
        match fault {
            Fault::Crash => self.crash_process(node, 200_000),
            Fault::LongOutage => self.crash_process(node, 4_000_000),
            Fault::CrashAll => {
                for node in 0..self.nodes.len() {
                    self.crash_process(node, 100_000);
                }
            }
            Fault::CleanStop => self.deliver_arrival(node, Arrival::StopRequest),
            Fault::Pause => self.pause_process(node),
            Fault::Reset => {
                let late = self.dice.pick(&[0, 1000, 300_000]);
                self.break_connection(a, b, late);
            }
            Fault::OneWay => self.block_for(a, b),
            Fault::Partition => self.partition_network(),
            Fault::Clog => self.clog_links(),
            Fault::ClientReset => self.reset_client(),
            Fault::SlowDisk => self.slow_down_disk(node),
            Fault::DiskError => self.fail_next_write(node),
            Fault::DiskFull => self.fill_disk(node),
            Fault::NoDescriptors => self.exhaust_descriptors(node),
            Fault::Rot => self.rot_block(node),
            Fault::LostLog => self.lose_log(node),
            Fault::ClockJump => self.jump_clock(node),
            Fault::Transfer => self.request_transfer(),
            // Strikes only while a node founds or joins, through `plan_founding_kill` and
            // `draw_founder_death`.
            Fault::FoundingKill => {}
            Fault::IdentityKill => self.kill_with_identity(node),
            Fault::IncarnationKill => self.kill_with_incarnation(node),
        }
    }

    /// Returns this node and another one chosen at random; (0, 0) if there is no other.
    fn pick_pair(&mut self, node: usize) -> (usize, usize) {
        let count = self.nodes.len();
        if count == 1 {
            return (0, 0);
        }
        (node, (node + 1 + self.dice.index(count - 1)) % count)
    }

    pub(super) fn deliver_arrival(&mut self, node: usize, arrival: Arrival) {
        let life = self.nodes[node].start_count;
        self.deliver_arrival_to(node, life, arrival);
    }

    /// Returns whether this node may be killed without making its votes durable.
    pub(super) fn may_crash(&self, node: usize) -> bool {
        self.settings.class == Class::Durable || self.fault_state.may_forget(node)
    }

    fn crash_process(&mut self, node: usize, down_us: u64) {
        if self.nodes[node].running.is_none() || !self.may_crash(node) {
            return;
        }
        // A killed process resets its connections, whereas a host that loses power sends nothing.
        let late = self.dice.pick(&[100, 100, 500_000]);
        self.kill_process(node, late);
        let down = self.dice.between(500, down_us);
        self.schedule_after(down, Event::StartProcess(node));
    }

    /// May schedule the death of a node without an identity, at a random disk change up to the one
    /// that completes the identity.
    pub(crate) fn plan_founding_kill(&mut self, node: usize) {
        if !self.fault_state.faults_go_on
            || !self.includes_fault(Fault::FoundingKill)
            || self.nodes[node].identity().is_some()
        {
            return;
        }
        // The disk changes write the number of segments and the identity. On a joining node, they
        // first write the nonce. Each file is renamed and synced.
        let changes = if node == 0 { 4 } else { 6 };
        if self.dice.chance(2, 3) {
            self.nodes[node].dies_after_changes = Some(self.dice.below(changes + 1));
        }
    }

    /// Draws the disk change at which the founder dies while it admits a node; `None` if it
    /// survives.
    pub(crate) fn draw_founder_death(&mut self) -> Option<u64> {
        let armed = self.fault_state.faults_go_on
            && self.includes_fault(Fault::FoundingKill)
            && self.may_crash(0);
        (armed && self.dice.chance(1, 4)).then(|| self.dice.below(3))
    }

    /// Draws the disk change at which a node dies while it marks a clean stop; `None` if it
    /// survives.
    pub(crate) fn draw_stop_mark_death(&mut self, node: usize) -> Option<u64> {
        let armed = self.fault_state.faults_go_on
            && self.includes_fault(Fault::IdentityKill)
            && self.may_crash(node);
        (armed && self.dice.chance(1, 2)).then(|| self.dice.below(3))
    }

    /// Kills a process, then kills its successor before, during or after the change of the identity
    /// with which the successor counts its start.
    fn kill_with_identity(&mut self, node: usize) {
        if self.nodes[node].running.is_none() || !self.may_crash(node) {
            return;
        }
        self.crash_process(node, 50_000);
        self.nodes[node].dies_after_changes = Some(self.dice.below(3));
    }

    /// Kills a process and drops its votes. Its successor dies at a random disk change around the
    /// point where it records its new incarnation and first writes its log.
    fn kill_with_incarnation(&mut self, node: usize) {
        let durable = self.settings.class == Class::Durable;
        let spared = !self.fault_state.may_forget(node)
            || durable && self.settings.forgetting_nodes_max() == 0;
        if spared || self.nodes[node].running.is_none() {
            return;
        }
        if durable {
            self.lose_log(node);
        } else {
            self.crash_process(node, 50_000);
        }
        // The disk changes are, in order, the start count, the incarnation, and the first log
        // write.
        self.nodes[node].dies_after_changes = Some(2 + self.dice.below(8));
    }

    fn pause_process(&mut self, node: usize) {
        if !self.nodes[node].is_up() {
            return;
        }
        let wait = self.dice.pick(&[3_000, 60_000, 400_000, 2_000_000]);
        let wait = self.dice.between(1_000, wait);
        self.nodes[node].is_paused = true;
        self.nodes[node].next_turn_at = None;
        self.trace_line(&name(node), "paused", format_args!("for {} ms", wait / 1000));
        let life = self.nodes[node].start_count;
        self.schedule_after(wait, Event::ResumeProcess { node, life });
    }

    fn block_for(&mut self, from: usize, to: usize) {
        if from == to {
            return;
        }
        let wait = self.dice.pick(&[20_000, 300_000, 2_000_000]);
        let wait = self.dice.between(1_000, wait);
        self.schedule_at(self.now, Event::BlockLink { from, to, is_blocked: true });
        self.schedule_after(wait, Event::BlockLink { from, to, is_blocked: false });
    }

    fn partition_network(&mut self) {
        let count = self.nodes.len();
        let side: Vec<bool> = (0..count).map(|_| self.dice.chance(1, 2)).collect();
        let wait = self.dice.pick(&[100_000, 1_000_000]);
        let wait = self.dice.between(10_000, wait);
        let breaks = self.dice.chance(1, 2);
        for from in 0..count {
            for to in (0..count).filter(|to| side[*to] != side[from]) {
                self.schedule_at(self.now, Event::BlockLink { from, to, is_blocked: true });
                self.schedule_after(wait, Event::BlockLink { from, to, is_blocked: false });
                if breaks && from < to {
                    self.break_connection(from, to, wait);
                }
            }
        }
    }

    /// Blocks links one by one and unblocks them in a different order.
    fn clog_links(&mut self) {
        let count = self.nodes.len();
        let mut links: Vec<(usize, usize)> =
            (0..count).flat_map(|from| (0..count).map(move |to| (from, to))).collect();
        links.retain(|(from, to)| from != to);
        for blocked in [true, false] {
            self.dice.shuffle(&mut links);
            let base = if blocked { 0 } else { 150_000 };
            let mut at = base;
            for (from, to) in links.clone() {
                at += self.dice.between(1_000, 30_000);
                self.schedule_after(at, Event::BlockLink { from, to, is_blocked: blocked });
            }
        }
    }

    fn reset_client(&mut self) {
        self.reset_stream_client();
        if self.clients.is_empty() {
            return;
        }
        let client = self.dice.index(self.clients.len());
        if let Some((connection, node)) = self.clients[client].connection {
            self.deliver_arrival(node, Arrival::ClientClosed(connection));
            self.handle_client_down(client, connection);
        }
    }

    fn slow_down_disk(&mut self, node: usize) {
        self.nodes[node].disk_slowdown = self.dice.pick(&[10, 100]);
        self.trace_line(&name(node), "disk", format_args!("is slow"));
        let wait = self.dice.between(10_000, 1_000_000);
        self.schedule_after(wait, Event::DiskSpeedRestored(node));
    }

    /// Makes the next write fail. An operator restarts the node later. Skips nodes of a volatile
    /// group that may not forget, because their processes could not shut down gracefully.
    fn fail_next_write(&mut self, node: usize) {
        if !self.may_crash(node) || self.nodes[node].running.is_none() {
            return;
        }
        self.nodes[node].next_write_fails = true;
        let wait = self.dice.between(50_000, 1_000_000);
        let life = self.nodes[node].start_count;
        self.schedule_after(wait, Event::RepairNode { node, life });
    }

    /// Ends a disk's write faults. If the log failed, restarts the node, as an operator would.
    pub(crate) fn repair_node(&mut self, node: usize, life: u64) {
        if self.nodes[node].start_count != life {
            return;
        }
        self.nodes[node].next_write_fails = false;
        if self.has_failed_log(node) {
            self.crash_process(node, 50_000);
        }
    }

    /// Performs the operator's periodic check in act two, which restarts nodes whose log failed or
    /// cannot be read back, or whose device lost votes.
    pub(crate) fn check_all_nodes(&mut self) {
        for node in 0..self.nodes.len() {
            if self.has_failed_log(node) {
                self.crash_process(node, 50_000);
            }
        }
        self.schedule_after(300_000, Event::CheckAllNodes);
    }

    fn has_failed_log(&self, node: usize) -> bool {
        let running = self.nodes[node].running.as_ref();
        let error = running.and_then(|running| running.replica().error());
        let fatal = ["the log failed", "the log could not be read back", "its device forgot"];
        error.is_some_and(|error| fatal.iter().any(|start| error.starts_with(start)))
    }

    fn fill_disk(&mut self, node: usize) {
        self.nodes[node].disk.set_capacity(Some(0));
        self.trace_line(&name(node), "disk", format_args!("is full"));
        let wait = self.dice.between(10_000, 1_000_000);
        self.schedule_after(wait, Event::DiskSpaceRestored(node));
    }

    /// Exhausts the node's file descriptors. The log can still write to open files, but all other
    /// operations must wait.
    fn exhaust_descriptors(&mut self, node: usize) {
        self.nodes[node].disk.set_out_of_descriptors(true);
        self.trace_line(&name(node), "disk", format_args!("no file can be opened"));
        let wait = self.dice.between(10_000, 1_000_000);
        self.schedule_after(wait, Event::DescriptorsRestored(node));
    }

    /// [model-3] Flips a bit in an old block, which a scrub or the next start detects. Completed
    /// data may rot, but not one of the last D batches together with a crash. Only nodes that may
    /// forget are affected.
    fn rot_block(&mut self, node: usize) {
        if !self.fault_state.may_forget(node) || self.settings.forgetting_nodes_max() == 0 {
            return;
        }
        let blocks = rottable_blocks(&self.nodes[node].disk, UNROTTED_WRITES);
        if blocks.is_empty() {
            return;
        }
        let at = blocks[self.dice.index(blocks.len())];
        let bit = self.dice.below(4096 * 8);
        if self.nodes[node].disk.flip_bit(at, bit) {
            self.counts.rotted_blocks += 1;
            self.nodes[node].has_rotted = true;
            self.trace_line(&name(node), "rot", format_args!("{at}, bit {bit}"));
        }
    }

    /// Makes a node that may forget lose the end of its log, or the whole log.
    fn lose_log(&mut self, node: usize) {
        let spared =
            !self.fault_state.may_forget(node) || self.settings.forgetting_nodes_max() == 0;
        if spared || self.nodes[node].running.is_none() {
            return;
        }
        self.kill_process(node, 100);
        let segments = self.nodes[node].disk.reopen_after_crash().files(Family::Log);
        let segments = segments.expect("a disk in memory lists its segments");
        let keep = match self.dice.below(2) {
            0 => 0,
            _ => self.dice.index(segments.len().max(1)),
        };
        for info in segments.iter().skip(keep) {
            self.nodes[node].disk.remove(info.file);
        }
        let what = format_args!("is gone from segment {} on", keep + 1);
        self.trace_line(&name(node), "log", what);
        let down = self.dice.between(500, 200_000);
        self.schedule_after(down, Event::StartProcess(node));
    }

    /// Schedules the next disk failure of a service, if the run has any.
    pub(crate) fn plan_store_fault(&mut self) {
        if let Some(mean_us) = self.settings.store_fault_interval_us {
            let wait = self.fault_state.store_dice.interval(mean_us);
            self.schedule_after(wait, Event::StoreFault);
        }
    }

    pub(crate) fn fail_store_disk(&mut self) {
        if !self.fault_state.faults_go_on {
            return;
        }
        self.plan_store_fault();
        let dice = &mut self.fault_state.store_dice;
        let node = dice.index(self.nodes.len());
        let kind = dice.below(3);
        let disk = StoreDisk {
            is_full: kind == 0,
            is_missing: kind == 1,
            fails_after: (kind == 2).then(|| u32::try_from(dice.below(6)).expect("below six")),
        };
        let most = dice.pick(&[5_000, 100_000, 1_500_000]);
        let wait = dice.between(500, most);
        self.counts.store_faults += 1;
        self.nodes[node].store_disk.set(disk);
        self.trace_line(&name(node), "store", format_args!("{disk:?}"));
        self.schedule_turn(node);
        self.schedule_after(wait, Event::StoreRecovers(node));
    }

    /// Schedules the next stall of a process within a turn, if the run has any.
    pub(crate) fn plan_stall(&mut self) {
        if let Some(mean_us) = self.settings.stall_interval_us {
            let wait = self.fault_state.stall_dice.interval(mean_us);
            self.schedule_after(wait, Event::StallProcess);
        }
    }

    /// Stalls a process after it has read its clocks and before it uses the time. When the process
    /// resumes, it handles the arrivals of that period as if at the old time. Leases expire during
    /// such stalls.
    pub(crate) fn stall_process(&mut self) {
        if !self.fault_state.faults_go_on {
            return;
        }
        self.plan_stall();
        let leader = (0..self.nodes.len()).find(|index| {
            let running = self.nodes[*index].running.as_ref();
            running.is_some_and(|running| running.replica().node().role() == Role::Leader)
        });
        let dice = &mut self.fault_state.stall_dice;
        let any = dice.index(self.nodes.len());
        let node = leader.filter(|_| dice.chance(2, 3)).unwrap_or(any);
        let most = dice.pick(&[20_000, 150_000, 150_000, 600_000]);
        let wait = dice.between(1_000, most);
        if !self.nodes[node].is_up() {
            return;
        }
        self.counts.process_stalls += 1;
        self.stall_now(node);
        let life = self.nodes[node].start_count;
        self.schedule_after(wait, Event::ResumeProcess { node, life });
    }

    fn jump_clock(&mut self, node: usize) {
        let skew = self.settings.clock_skew_ms;
        self.nodes[node].clock.jump_wall_clock(&mut self.dice, skew);
        self.trace_line(&name(node), "clock", format_args!("the wall clock is set"));
    }

    fn request_transfer(&mut self) {
        let leads = |index: &usize| {
            let running = self.nodes[*index].running.as_ref();
            running.is_some_and(|running| running.replica().node().role() == Role::Leader)
        };
        if let Some(leader) = (0..self.nodes.len()).find(leads) {
            self.trace_line(&name(leader), "asked", format_args!("to hand over"));
            self.deliver_arrival(leader, Arrival::TransferRequest(None));
        }
    }

    /// Stops all faults and repairs their effects.
    pub(crate) fn stop_faults(&mut self) {
        self.trace_line("world", "heals", format_args!(""));
        self.fault_state.faults_go_on = false;
        self.network.end_faults();
        self.clear_network_faults();
        self.stop_device_faults();
        let over = |event: &Event| {
            matches!(
                event,
                Event::BlockLink { is_blocked: true, .. }
                    | Event::InjectFault(_)
                    | Event::StoreFault
                    | Event::InstallRelease
                    | Event::StallProcess
                    | Event::RequestScrub
                    | Event::StrayWrite
                    | Event::DataLoss
                    | Event::ClassRequest
                    | Event::LoseReception
                    | Event::ChangeTransport
                    | Event::StartProcess(_)
            )
        };
        self.schedule.cancel_matching(over);
        for node in 0..self.nodes.len() {
            let process = &mut self.nodes[node];
            process.disk_slowdown = 1;
            process.next_write_fails = false;
            process.dies_after_changes = None;
            process.disk.die_after_changes(u64::MAX);
            process.disk.set_capacity(None);
            process.disk.set_out_of_descriptors(false);
            process.disk.clear_faults();
            process.store_disk.take();
            process.clock.clear_wall_offset();
            process.is_paused = false;
            process.stalled_turn = None;
            if self.nodes[node].running.is_none() {
                self.schedule_after(1, Event::StartProcess(node));
            } else {
                self.schedule_turn(node);
            }
        }
        for a in 0..self.nodes.len() {
            for b in 0..self.nodes.len() {
                if a < b {
                    self.schedule_after(2, Event::Dial(a, b));
                }
                if a != b {
                    self.schedule_at(
                        Time(0),
                        Event::BlockLink { from: a, to: b, is_blocked: false },
                    );
                }
            }
        }
        self.schedule_after(2, Event::CheckAllNodes);
        self.install_newest_everywhere();
        self.stop_stream_clients();
        self.stop_frame_clients();
        for client in 0..self.clients.len() {
            self.clients[client].is_done = true;
            self.schedule_after(1, Event::ClientActs(client));
        }
    }
}
