//! Second act of a run: faults end, everything arrives in order, and the group must make progress.

use quorate_core::{
    invariants,
    node::Node,
    node_id::Member,
    slot::Slot,
    value::{StreamName, Value},
};

use crate::{
    event::Event,
    observer::{Property, Violation},
    site::Site,
    world::{NEVER, World},
};

/// Maximum number of timeouts until the group must have converged.
const TURNS_MAX: usize = 600;
/// Maximum number of attempts at a read of one node, and at waiting for disks on all nodes.
const READ_TURNS_MAX: u64 = 20;
/// First token of the reads in the second act. It is distinct from those of the first act.
const FIRST_READ_TOKEN: u64 = 1 << 32;
/// Number of delivered messages beyond which messages are assumed to cause each other endlessly.
const DELIVERIES_MAX: usize = 20_000;

/// Returns one line that describes an event.
pub fn describe_event(world: &World, event: &Event) -> String {
    match event {
        Event::Deliver { message_index: at, bytes } => {
            let parcel = &world.soup[*at];
            let bytes = if parcel.bytes && *bytes { " +bytes" } else { "" };
            format!(
                "{:>8} {} -> {}  {:?}{bytes}",
                world.now.0, parcel.from, parcel.receiver, parcel.message
            )
        }
        Event::DeliverFrame { site, frame_index: frame, at_once: whole } => {
            let (at, frame) = (site + 1, world.frames[*frame]);
            let whole = if *whole { "" } else { " (begins)" };
            format!("{:>8} device {at} hears {frame:?}{whole}", world.now.0)
        }
        other => format!("{:>8} {other:?}", world.now.0),
    }
}

/// Plays the second act. Returns `false` if too many votes were forgotten for the group to make
/// progress.
pub fn play_second_act(
    world: &mut World,
    mut trace: impl FnMut(&dyn Fn() -> String),
) -> Result<bool, Violation> {
    trace(&|| "--- the second act".to_owned());
    let mut act = SecondAct {
        next_message: world.soup.len(),
        next_frame: world.frames.len(),
        // Half of the groups continue without devices, so that the assigned slots are withdrawn.
        uses_devices: world.soup.len().is_multiple_of(2),
        // An arbitrary number that follows from the seed.
        absent_node: Some(world.soup.len() % (2 * world.sites.len())),
        world,
        trace_line: &mut trace,
        delivery_count: 0,
    };
    act.repair_world()?;
    if !act.can_decide() {
        act.absent_node = None;
        act.repair_world()?;
    }
    if !act.can_decide() {
        return Ok(false);
    }
    // A new value must be decided as well.
    let fresh = Value::AllocateNode { nonce: 0xf1e5 };
    let mut verdict = act.converge(None).and_then(|()| act.converge(Some(fresh)));
    if !act.world.setup.spine_only {
        verdict = verdict.and_then(|()| act.check_reads()).and_then(|()| act.check_disk_waits());
    }
    // A reconfiguration in flight may have given weight to members that forgot their votes.
    if verdict.is_err() && !act.can_decide() {
        return Ok(false);
    }
    verdict.map(|()| true)
}

/// Returns the node that runs on this site, if it applies commands.
fn running_replica(site: &Site) -> Option<&Node> {
    site.node.as_ref().filter(|node| !node.is_auxiliary())
}

struct SecondAct<'a> {
    world: &'a mut World,
    trace_line: &'a mut dyn FnMut(&dyn Fn() -> String),
    next_message: usize,
    /// Frames before this index have arrived or are lost.
    next_frame: usize,
    uses_devices: bool,
    delivery_count: usize,
    /// Index of a node that remains down, if the others can make progress without it.
    absent_node: Option<usize>,
}

impl SecondAct<'_> {
    fn apply(&mut self, event: &Event) -> Result<(), Violation> {
        let world = &*self.world;
        (self.trace_line)(&|| describe_event(world, event));
        self.world.apply_event(event)
    }

    /// Repairs the world, so that every node runs except the absent one, every disk works, and all
    /// nodes are connected. Messages lost on a connection that remains up stay lost. No node
    /// reconnects unnecessarily, because reconnecting would resend them.
    fn repair_world(&mut self) -> Result<(), Violation> {
        self.world.keeps_duplicates = true;
        self.world.setup.lost_messages = crate::setup::LostMessages::default();
        for site in 0..self.world.sites.len() {
            let absent = self.absent_node == Some(site);
            if self.world.sites[site].storage_failed || absent {
                self.apply(&Event::Crash { site, kept_count: 0 })?;
            }
            if !absent {
                let forget = false;
                self.apply(&Event::Start { site, forgets_votes: forget })?;
                let yes = self.uses_devices;
                self.apply(&Event::UseDevice { site, is_used: yes })?;
            }
        }
        for site in 0..self.world.sites.len() {
            for peer in 0..self.world.sites.len() {
                let up = [site, peer].iter().all(|at| self.absent_node != Some(*at));
                let connected = self.world.sites[site].connected_sites.contains(&peer);
                if site != peer && up && !connected {
                    self.apply(&Event::Connect { site, peer })?;
                } else if !up && connected {
                    self.apply(&Event::Disconnect { site, peer })?;
                }
            }
        }
        Ok(())
    }

    /// [class-5], [disk-8] Returns whether the group can make progress. The members of the newest
    /// era that remember their votes, and lack nothing they decided, must form quorums, and some
    /// member must hold every chosen value. The core ensures that a node knows the value that began
    /// an era if others have promised a ballot in that era ([ballot-5]).
    fn can_decide(&self) -> bool {
        let nodes = || self.world.sites.iter().filter_map(|site| site.node.as_ref());
        let able = |site: &&Site| {
            let node = site.node.as_ref();
            node.is_some_and(|node| node.relearning_progress().is_none())
        };
        let able = self.world.sites.iter().filter(able);
        let now: Vec<Member> = able.map(|site| site.member).collect();
        // A group may have lost members in any of the eras.
        let remember = |configuration: &quorate_core::configuration::Configuration| {
            let era = quorate_core::ballot::Era(0);
            let ballot = quorate_core::ballot::Ballot::ZERO;
            invariants::is_chosen(configuration, era, ballot, &now)
                && invariants::could_promise(configuration, &now)
        };
        let observer = &self.world.observer;
        let readable = |slot: Slot| {
            let value = observer.chosen_value(slot).expect("below what is chosen");
            self.world.sites.iter().any(|site| site.can_teach(slot, value))
        };
        remember(observer.configuration())
            && (Slot::FIRST.0..observer.chosen_to().0).map(Slot).all(readable)
            && nodes().all(|node| remember(node.configuration()))
    }

    /// Runs until all nodes follow one leader and nothing is undecided. The value `wanted`, if any,
    /// must be decided.
    fn converge(&mut self, wanted: Option<Value>) -> Result<(), Violation> {
        let target = self.world.observer.chosen_to();
        for _ in 0..TURNS_MAX {
            self.deliver_in_flight()?;
            if self.is_converged() && (wanted.is_none() || self.is_decided(target, &wanted)) {
                return Ok(());
            }
            let leader = self.world.leader_site();
            if let (Some(value), Some(site)) = (wanted, leader)
                && self.is_converged()
            {
                // A value that was refused during a transfer is submitted again.
                let slots = 1;
                self.apply(&Event::Propose { site, value, slot_count: slots })?;
                self.deliver_in_flight()?;
            }
            self.advance_to_next_wake()?;
        }
        let state = |at: usize| {
            let site = &self.world.sites[at];
            site.node.as_ref().map_or_else(
                || "down".to_owned(),
                |node| {
                    format!(
                        "{}: {:?} of {:?}, ballot {}, promised {}, era {}, decided {}",
                        site.member,
                        node.role(),
                        node.leader(),
                        node.ballot(),
                        node.acceptor().promised(),
                        node.era(),
                        node.decided_to()
                    )
                },
            )
        };
        let states: Vec<String> = (0..self.world.sites.len()).map(state).collect();
        let seen = Err(format!(
            "no agreement on a leader and a log (chosen {}): {}",
            self.world.observer.chosen_to(),
            states.join("; ")
        ));
        self.world.observer.to_violation(Property::Liveness, seen)
    }

    /// Checks that a read at any node is confirmed. A failed read is retried.
    fn check_reads(&mut self) -> Result<(), Violation> {
        for site in 0..self.world.sites.len() {
            // [aux-1] An auxiliary applies nothing, and so has nothing to read.
            let auxiliary = |node: &Node| node.is_auxiliary();
            let spared = self.world.sites[site].node.as_ref().is_some_and(auxiliary);
            if self.absent_node == Some(site) || spared {
                continue;
            }
            self.world.sites[site].last_confirmed_read = None;
            for turn in 0.. {
                if turn == READ_TURNS_MAX {
                    let seen = Err(format!("no read of node {} is confirmed", site + 1));
                    return self.world.observer.to_violation(Property::Liveness, seen);
                }
                let token = FIRST_READ_TOKEN + turn;
                self.apply(&Event::Read { site, token })?;
                self.deliver_in_flight()?;
                if self.world.sites[site].last_confirmed_read.is_some() {
                    break;
                }
                self.advance_to_next_wake()?;
            }
        }
        Ok(())
    }

    /// [last-4] Checks that clients that wait for disks are notified on every node that applies
    /// commands, even if they wait for the first time.
    fn check_disk_waits(&mut self) -> Result<(), Violation> {
        if self.world.sites.iter().any(|site| site.disk.is_damaged()) {
            // A node that cannot read back a slot does not report it as being on disk.
            return Ok(());
        }
        for _ in 0..READ_TURNS_MAX {
            for site in 0..self.world.sites.len() {
                if running_replica(&self.world.sites[site]).is_some() {
                    self.apply(&Event::AwaitDurable { site })?;
                }
            }
            self.deliver_in_flight()?;
            let waits = |site: &Site| {
                running_replica(site)
                    .is_some_and(|node| node.durable_notified_to() < site.decided_to())
            };
            if !self.world.sites.iter().any(waits) {
                return Ok(());
            }
            self.advance_to_next_wake()?;
        }
        let seen = Err("who waits for disks never hears of them".to_owned());
        self.world.observer.to_violation(Property::Liveness, seen)
    }

    /// Delivers everything in flight, in order. Disk writes and fetches complete at once.
    fn deliver_in_flight(&mut self) -> Result<(), Violation> {
        loop {
            let mut moved = false;
            for site in 0..self.world.sites.len() {
                let count = self.world.sites[site].disk.unpersisted_count();
                if count > 0 {
                    moved = true;
                    self.apply(&Event::Persist { site, count })?;
                }
                for _ in 0..self.world.sites[site].queued_fetches.len() {
                    self.apply(&Event::Fetch { site, succeeds: true })?;
                }
                if !self.world.sites[site].missing_bytes.is_empty() {
                    self.apply(&Event::FetchMissing { site })?;
                }
                if self.world.sites[site].forget_request.is_some() {
                    moved = true;
                    self.apply(&Event::ForgetSlots { site })?;
                }
                if let Some((site, to)) = self.node_to_snapshot(site) {
                    moved = true;
                    self.apply(&Event::Trim { site, log_start: to })?;
                }
                if let Some(from) = self.snapshot_source(site) {
                    moved = true;
                    self.apply(&Event::Install { site, from })?;
                }
                while !self.world.sites[site].queued_catchups.is_empty() {
                    moved = true;
                    self.apply(&Event::ServeCatchUp { site })?;
                }
            }
            moved |= self.move_streams()?;
            moved |= self.move_devices()?;
            while self.next_message < self.world.soup.len() {
                let at = self.next_message;
                self.next_message += 1;
                moved = true;
                self.delivery_count += 1;
                self.apply(&Event::Deliver { message_index: at, bytes: true })?;
                if self.delivery_count > DELIVERIES_MAX {
                    let seen = Err("messages breed messages without end".to_owned());
                    self.world.observer.to_violation(Property::Liveness, seen)?;
                    return Ok(());
                }
            }
            if !moved {
                return Ok(());
            }
        }
    }

    /// Lets devices carry out their orders and receive frames, and delivers their reports to their
    /// owners. Returns whether there was anything to do.
    fn move_devices(&mut self) -> Result<bool, Violation> {
        let mut moved = false;
        for site in 0..self.world.sites.len() {
            let whole = true;
            while self.world.sites[site].device.is_busy() {
                moved = true;
                self.apply(&Event::CarryOutOrder { site, at_once: whole })?;
                self.apply(&Event::EndDeviceSteps { site })?;
            }
            let frames = self.world.frames.len();
            let hole = false;
            self.apply(&Event::AssignSlot { site, at_once: whole, leaves_hole: hole })?;
            moved |= self.world.frames.len() > frames;
        }
        while self.next_frame < self.world.frames.len() {
            let frame = self.next_frame;
            self.next_frame += 1;
            moved = true;
            for site in 0..self.world.sites.len() {
                let whole = true;
                self.apply(&Event::DeliverFrame { site, frame_index: frame, at_once: whole })?;
            }
        }
        for site in 0..self.world.sites.len() {
            if self.world.sites[site].device.has_report() {
                moved = true;
                self.apply(&Event::DeliverDeviceReport { site })?;
            }
            while !self.world.sites[site].device.unreported_votes.is_empty() {
                moved = true;
                let (which, lost) = (0, false);
                self.apply(&Event::DeliverVoteReport { site, report_index: which, is_lost: lost })?;
            }
        }
        Ok(moved)
    }

    /// Delivers all clients' bytes to all nodes, lets leaders propose them, and closes streams
    /// without an owner. Returns whether there was anything to do.
    fn move_streams(&mut self) -> Result<bool, Violation> {
        let mut moved = false;
        let given: Vec<(StreamName, u64)> = self.world.clients.given_streams().collect();
        for site in 0..self.world.sites.len() {
            if self.world.sites[site].applied_streams.applied_to() < self.world.decided_to(site) {
                let before = self.world.sites[site].applied_streams.applied_to();
                self.apply(&Event::ApplyDecided { site })?;
                moved |= self.world.sites[site].applied_streams.applied_to() > before;
            }
            for (stream, to) in &given {
                let (stream, to) = (*stream, *to);
                let next = self.world.sites[site].applied_streams.table().next_position(stream);
                if next.is_some_and(|next| {
                    self.world.sites[site].contiguous_bytes_end(stream, next, to) < to
                }) {
                    let from = 0;
                    self.apply(&Event::DeliverStreamBytes { site, stream, from, end: to })?;
                }
                while self.world.has_bytes_to_offer(site, stream) {
                    moved = true;
                    self.apply(&Event::ProposeStreamBytes { site, stream, bytes_max: 4 })?;
                }
            }
        }
        let Some(site) = self.world.leader_site() else {
            return Ok(moved);
        };
        let node = self.world.sites[site].node.as_ref();
        let idle = |node: &Node| {
            node.can_propose() && node.phase2().is_some_and(|leading| leading.tally.is_empty())
        };
        if node.is_some_and(idle)
            && let Some(stream) = self.world.lost_streams(site).first()
        {
            let (value, slots) = (Value::CloseStream(*stream), 1);
            self.apply(&Event::Propose { site, value, slot_count: slots })?;
            moved = true;
        }
        Ok(moved)
    }

    /// Returns a node that should take a snapshot, and the end of the slots to cover, if a node
    /// needs a snapshot that no node has. As in a replica, that is the node that has decided most.
    fn node_to_snapshot(&self, site: usize) -> Option<(usize, Slot)> {
        let sites = &self.world.sites;
        let node = sites[site].node.as_ref()?;
        let wants = sites[site].snapshot_source.is_some() && node.is_hollow();
        if !wants || self.snapshot_source(site).is_some() {
            return None;
        }
        let to = |at: usize| {
            let other = sites[at].node.as_ref().filter(|other| !other.is_hollow())?;
            let news = other.log_start() < other.decided_to() && !sites[at].storage_failed;
            let useful = node.may_install(other.decided_to(), other.eras());
            (news && useful).then(|| other.decided_to())
        };
        let best = (0..sites.len()).filter_map(|at| Some((to(at)?, at))).max()?;
        Some((best.1, best.0))
    }

    /// Returns a node with a usable snapshot for a node that needs one.
    fn snapshot_source(&self, site: usize) -> Option<usize> {
        let sites = &self.world.sites;
        let node = sites[site].node.as_ref()?;
        sites[site].snapshot_source?;
        let helps = |at: &usize| {
            let snapshot = sites[*at].disk.start_snapshot();
            sites[*at].node.is_some()
                && snapshot.is_some_and(|(to, eras)| node.may_install(*to, eras))
        };
        (0..sites.len()).find(helps)
    }

    /// Advances the time to the next wake-up of any node.
    fn advance_to_next_wake(&mut self) -> Result<(), Violation> {
        let now = self.world.now;
        let wakes = self.world.sites.iter().map(|site| site.wake_time);
        let next = wakes.min().expect("there are nodes");
        if next == NEVER {
            return Ok(());
        }
        let next = next.max(now.plus_us(1));
        for site in 0..self.world.sites.len() {
            if self.world.sites[site].wake_time <= next {
                self.apply(&Event::Tick { site, at: next })?;
            }
        }
        Ok(())
    }

    fn is_decided(&self, target: Slot, wanted: &Option<Value>) -> bool {
        let to = self.world.observer.chosen_to();
        (target.0..to.0).any(|slot| self.world.observer.chosen_value(Slot(slot)) == wanted.as_ref())
    }

    /// Returns whether the group has converged: all nodes know the same leader, nothing is
    /// undecided, the ballot is of the era in force, and all nodes have decided everything.
    fn is_converged(&self) -> bool {
        let Some(leader) = self.world.leader_site() else {
            return false;
        };
        let member = self.world.sites[leader].member;
        let Some(node) = self.world.sites[leader].node.as_ref() else {
            return false;
        };
        let Some(leading) = node.phase2() else {
            return false;
        };
        let settled = node.phase1().is_none()
            && leading.tally.is_empty()
            && leading.ballot().era == node.era();
        let follows = |node: &Node| {
            let level = node.decided_to() == leading.tally.next() && !node.is_hollow();
            node.leader() == Some(member.node) && (level || node.is_auxiliary())
        };
        let all = self.world.sites.iter();
        let level = settled && all.filter_map(|site| site.node.as_ref()).all(follows);
        // [stream-5] All bytes that owners received are part of their streams, and streams without
        // owners are closed.
        let owes = (0..self.world.sites.len()).any(|site| self.world.owed_stream(site).is_some());
        level && !owes && self.world.lost_streams(leader).is_empty()
    }
}
