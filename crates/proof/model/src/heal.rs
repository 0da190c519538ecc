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
const READS_FROM: u64 = 1 << 32;
/// Number of delivered messages beyond which messages are assumed to cause each other endlessly.
const DELIVERIES_MAX: usize = 20_000;

/// Returns one line that describes an event.
pub fn describe(world: &World, event: &Event) -> String {
    match event {
        Event::Deliver { at, bytes } => {
            let parcel = &world.soup[*at];
            let bytes = if parcel.bytes && *bytes { " +bytes" } else { "" };
            format!(
                "{:>8} {} -> {}  {:?}{bytes}",
                world.now.0, parcel.from, parcel.to, parcel.message
            )
        }
        Event::Hear { site, frame, whole } => {
            let (at, frame) = (site + 1, world.frames[*frame]);
            let whole = if *whole { "" } else { " (begins)" };
            format!("{:>8} device {at} hears {frame:?}{whole}", world.now.0)
        }
        other => format!("{:>8} {other:?}", world.now.0),
    }
}

/// Plays the second act. Returns `false` if too many votes were forgotten for the group to make
/// progress.
pub fn heal(
    world: &mut World,
    mut trace: impl FnMut(&dyn Fn() -> String),
) -> Result<bool, Violation> {
    trace(&|| "--- the second act".to_owned());
    let mut act = Act {
        cursor: world.soup.len(),
        heard: world.frames.len(),
        // Half of the groups continue without devices, so that the assigned slots are withdrawn.
        devices: world.soup.len().is_multiple_of(2),
        // An arbitrary number that follows from the seed.
        absent: Some(world.soup.len() % (2 * world.sites.len())),
        world,
        trace: &mut trace,
        deliveries: 0,
    };
    act.bring_back()?;
    if !act.can_decide() {
        act.absent = None;
        act.bring_back()?;
    }
    if !act.can_decide() {
        return Ok(false);
    }
    // A new value must be decided as well.
    let fresh = Value::AllocateNode { nonce: 0xf1e5 };
    let mut verdict = act.converge(None).and_then(|()| act.converge(Some(fresh)));
    if !act.world.setup.spine {
        verdict = verdict
            .and_then(|()| act.everybody_reads())
            .and_then(|()| act.everybody_waits_for_disks());
    }
    // A reconfiguration in flight may have given weight to members that forgot their votes.
    if verdict.is_err() && !act.can_decide() {
        return Ok(false);
    }
    verdict.map(|()| true)
}

/// Returns the node that runs on this site, if it applies commands.
fn full(site: &Site) -> Option<&Node> {
    site.node.as_ref().filter(|node| !node.is_auxiliary())
}

struct Act<'a> {
    world: &'a mut World,
    trace: &'a mut dyn FnMut(&dyn Fn() -> String),
    cursor: usize,
    /// Frames before this index have arrived or are lost.
    heard: usize,
    devices: bool,
    deliveries: usize,
    /// Index of a node that remains down, if the others can make progress without it.
    absent: Option<usize>,
}

impl Act<'_> {
    fn apply(&mut self, event: &Event) -> Result<(), Violation> {
        let world = &*self.world;
        (self.trace)(&|| describe(world, event));
        self.world.apply(event)
    }

    /// Repairs the world, so that every node runs except the absent one, every disk works, and all
    /// nodes are connected. Messages lost on a connection that remains up stay lost. No node
    /// reconnects unnecessarily, because reconnecting would resend them.
    fn bring_back(&mut self) -> Result<(), Violation> {
        self.world.in_order = true;
        self.world.setup.silent = crate::setup::Silent::default();
        for site in 0..self.world.sites.len() {
            let absent = self.absent == Some(site);
            if self.world.sites[site].failed || absent {
                self.apply(&Event::Crash { site, kept: 0 })?;
            }
            if !absent {
                let forget = false;
                self.apply(&Event::Start { site, forget })?;
                let yes = self.devices;
                self.apply(&Event::Use { site, yes })?;
            }
        }
        for site in 0..self.world.sites.len() {
            for peer in 0..self.world.sites.len() {
                let up = [site, peer].iter().all(|at| self.absent != Some(*at));
                let connected = self.world.sites[site].connected.contains(&peer);
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
            node.is_some_and(|node| node.relearning().is_none())
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
            let value = observer.chosen(slot).expect("below what is chosen");
            self.world.sites.iter().any(|site| site.can_tell(slot, value))
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
            self.quiet()?;
            if self.is_level() && (wanted.is_none() || self.is_decided(target, &wanted)) {
                return Ok(());
            }
            let leader = self.world.leader();
            if let (Some(value), Some(site)) = (wanted, leader)
                && self.is_level()
            {
                // A value that was refused during a transfer is submitted again.
                let slots = 1;
                self.apply(&Event::Propose { site, value, slots })?;
                self.quiet()?;
            }
            self.wake()?;
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
        self.world.observer.judge(Property::Liveness, seen)
    }

    /// Checks that a read at any node is confirmed. A failed read is retried.
    fn everybody_reads(&mut self) -> Result<(), Violation> {
        for site in 0..self.world.sites.len() {
            // [aux-1] An auxiliary applies nothing, and so has nothing to read.
            let auxiliary = |node: &Node| node.is_auxiliary();
            let spared = self.world.sites[site].node.as_ref().is_some_and(auxiliary);
            if self.absent == Some(site) || spared {
                continue;
            }
            self.world.sites[site].confirmed = None;
            for turn in 0.. {
                if turn == READ_TURNS_MAX {
                    let seen = Err(format!("no read of node {} is confirmed", site + 1));
                    return self.world.observer.judge(Property::Liveness, seen);
                }
                let token = READS_FROM + turn;
                self.apply(&Event::Read { site, token })?;
                self.quiet()?;
                if self.world.sites[site].confirmed.is_some() {
                    break;
                }
                self.wake()?;
            }
        }
        Ok(())
    }

    /// [last-4] Checks that clients that wait for disks are notified on every node that applies
    /// commands, even if they wait for the first time.
    fn everybody_waits_for_disks(&mut self) -> Result<(), Violation> {
        if self.world.sites.iter().any(|site| site.disk.is_damaged()) {
            // A node that cannot read back a slot does not report it as being on disk.
            return Ok(());
        }
        for _ in 0..READ_TURNS_MAX {
            for site in 0..self.world.sites.len() {
                if full(&self.world.sites[site]).is_some() {
                    self.apply(&Event::Last { site })?;
                }
            }
            self.quiet()?;
            let waits =
                |site: &Site| full(site).is_some_and(|node| node.lasting_to() < site.decided_to());
            if !self.world.sites.iter().any(waits) {
                return Ok(());
            }
            self.wake()?;
        }
        let seen = Err("who waits for disks never hears of them".to_owned());
        self.world.observer.judge(Property::Liveness, seen)
    }

    /// Delivers everything in flight, in order. Disk writes and fetches complete at once.
    fn quiet(&mut self) -> Result<(), Violation> {
        loop {
            let mut moved = false;
            for site in 0..self.world.sites.len() {
                let count = self.world.sites[site].disk.waiting();
                if count > 0 {
                    moved = true;
                    self.apply(&Event::Persist { site, count })?;
                }
                for _ in 0..self.world.sites[site].fetches.len() {
                    self.apply(&Event::Fetch { site, found: true })?;
                }
                if !self.world.sites[site].lack.is_empty() {
                    self.apply(&Event::Look { site })?;
                }
                if self.world.sites[site].forgets.is_some() {
                    moved = true;
                    self.apply(&Event::Forget { site })?;
                }
                if let Some((site, to)) = self.snapshot_wanted(site) {
                    moved = true;
                    self.apply(&Event::Trim { site, to })?;
                }
                if let Some(from) = self.snapshot_for(site) {
                    moved = true;
                    self.apply(&Event::Install { site, from })?;
                }
                while !self.world.sites[site].serves.is_empty() {
                    moved = true;
                    self.apply(&Event::Serve { site })?;
                }
            }
            moved |= self.flow()?;
            moved |= self.move_devices()?;
            while self.cursor < self.world.soup.len() {
                let at = self.cursor;
                self.cursor += 1;
                moved = true;
                self.deliveries += 1;
                self.apply(&Event::Deliver { at, bytes: true })?;
                if self.deliveries > DELIVERIES_MAX {
                    let seen = Err("messages breed messages without end".to_owned());
                    self.world.observer.judge(Property::Liveness, seen)?;
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
                self.apply(&Event::Obey { site, whole })?;
                self.apply(&Event::StepEnds { site })?;
            }
            let frames = self.world.frames.len();
            let hole = false;
            self.apply(&Event::GiveSlot { site, whole, hole })?;
            moved |= self.world.frames.len() > frames;
        }
        while self.heard < self.world.frames.len() {
            let frame = self.heard;
            self.heard += 1;
            moved = true;
            for site in 0..self.world.sites.len() {
                let whole = true;
                self.apply(&Event::Hear { site, frame, whole })?;
            }
        }
        for site in 0..self.world.sites.len() {
            if self.world.sites[site].device.has_report() {
                moved = true;
                self.apply(&Event::Told { site })?;
            }
            while !self.world.sites[site].device.tap.is_empty() {
                moved = true;
                let (which, lost) = (0, false);
                self.apply(&Event::Tap { site, which, lost })?;
            }
        }
        Ok(moved)
    }

    /// Delivers all clients' bytes to all nodes, lets leaders propose them, and closes streams
    /// without an owner. Returns whether there was anything to do.
    fn flow(&mut self) -> Result<bool, Violation> {
        let mut moved = false;
        let given: Vec<(StreamName, u64)> = self.world.clients.streams().collect();
        for site in 0..self.world.sites.len() {
            if self.world.sites[site].applied.to() < self.world.decided_to(site) {
                let before = self.world.sites[site].applied.to();
                self.apply(&Event::Apply { site })?;
                moved |= self.world.sites[site].applied.to() > before;
            }
            for (stream, to) in &given {
                let (stream, to) = (*stream, *to);
                let next = self.world.sites[site].applied.table().next_position(stream);
                if next.is_some_and(|next| self.world.sites[site].held_to(stream, next, to) < to) {
                    let from = 0;
                    self.apply(&Event::Carry { site, stream, from, to })?;
                }
                while self.world.may_offer(site, stream) {
                    moved = true;
                    self.apply(&Event::Offer { site, stream, most: 4 })?;
                }
            }
        }
        let Some(site) = self.world.leader() else {
            return Ok(moved);
        };
        let node = self.world.sites[site].node.as_ref();
        let idle = |node: &Node| {
            node.can_propose() && node.leading().is_some_and(|leading| leading.tally.is_empty())
        };
        if node.is_some_and(idle)
            && let Some(stream) = self.world.lost_streams(site).first()
        {
            let (value, slots) = (Value::CloseStream(*stream), 1);
            self.apply(&Event::Propose { site, value, slots })?;
            moved = true;
        }
        Ok(moved)
    }

    /// Returns a node that should take a snapshot, and the end of the slots to cover, if a node
    /// needs a snapshot that no node has. As in a replica, that is the node that has decided most.
    fn snapshot_wanted(&self, site: usize) -> Option<(usize, Slot)> {
        let sites = &self.world.sites;
        let node = sites[site].node.as_ref()?;
        let wants = sites[site].needs.is_some() && node.is_hollow();
        if !wants || self.snapshot_for(site).is_some() {
            return None;
        }
        let to = |at: usize| {
            let other = sites[at].node.as_ref().filter(|other| !other.is_hollow())?;
            let news = other.log_start() < other.decided_to() && !sites[at].failed;
            let useful = node.may_install(other.decided_to(), other.eras());
            (news && useful).then(|| other.decided_to())
        };
        let best = (0..sites.len()).filter_map(|at| Some((to(at)?, at))).max()?;
        Some((best.1, best.0))
    }

    /// Returns a node with a usable snapshot for a node that needs one.
    fn snapshot_for(&self, site: usize) -> Option<usize> {
        let sites = &self.world.sites;
        let node = sites[site].node.as_ref()?;
        sites[site].needs?;
        let helps = |at: &usize| {
            let snapshot = sites[*at].disk.snapshot();
            sites[*at].node.is_some()
                && snapshot.is_some_and(|(to, eras)| node.may_install(*to, eras))
        };
        (0..sites.len()).find(helps)
    }

    /// Advances the time to the next wake-up of any node.
    fn wake(&mut self) -> Result<(), Violation> {
        let now = self.world.now;
        let wakes = self.world.sites.iter().map(|site| site.wake);
        let next = wakes.min().expect("there are nodes");
        if next == NEVER {
            return Ok(());
        }
        let next = next.max(now.plus_us(1));
        for site in 0..self.world.sites.len() {
            if self.world.sites[site].wake <= next {
                self.apply(&Event::Tick { site, at: next })?;
            }
        }
        Ok(())
    }

    fn is_decided(&self, target: Slot, wanted: &Option<Value>) -> bool {
        let to = self.world.observer.chosen_to();
        (target.0..to.0).any(|slot| self.world.observer.chosen(Slot(slot)) == wanted.as_ref())
    }

    /// Returns whether the group has converged: all nodes know the same leader, nothing is
    /// undecided, the ballot is of the era in force, and all nodes have decided everything.
    fn is_level(&self) -> bool {
        let Some(leader) = self.world.leader() else {
            return false;
        };
        let member = self.world.sites[leader].member;
        let Some(node) = self.world.sites[leader].node.as_ref() else {
            return false;
        };
        let Some(leading) = node.leading() else {
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
        let owes = (0..self.world.sites.len()).any(|site| self.world.owes(site).is_some());
        level && !owes && self.world.lost_streams(leader).is_empty()
    }
}
