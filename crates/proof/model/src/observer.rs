//! Global observer, which sees every record and message, counts independently, and checks the
//! properties.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use quorate_core::{
    ballot::{Ballot, Era},
    configuration::{Change, Configuration},
    invariants::{self, Verdict},
    message::{Message, Phase1b, RingEntry},
    node_id::{Member, NodeId},
    reconfigure::Eras,
    slot::{Slot, SlotRange},
    value::Value,
};

use crate::{claims::Claims, seen::SituationCounts};

/// A property that does not hold in a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    pub property: Property,
    /// Observation that contradicts the property.
    pub observation: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.property.name(), self.observation)
    }
}

macro_rules! properties {
    ($($(#[$doc:meta])* $name:ident = $text:literal,)*) => {
        /// Properties that can be checked.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Property { $($(#[$doc])* $name,)* }

        impl Property {
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// Returns the name used on command lines and in mutants.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }
        }
    };
}

properties! {
    /// Each slot has at most one chosen value, and all nodes that decide it decide the same one.
    Agreement = "agreement",
    /// A value is chosen before any node treats it as decided.
    DecidedIsChosen = "decided-is-chosen",
    /// Slots are decided in order.
    DecidedInOrder = "decided-in-order",
    /// If a restarted node finds a value in its log as decided, the value was chosen.
    Recovery = "recovery",
    /// A promise never decreases, and no vote contradicts a promise.
    Promise = "promise",
    /// A promise reports every earlier vote.
    Report = "report",
    /// A ballot belongs to one process and has one value per slot.
    Ballot = "ballot",
    /// No statement is sent before its record has reached the durability class that the statement
    /// claims.
    Durable = "durable",
    /// Eras begin in order.
    Eras = "eras",
    /// A read sees everything that was known to be decided when it was requested.
    Reads = "reads",
    /// A read under a lease sees everything that was known to be decided when it was requested.
    LeasedReads = "leased-reads",
    /// Ring entries are forwarded exactly as their member released them.
    Relayed = "relayed",
    /// No node votes for or decides a value without its bytes.
    Bytes = "bytes",
    /// No node raises an alarm, which only a broken rule can cause.
    Alarm = "alarm",
    /// No assertion of the core fails.
    Assertion = "assertion",
    /// Every phase-1 quorum includes a holder of every chosen value.
    Holders = "holders",
    /// The output of a stream is a prefix of its input, is the same on every node, and is never
    /// revoked.
    Streams = "streams",
    /// The group's time never goes back, even across leaders.
    Time = "time",
    /// A leader inherits no new values.
    Inheritance = "inheritance",
    /// Values reported to clients as durable are on the disks of a quorum.
    Lasting = "lasting",
    /// A quorum has voted for each value that was reported to clients as being in memory. The value
    /// is decided unless one of those members loses its memory.
    Early = "early",
    /// After faults end, the group makes progress.
    Liveness = "liveness",
}

impl Property {
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|p| p.name() == name)
    }
}

/// Members that voted for one value in one ballot.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct BallotVoters {
    ballot: Ballot,
    value: Value,
    voters: Vec<Member>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct SlotView {
    ballot_voters: Vec<BallotVoters>,
    chosen: Option<Value>,
    /// Value decided in the slot, according to the first node that decided it.
    decided: Option<Value>,
}

/// Returns whether `value` is a reconfiguration, of any era.
fn is_change(value: &Value) -> bool {
    matches!(value, Value::Reconfigure { .. })
}

/// Set of properties to check, as bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WatchedProperties(u32);

impl WatchedProperties {
    pub const ALL: Self = Self(u32::MAX);

    pub fn only(properties: &[Property]) -> Self {
        Self(properties.iter().fold(0, |bits, p| bits | 1 << *p as u32))
    }

    pub fn contains(self, property: Property) -> bool {
        self.0 & (1 << property as u32) != 0
    }
}

/// History of a run, observed on all nodes at once.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Observer {
    watched: WatchedProperties,
    slots: Vec<SlotView>,
    /// Every slot below this one has a chosen value. The eras follow from these values.
    chosen_to: Slot,
    eras: Eras,
    /// Configuration of each era, and the first slot to which it applies.
    era_starts: Vec<(Slot, Configuration)>,
    proposed_values: BTreeMap<(Ballot, Slot), Value>,
    ballot_processes: BTreeMap<Ballot, u64>,
    /// Highest ballot that each member reported as promised.
    reported_promises: BTreeMap<Member, Ballot>,
    /// Entries that members released on a ring.
    released_entries: BTreeSet<(Ballot, RingEntry)>,
    /// Slot below which some node knew every slot to be decided.
    known_decided_to: Slot,
    situations: SituationCounts,
    /// Proposer of the reconfiguration that began the newest era.
    last_change_proposer: Option<NodeId>,
    /// Notifications to clients about values in memory; `None` if no client requests them.
    memory_claims: Option<Claims>,
}

impl Observer {
    pub fn new(founding: &Configuration, watched: WatchedProperties) -> Self {
        Self {
            watched,
            slots: Vec::new(),
            chosen_to: Slot::FIRST,
            eras: Eras::founded(founding.clone()),
            era_starts: vec![(Slot::FIRST, founding.clone())],
            proposed_values: BTreeMap::new(),
            ballot_processes: BTreeMap::new(),
            reported_promises: BTreeMap::new(),
            released_entries: BTreeSet::new(),
            known_decided_to: Slot::FIRST,
            situations: SituationCounts::default(),
            last_change_proposer: None,
            memory_claims: None,
        }
    }

    /// Prepares for clients that request notifications about values in memory.
    pub(crate) fn expect_claims(&mut self) {
        self.memory_claims = Some(Claims::default());
    }

    /// [less-4] Records that a member lost its memory. `has` returns whether a vote is on its disk.
    pub(crate) fn record_loss(&mut self, member: Member, has: impl Fn(Ballot, Slot) -> bool) {
        if let Some(claims) = &mut self.memory_claims {
            claims.record_loss(member, has);
        }
    }

    /// [less-2] Checks a notification to a client that every slot in `from..to` is in memory at a
    /// quorum that voted in this ballot. The client's node has decided everything below `from`,
    /// which led to these eras.
    pub(crate) fn check_memory_claims(
        &mut self,
        ballot: Ballot,
        from: Slot,
        to: Slot,
        mut eras: Eras,
    ) -> Result<(), Violation> {
        let Some(claims) = &mut self.memory_claims else {
            return Ok(());
        };
        for slot in (from.0..to.0).map(Slot) {
            let told = claims.record_notification(slot, ballot);
            let by = told.as_ref().map_or(&[][..], |(_, by)| by);
            // [decide-1] The configuration for a slot follows from the slots below it. Those are
            // decided, or about to be decided in this ballot.
            if !invariants::is_chosen(eras.current(), eras.era(), ballot, by) {
                let seen = format!(
                    "a client hears that slot {slot} is in memory at a quorum; in ballot {ballot} {} members voted",
                    by.len()
                );
                return self.to_violation(Property::Early, Err(seen));
            }
            if let Some((value, _)) = told {
                eras.apply_decided(slot, &value);
            }
            self.situations.memory_notifications += 1;
        }
        let slots = (from.0..to.0.min(self.chosen_to.0)).map(Slot);
        slots.into_iter().try_for_each(|slot| self.check_claims_hold(slot))
    }

    /// [less-4] Checks that a chosen slot has the value reported to clients, unless one of the
    /// reported voters lost its vote.
    fn check_claims_hold(&self, slot: Slot) -> Result<(), Violation> {
        let (Some(claims), Some(chosen)) = (&self.memory_claims, self.chosen_value(slot)) else {
            return Ok(());
        };
        let era = self.era_starts.iter().rposition(|(from, _)| *from <= slot);
        let era = era.expect("era 0 begins at the first slot");
        let configuration = &self.era_starts[era].1;
        let era = Era(u32::try_from(era).expect("eras of a model are few"));
        for (ballot, value, kept) in claims.notifications_for(slot) {
            if value != *chosen && invariants::is_chosen(configuration, era, ballot, &kept) {
                let seen = format!(
                    "slot {slot}: chosen {chosen}; a quorum has {value} in memory, voted for in ballot {ballot}, and clients know"
                );
                return self.to_violation(Property::Early, Err(seen));
            }
        }
        Ok(())
    }

    /// Turns a verdict into a violation, if the property is watched.
    pub fn to_violation(&self, property: Property, verdict: Verdict) -> Result<(), Violation> {
        match verdict {
            Err(seen) if self.watched.contains(property) => {
                Err(Violation { property, observation: seen })
            }
            Ok(()) | Err(_) => Ok(()),
        }
    }

    pub fn chosen_to(&self) -> Slot {
        self.chosen_to
    }

    pub fn chosen_value(&self, slot: Slot) -> Option<&Value> {
        self.view(slot).and_then(|view| view.chosen.as_ref())
    }

    /// Returns the era that follows from the chosen prefix.
    pub fn era(&self) -> Era {
        self.eras.era()
    }

    pub fn configuration(&self) -> &Configuration {
        self.eras.current()
    }

    /// Returns the eras that follow from the chosen prefix.
    pub fn eras(&self) -> &Eras {
        &self.eras
    }

    pub fn known_decided_to(&self) -> Slot {
        self.known_decided_to
    }

    fn view(&self, slot: Slot) -> Option<&SlotView> {
        self.slots.get(usize::try_from(slot.0 - 1).ok()?)
    }

    fn view_mut(&mut self, slot: Slot) -> &mut SlotView {
        let at = usize::try_from(slot.0 - 1).expect("slots of a model are few");
        if self.slots.len() <= at {
            self.slots.resize_with(at + 1, SlotView::default);
        }
        &mut self.slots[at]
    }

    /// Records a vote that has reached the class required in this group.
    pub fn record_vote(
        &mut self,
        member: Member,
        ballot: Ballot,
        range: SlotRange,
        value: Value,
    ) -> Result<(), Violation> {
        for slot in (range.from.0..range.to.0).map(Slot) {
            let bins = &mut self.view_mut(slot).ballot_voters;
            let same = |bin: &&mut BallotVoters| bin.ballot == ballot && bin.value == value;
            match bins.iter_mut().find(same) {
                Some(bin) if bin.voters.contains(&member) => {}
                Some(bin) => bin.voters.push(member),
                None => bins.push(BallotVoters { ballot, value, voters: vec![member] }),
            }
        }
        self.check_newly_chosen(range)
    }

    /// Checks the values that become chosen because of new votes in `range`.
    fn check_newly_chosen(&mut self, range: SlotRange) -> Result<(), Violation> {
        for slot in (range.from.0..range.to.0.min(self.chosen_to.0)).map(Slot) {
            self.choose_slot(slot)?;
        }
        // [decide-1] A slot is checked once everything below it is chosen.
        while self.view(self.chosen_to).is_some() {
            let slot = self.chosen_to;
            self.choose_slot(slot)?;
            let Some(value) = self.chosen_value(slot).copied() else {
                break;
            };
            self.chosen_to = slot.next();
            if self.eras.apply_decided(slot, &value) {
                self.era_starts.push((slot.next(), self.eras.current().clone()));
                self.count_change(slot, &value);
            }
        }
        Ok(())
    }

    /// Counts the situations in which a chosen value began an era.
    fn count_change(&mut self, slot: Slot, value: &Value) {
        let Value::Reconfigure { change, .. } = value else {
            return;
        };
        match change {
            Change::Multiply(_) | Change::Divide(_) => self.situations.scaled_eras += 1,
            Change::Increment(member) if member.incarnation.0 > 0 => {
                self.situations.readmitted_nodes += 1
            }
            _ => {}
        }
        let bins = self.view(slot).map_or(&[][..], |view| &view.ballot_voters);
        let by = bins.iter().filter(|bin| bin.value == *value);
        let by = by.map(|bin| bin.ballot).max().map(|ballot| ballot.node);
        let another = self.last_change_proposer.is_some() && by != self.last_change_proposer;
        self.situations.changes_by_another_leader += u64::from(another);
        self.last_change_proposer = by;
    }

    /// Returns whether any reconfiguration has votes but is not chosen.
    pub(crate) fn has_open_change(&self) -> bool {
        let open = self.slots.iter().filter(|view| view.chosen.is_none());
        open.flat_map(|view| &view.ballot_voters).any(|bin| is_change(&bin.value))
    }

    pub(crate) fn situations(&self) -> SituationCounts {
        self.situations
    }

    fn choose_slot(&mut self, slot: Slot) -> Result<(), Violation> {
        let era = self.era_starts.iter().rposition(|(from, _)| *from <= slot);
        let era = era.expect("era 0 begins at the first slot");
        let configuration = &self.era_starts[era].1;
        let era = Era(u32::try_from(era).expect("eras of a model are few"));
        let view = self.view(slot).expect("only slots with votes are judged");
        let is_chosen = |bin: &&BallotVoters| {
            invariants::is_chosen(configuration, era, bin.ballot, &bin.voters)
        };
        let chosen: Vec<Value> =
            view.ballot_voters.iter().filter(is_chosen).map(|b| b.value).collect();
        for value in chosen {
            let known = self.view_mut(slot).chosen.get_or_insert(value);
            let verdict = invariants::agreement(slot, known, &value);
            self.to_violation(Property::Agreement, verdict)?;
        }
        self.check_claims_hold(slot)
    }

    /// Checks slots that a node reported as decided.
    pub fn check_decided(&mut self, range: SlotRange, value: Value) -> Result<(), Violation> {
        for slot in (range.from.0..range.to.0).map(Slot) {
            let known = self.view_mut(slot).decided.get_or_insert(value);
            let verdict = invariants::agreement(slot, known, &value);
            self.to_violation(Property::Agreement, verdict)?;
            let verdict = invariants::decided_is_chosen(slot, self.chosen_value(slot), &value);
            self.to_violation(Property::DecidedIsChosen, verdict)?;
        }
        self.known_decided_to = self.known_decided_to.max(range.to);
        Ok(())
    }

    /// Checks a value that a node found in its log as decided.
    pub fn check_recovered(&self, slot: Slot, value: &Value) -> Result<(), Violation> {
        let verdict = invariants::decided_is_chosen(slot, self.chosen_value(slot), value);
        self.to_violation(Property::Recovery, verdict)
    }

    /// Checks a vote that a node casts. `log_promised` is the highest promise among its earlier
    /// records.
    pub fn check_cast(
        &mut self,
        member: Member,
        log_promised: Ballot,
        ballot: Ballot,
        range: SlotRange,
        value: Value,
    ) -> Result<(), Violation> {
        let told = self.reported_promises.get(&member).copied().unwrap_or_default();
        let verdict = invariants::vote_respects_promise(log_promised.max(told), ballot);
        self.to_violation(Property::Promise, verdict)?;
        if let Some(claims) = &mut self.memory_claims {
            claims.record_vote(member, ballot, range, value);
        }
        self.bind_value(ballot, range, value)
    }

    /// Returns whether `value` was proposed in `slot`, in any ballot.
    pub(crate) fn was_proposed(&self, slot: Slot, value: &Value) -> bool {
        let mut all = self.proposed_values.iter();
        all.any(|((_, other), known)| *other == slot && known == value)
    }

    /// [ballot-2] Binds slots to a value in a ballot, and checks that no other value was bound.
    fn bind_value(
        &mut self,
        ballot: Ballot,
        range: SlotRange,
        value: Value,
    ) -> Result<(), Violation> {
        for slot in (range.from.0..range.to.0).map(Slot) {
            let known = *self.proposed_values.entry((ballot, slot)).or_insert(value);
            let verdict = invariants::one_value_per_ballot(ballot, slot, &known, &value);
            self.to_violation(Property::Ballot, verdict)?;
        }
        Ok(())
    }

    /// Checks a message that process number `process` of `member` sends: its ballot, if it is the
    /// member's own, and the era and value of a proposal.
    pub fn check_message(
        &mut self,
        member: Member,
        process: u64,
        message: &Message,
    ) -> Result<(), Violation> {
        let own = match message {
            Message::Phase1a { ballot, .. } => Some(*ballot),
            Message::Phase2a(m) => {
                let begun = self.era_starts.get(m.ballot.era.0 as usize).map(|(from, _)| *from);
                let from = m.range.from;
                let verdict = invariants::proposal_is_behind_its_era(m.ballot, from, begun);
                self.to_violation(Property::Eras, verdict)?;
                self.bind_value(m.ballot, m.range, m.value)?;
                Some(m.ballot)
            }
            Message::Heartbeat(m) => Some(m.ballot),
            _ => None,
        };
        if let Some(ballot) = own.filter(|ballot| ballot.node == member.node) {
            let known = *self.ballot_processes.entry(ballot).or_insert(process);
            let verdict = invariants::ballot_is_not_reused(ballot, known, process);
            self.to_violation(Property::Ballot, verdict)?;
        }
        Ok(())
    }

    /// Records an entry that a member released on a ring.
    pub(crate) fn record_release(&mut self, ballot: Ballot, entry: RingEntry) {
        self.released_entries.insert((ballot, entry));
        self.situations.ring_votes += 1;
    }

    /// Checks a ring entry that a member forwards.
    pub(crate) fn check_relay(
        &mut self,
        ballot: Ballot,
        entry: &RingEntry,
    ) -> Result<(), Violation> {
        self.situations.relayed_votes += 1;
        let known = self.released_entries.contains(&(ballot, *entry));
        let verdict = if known {
            Ok(())
        } else {
            Err(format!("no member released {entry:?} in ballot {ballot}"))
        };
        self.to_violation(Property::Relayed, verdict)
    }

    /// Checks a promise that is being sent. `cast` holds the member's highest vote in each slot.
    pub fn check_promise(
        &mut self,
        member: Member,
        promise: &Phase1b,
        cast: &BTreeMap<Slot, (Ballot, Value)>,
    ) -> Result<(), Violation> {
        let told = self.reported_promises.entry(member).or_default();
        *told = (*told).max(promise.ballot);
        for (slot, (ballot, value)) in cast {
            let verdict = invariants::promise_is_complete(promise, *slot, *ballot, value);
            self.to_violation(Property::Report, verdict)?;
        }
        Ok(())
    }

    /// Checks that a restarted member still has its promise.
    pub fn check_restarted(&self, member: Member, promised: Ballot) -> Result<(), Violation> {
        let told = self.reported_promises.get(&member).copied().unwrap_or_default();
        let verdict = invariants::promise_is_kept(told, promised);
        self.to_violation(Property::Promise, verdict)
    }
}
