//! This node's device, if it has one. Passes the core's orders to the device's owner, and the
//! device's events to the core ([offload-5]–[offload-19]).

use quorate_core::{
    ballot::Ballot,
    device::{DeviceOrder, DeviceReport},
    node_id::NodeId,
    slot::{Slot, SlotRange},
    time::Time,
    value::Value,
};
use quorate_offload::owner::{Event, LossReason, NotSubmitted, Owner, SlotValue, Start};
use quorate_offload::{
    Encapsulation,
    port::{Connectivity, Device, DeviceShape},
    reason::COUNTERS,
};
use quorate_wire::frame_clients::{DevicePlace, LentName};

use crate::{
    idling::{GroupView, IdlePeriods},
    offers::{Offer, Offers},
    ports::{
        device::{AttachedDevice, DeviceSource, DeviceStatus},
        payload::Payload,
    },
};

/// Time in milliseconds for which a device is left unused after it refused an order or a value.
const REFUSAL_PAUSE_MS: u64 = 1_000;
/// Interval in milliseconds between searches for a device while this node has none.
const SEARCH_INTERVAL_MS: u64 = 5_000;
/// Interval in milliseconds between checks that a device still receives from the network.
const CHECK_INTERVAL_MS: u64 = 500;
/// [offload-9] Time in microseconds after which a silent device whose votes count is abandoned.
///
/// A late device still has its votes: the machine is busy, a virtual machine is paused or migrated,
/// or an operator stopped the device process. Such pauses take seconds. Waiting costs one silent
/// member, and the other members continue. Abandoning a device is permanent, and losing more
/// devices than the loss budget ends the group. So the bound only has to be shorter than an
/// operator's patience with a hung device.
const SILENT_DEVICE_TIMEOUT_US: u64 = 30_000_000;
const LATE_REASON: &str = "the device does not answer";

/// Events from a device, in order.
#[derive(Debug)]
pub(crate) enum DeviceEvent {
    /// A value whose bytes the device holds.
    ValueBytes(Value, SlotRange, Payload),
    /// A report to the core.
    Report(DeviceReport),
    /// Change of the number of slots that the device can hold; 0 if no device is usable.
    Capacity(u64),
    /// [offload-11] A decision that a coordinator counted in this ballot, for nodes without a vote.
    Decision(Ballot, SlotValue),
    /// A value that the device refused, returned so that the core proposes it again.
    Returned(Value),
}

/// A device, its owner and the state of its use.
struct OwnedDevice {
    device: Box<dyn Device + Send>,
    owner: Owner,
    armed_ballot: Option<Ballot>,
    started: Option<(Ballot, Slot)>,
    slot_limit: Slot,
    /// [offload-9] The device was fenced after this process started.
    is_fenced: bool,
    /// The core has been notified that the device may be used.
    is_reported_usable: bool,
    /// The device is not used until this time.
    unused_until: Time,
    is_closed: bool,
    /// [offload-9] Answers of the device are overdue, and the core was notified.
    is_late: bool,
    looks: u64,
    network: NetworkState,
    offers: Offers,
    idling: IdlePeriods,
    /// Frame counts by outcome, summed over the devices before this one.
    refused_before: [u64; COUNTERS],
}

/// State of the device's connection to the network.
struct NetworkState {
    next_check_at: Time,
    /// New name of the interface, if it was renamed.
    renamed_to: Option<String>,
    is_paused: bool,
    /// Why the device was removed from the network; `None` if it was not.
    removal_reason: Option<String>,
}

/// The device of this node, if any, and the search for one.
#[derive(Default)]
pub(crate) struct Devices {
    device: Option<OwnedDevice>,
    events: Vec<Event>,
    status: Option<DeviceStatus>,
    source: Option<Box<dyn DeviceSource>>,
    /// Time of the next search for a device; `None` if no search is pending.
    search_at: Option<Time>,
    /// Number of names assigned to device clients ([offload-22]).
    assigned_name_count: u32,
}

/// Maximum number of names assigned by one process; the next one would repeat the first.
const NAMES_MAX: u32 = 1 << 16;

impl Devices {
    /// Assigns the next name to a device client; `None` once [`NAMES_MAX`] are assigned.
    pub(crate) fn assign_name(&mut self, node: NodeId, boot: u32) -> Option<LentName> {
        let number = self.assigned_name_count;
        let name = LentName::lend(node.0, boot, number).filter(|_| number < NAMES_MAX)?;
        self.assigned_name_count += 1;
        Some(name)
    }

    /// Sets the devices to choose from, and opens the first one that is available.
    pub(crate) fn set_source(&mut self, ladder: Box<dyn DeviceSource>) {
        self.source = Some(ladder);
        self.open_next_device(None);
    }

    fn open_next_device(&mut self, lost: Option<&str>) {
        self.search_at = None;
        let climbed = self.source.as_mut().map(|ladder| ladder.open_device(lost));
        match climbed {
            Some(Ok(lent)) => self.take_ownership(lent),
            Some(Err(why)) => {
                self.status = Some(DeviceStatus {
                    name: "none".to_owned(),
                    unused_reason: Some(why),
                    ..self.take_totals()
                });
            }
            None => {}
        }
    }

    /// Takes the current status, and returns a new one with only the totals over all devices of
    /// this node, which never decrease.
    fn take_totals(&mut self) -> DeviceStatus {
        let DeviceStatus {
            vote_count: votes,
            assigned_slots: given,
            counted_decisions: counted,
            revocation_count: taken_back,
            offered_values: offered,
            oversized_values: outgrown,
            frames_by_outcome: refused,
            ..
        } = self.status.take().unwrap_or_default();
        DeviceStatus {
            vote_count: votes,
            assigned_slots: given,
            counted_decisions: counted,
            revocation_count: taken_back,
            offered_values: offered,
            oversized_values: outgrown,
            frames_by_outcome: refused,
            ..DeviceStatus::default()
        }
    }

    /// Takes ownership of a device, after fencing it from any earlier owner ([offload-9]).
    fn take_ownership(&mut self, lent: AttachedDevice) {
        let AttachedDevice { kind, name, device, mut owner } = lent;
        owner.disarm();
        let shape = device.shape();
        let counts = self.take_totals();
        let refused_before = counts.frames_by_outcome;
        self.status = Some(DeviceStatus {
            kind,
            name,
            slot_capacity: shape.cells,
            frame_value_bytes: shape.room,
            boot: owner.device_boot(),
            ..counts
        });
        self.device = Some(OwnedDevice {
            device,
            owner,
            armed_ballot: None,
            started: None,
            slot_limit: Slot(0),
            is_fenced: false,
            is_reported_usable: false,
            unused_until: Time(0),
            is_closed: false,
            is_late: false,
            looks: 0,
            network: NetworkState {
                next_check_at: Time(0),
                renamed_to: None,
                is_paused: false,
                removal_reason: None,
            },
            offers: Offers::default(),
            idling: IdlePeriods::default(),
            refused_before,
        });
    }

    /// Returns whether this node has no device and never will.
    pub(crate) const fn is_none(&self) -> bool {
        self.device.is_none() && self.source.is_none()
    }

    /// Returns the status of the device; `None` if this node never had one.
    pub(crate) fn status(&self) -> Option<&DeviceStatus> {
        self.status.as_ref()
    }

    /// [offload-9] Returns why a late device keeps this node from promising and voting.
    pub(crate) fn late_reason(&self) -> Option<&'static str> {
        self.device.as_ref().is_some_and(|unit| unit.is_late).then_some(LATE_REASON)
    }

    /// Returns the maximum size in bytes of a batch that fits into a device frame, if there is a
    /// device.
    pub(crate) fn frame_value_bytes(&self) -> Option<usize> {
        let unit = self.device.as_ref()?;
        Some(unit.device.shape().room)
    }

    /// Returns the clients' address of a device that accepts raw frames and assigns slots.
    pub(crate) fn client_address(&self) -> Option<DevicePlace> {
        let unit = self.device.as_ref().filter(|unit| unit.started.is_some())?;
        let DeviceShape { form: Encapsulation::Raw, group, room, device_address: own, .. } =
            unit.device.shape()
        else {
            return None;
        };
        Some(DevicePlace { group, room: u16::try_from(room).ok()?, station_mac: own.mac })
    }

    /// Returns whether the device can accept more values.
    pub(crate) fn has_room(&self) -> bool {
        self.device.as_ref().is_none_or(|unit| unit.started.is_none() || unit.owner.has_room())
    }

    /// Executes an order of the core, which must not be [`DeviceOrder::Submit`].
    pub(crate) fn execute_order(&mut self, order: &DeviceOrder) {
        let Some(unit) = &mut self.device else { return };
        match *order {
            DeviceOrder::Arm { ballot, position, floor } => {
                unit.armed_ballot = Some(ballot);
                unit.owner.arm(ballot, position, floor);
            }
            DeviceOrder::Fence { hint: true, .. } => unit.owner.disarm(),
            DeviceOrder::Fence { .. } => unit.owner.fence(),
            DeviceOrder::RaiseFloor { floor: to } => unit.owner.raise_floor(to, unit.slot_limit),
            DeviceOrder::Start { ballot, first, limit, quorum, members, hint } => {
                unit.started = Some((ballot, first));
                unit.slot_limit = limit;
                unit.owner.start(Start { ballot, first, limit, quorum, members, hint });
            }
            DeviceOrder::AllowSlots { floor, limit } => {
                unit.slot_limit = unit.slot_limit.max(limit);
                unit.owner.raise_floor(floor, unit.slot_limit);
            }
            DeviceOrder::TakeBack { .. } => unit.owner.withdraw_coordinator(),
            DeviceOrder::Stop { .. } => unit.owner.stop(),
            DeviceOrder::QueryNextSlot => {
                unit.looks += 1;
                unit.owner.query_next_slot(unit.looks);
            }
            DeviceOrder::Submit { .. } => {}
        }
    }

    /// Records the size of a value that is about to be proposed. The device is not used while
    /// values arrive that are too long for a frame ([offload-15]).
    pub(crate) fn note_proposed(&mut self, now: Time, bytes: usize) {
        let Some(unit) = &mut self.device else { return };
        if bytes <= unit.device.shape().room {
            return;
        }
        let status = self.status.get_or_insert_default();
        status.oversized_values += 1;
        if now >= unit.unused_until {
            status.unused_reason = Some("batches are longer than its frames carry".to_owned());
        }
        unit.unused_until = unit.unused_until.max(now.plus_ms(REFUSAL_PAUSE_MS));
    }

    /// Submits a value of the core to the device.
    pub(crate) fn submit_value(
        &mut self,
        now: Time,
        value: Value,
        bytes: &[u8],
    ) -> Result<(), NotSubmitted> {
        let Some(unit) = &mut self.device else {
            return Ok(());
        };
        let done = unit.owner.submit(value, bytes);
        if let Err(NotSubmitted::NotOffloadable(_)) = done {
            // [offload-15] Until then, values travel over connections, this one included.
            unit.unused_until = now.plus_ms(REFUSAL_PAUSE_MS);
        }
        done
    }

    /// [offload-15] Offers a value of this node to the coordinator of this ballot's leader, if
    /// frames from it were seen recently. Returns whether the value was offered.
    pub(crate) fn offer_value(&mut self, now: Time, ballot: Ballot, offer: &Offer) -> bool {
        let Some(unit) = self.device.as_mut().filter(|unit| unit.is_usable()) else {
            return false;
        };
        let Offer { value, payload } = offer;
        let bytes = payload.as_deref().unwrap_or_default();
        let offered = unit.is_fenced
            && unit.offers.can_offer(now, ballot)
            && unit.owner.send_unacknowledged(&mut *unit.device, value, bytes).is_ok();
        if offered {
            unit.offers.record_sent(now, offer.clone());
            self.status.get_or_insert_default().offered_values += 1;
        }
        offered
    }

    /// Returns an offered value that was not proposed in time, to be sent over connections instead.
    pub(crate) fn take_late_offer(&mut self, now: Time) -> Option<Offer> {
        self.device.as_mut()?.offers.take_late_offer(now)
    }

    /// Drops the offers, because the leader to which they were made no longer leads.
    pub(crate) fn forget_offers(&mut self) {
        if let Some(unit) = &mut self.device {
            unit.offers.drop_all();
        }
    }

    /// Stops using the device for a clean stop ([offload-8]).
    pub(crate) fn close(&mut self) {
        if let Some(unit) = &mut self.device {
            unit.is_closed = true;
        }
    }

    /// Lets the owner process the device's messages and due work; reports results in order.
    ///
    /// A node without a vote learns decisions that other nodes' devices counted ([offload-11]).
    pub(crate) fn run_turn(
        &mut self,
        now: Time,
        group: &GroupView,
        mut tell: impl FnMut(DeviceEvent),
    ) {
        self.replace_removed_device(now);
        let Some(unit) = &mut self.device else { return };
        let status = self.status.get_or_insert_default();
        unit.check_reception(now, status);
        unit.owner.report_all_decisions(!group.has_vote);
        // [offload-10] If votes are only hints, losing them is harmless.
        unit.owner.set_late_timeout(if group.is_durable { 0 } else { SILENT_DEVICE_TIMEOUT_US });
        unit.owner.turn(now, &mut *unit.device, &mut self.events);
        let mut lost = None;
        for event in self.events.drain(..) {
            if let Some(why) = unit.on_event(now, group, event, status, &mut tell) {
                lost = Some(why);
            }
        }
        if unit.owner.is_late() {
            unit.unused_until = now.plus_ms(REFUSAL_PAUSE_MS);
            status.unused_reason = Some(LATE_REASON.to_owned());
            if !core::mem::replace(&mut unit.is_late, true) {
                tell(DeviceEvent::Report(DeviceReport::Late));
            }
        }
        // A device that answers only now and then is likely to be late again.
        unit.is_late &= now < unit.unused_until;
        let may = unit.is_fenced && unit.is_usable() && now >= unit.unused_until;
        if lost.is_none() && may != unit.is_reported_usable {
            unit.is_reported_usable = may;
            let cells = if may { unit.device.shape().cells } else { 0 };
            tell(DeviceEvent::Capacity(cells.into()));
        }
        status.is_used = unit.is_reported_usable;
        if status.is_used {
            status.unused_reason = None;
        }
        status.remark = unit.describe_trouble(now, group, status);
        status.armed_ballot = unit.armed_ballot;
        status.assigns_from = unit.started.map(|(_, first)| first);
        status.dropped_frames = unit.device.lost_frame_count();
        if let Some(why) = lost {
            let lost_power = match why {
                LossReason::Boot { found } => Some(found),
                _ => None,
            };
            status.unused_reason = Some(format!("the device is lost: {why:?}"));
            (status.is_used, status.armed_ballot, status.assigns_from) = (false, None, None);
            status.remark = None;
            tell(DeviceEvent::Report(DeviceReport::Lost));
            for (value, _) in unit.owner.take_unassigned_values() {
                tell(DeviceEvent::Returned(value));
            }
            self.device = match (self.device.take(), lost_power) {
                // [offload-9] In a durable group the device's votes were hints: this node takes
                // ownership again, and fences the device first.
                (Some(mut unit), Some(found)) => {
                    unit.retake_ownership(now, found);
                    status.boot = unit.owner.device_boot();
                    Some(unit)
                }
                // Another device may work better. If the votes of the lost one counted, no other
                // may be used.
                _ => {
                    self.search_at = Some(now.plus_ms(SEARCH_INTERVAL_MS));
                    None
                }
            };
        }
    }

    /// Replaces a device that was removed from the network, once the core has stopped using it.
    /// Searches for a device at intervals if there is none.
    fn replace_removed_device(&mut self, now: Time) {
        if let Some(unit) = self.device.take_if(|unit| unit.is_released()) {
            let OwnedDevice { device, network: hears, .. } = unit;
            // Free the device's resources before searching for the next one.
            drop(device);
            self.open_next_device(Some(&hears.removal_reason.unwrap_or_default()));
        }
        if self.device.is_some() || self.source.is_none() {
            return;
        }
        let at = *self.search_at.get_or_insert(now.plus_ms(SEARCH_INTERVAL_MS));
        if now >= at {
            self.open_next_device(None);
        }
    }

    /// Returns the time at which a turn is due even without an event.
    pub(crate) fn wake_at(&self) -> Option<Time> {
        let Some(unit) = &self.device else {
            return self.search_at;
        };
        let rests = (!unit.is_reported_usable && unit.is_fenced && unit.is_usable())
            .then_some(unit.unused_until);
        let look = unit.network.removal_reason.is_none().then_some(unit.network.next_check_at);
        [unit.owner.wake_at(), rests, look, unit.offers.wake_at()].into_iter().flatten().min()
    }
}

impl OwnedDevice {
    fn is_usable(&self) -> bool {
        !self.is_closed && !self.network.is_paused && self.network.removal_reason.is_none()
    }

    /// Returns whether the device was removed from the network and no request to it is pending.
    fn is_released(&self) -> bool {
        let is_over = self.network.removal_reason.is_some() && self.is_fenced && !self.is_closed;
        is_over && !self.is_reported_usable && self.armed_ballot.is_none() && self.started.is_none()
    }

    /// Checks periodically whether the device receives from the network.
    fn check_reception(&mut self, now: Time, status: &mut DeviceStatus) {
        if now < self.network.next_check_at || self.network.removal_reason.is_some() {
            return;
        }
        self.network.next_check_at = now.plus_ms(CHECK_INTERVAL_MS);
        let refused = self.device.reason_counts();
        for (all, (before, since)) in
            (status.frames_by_outcome.iter_mut()).zip(self.refused_before.iter().zip(refused))
        {
            // Counters that cannot be read now keep their last value.
            *all = (*all).max(before + since);
        }
        self.network.renamed_to = self.device.renamed_interface();
        let hearing = self.device.connectivity();
        self.network.is_paused = matches!(hearing, Connectivity::Interrupted(_));
        match hearing {
            Connectivity::Connected => {}
            Connectivity::Interrupted(why) => status.unused_reason = Some(why),
            Connectivity::Detached(why) => {
                status.unused_reason = Some(why.clone());
                self.network.removal_reason = Some(why);
            }
        }
    }

    fn describe_trouble(
        &mut self,
        now: Time,
        group: &GroupView,
        status: &DeviceStatus,
    ) -> Option<String> {
        let armed = self.armed_ballot.is_some();
        let idles = self.idling.idle_remark(now, group, (status.is_used, armed));
        let moved = self.network.renamed_to.as_ref();
        let moved = moved.map(|name| format!("its interface is called {name} now"));
        moved.or(idles)
    }

    /// Takes ownership again of a device with boot number `found`, after its power cycle.
    fn retake_ownership(&mut self, now: Time, found: u32) {
        self.owner = self.owner.after_memory_loss(found);
        self.owner.disarm();
        (self.armed_ballot, self.started) = (None, None);
        (self.is_fenced, self.is_reported_usable) = (false, false);
        self.unused_until = now.plus_ms(REFUSAL_PAUSE_MS);
    }

    /// Processes one event. Returns the reason if the device is lost.
    fn on_event(
        &mut self,
        now: Time,
        group: &GroupView,
        event: Event,
        status: &mut DeviceStatus,
        tell: &mut impl FnMut(DeviceEvent),
    ) -> Option<LossReason> {
        match event {
            Event::Armed { ballot } => tell(DeviceEvent::Report(DeviceReport::Armed { ballot })),
            Event::Fenced { ballot: of, mut votes } => {
                self.is_fenced = true;
                if let Some(ballot) = self.armed_ballot.take() {
                    // [offload-8] Votes of another ballot are void: an earlier owner requested
                    // them, and this owner's votes were read out.
                    if of != Some(ballot) {
                        votes.clear();
                    }
                    let votes = votes.into_iter().map(|held| report_bytes(held, tell)).collect();
                    tell(DeviceEvent::Report(DeviceReport::Fenced { ballot, votes }));
                }
            }
            Event::Started { ballot, .. } => {
                tell(DeviceEvent::Report(DeviceReport::Started { ballot }))
            }
            Event::Voted(held) => {
                status.vote_count += 1;
                self.idling.record_vote();
                if let Some(ballot) = self.armed_ballot {
                    self.offers.record_frame(now, ballot, &held.value);
                    let (slot, value) = report_bytes(held, tell);
                    tell(DeviceEvent::Report(DeviceReport::Voted { ballot, slot, value }));
                }
            }
            Event::Assigned(held) => {
                status.assigned_slots += 1;
                if let Some((ballot, _)) = self.started {
                    let (slot, value) = report_bytes(held, tell);
                    tell(DeviceEvent::Report(DeviceReport::Assigned { ballot, slot, value }));
                }
            }
            // [offload-20] Answers no client: only a node that applied all earlier slots may.
            Event::Decided { ballot, slot, value } => {
                // [offload-10] Not counted if votes of devices are hints, whatever frames claim.
                status.counted_decisions += u64::from(!group.is_durable);
                self.offers.record_frame(now, ballot, &value);
                let range = SlotRange::one(slot);
                tell(DeviceEvent::Report(DeviceReport::Counted { ballot, range }));
            }
            Event::OtherDecided { ballot, held } => {
                status.counted_decisions += u64::from(!group.is_durable);
                self.offers.record_frame(now, ballot, &held.value);
                tell(DeviceEvent::Decision(ballot, held));
            }
            Event::Withdrawn {
                ballot,
                next,
                unreported_slots: given,
                slots_without_value: holes,
            } => {
                status.revocation_count += 1;
                self.started = None;
                let first = given.first().map(|held| held.slot);
                let from = first.into_iter().chain(holes.first().copied()).min();
                let from = from.unwrap_or(next);
                let mut rest: Vec<Option<Value>> = Vec::new();
                for held in given {
                    let (slot, value) = report_bytes(held, tell);
                    let at = usize::try_from(slot.0 - from.0).unwrap_or(usize::MAX);
                    // Holes have no value; both lists are ordered and bounded by the cells.
                    rest.resize(at, None);
                    rest.push(Some(value));
                }
                let all = usize::try_from(next.0 - from.0).unwrap_or(usize::MAX);
                rest.resize(all, None);
                tell(DeviceEvent::Report(DeviceReport::TakenBack { ballot, from, assigned: rest }));
                self.return_queued_values(tell);
            }
            Event::StartRefused { ballot, .. } => {
                self.started = None;
                tell(DeviceEvent::Report(DeviceReport::Stopped { ballot }));
                self.return_queued_values(tell);
            }
            Event::Stopped => {
                if let Some((ballot, _)) = self.started.take() {
                    tell(DeviceEvent::Report(DeviceReport::Stopped { ballot }));
                }
                self.return_queued_values(tell);
            }
            Event::NextSlot { next, .. } => {
                tell(DeviceEvent::Report(DeviceReport::NextSlot { slot: next }))
            }
            Event::ArmRefused { reason, .. } => {
                // The order counts as executed: the device is fenced, and is armed later
                // ([offload-5]).
                status.unused_reason = Some(format!("the device refused to be armed: {reason:?}"));
                self.unused_until = now.plus_ms(REFUSAL_PAUSE_MS);
            }
            Event::Lost { why } => return Some(why),
        }
        None
    }

    /// Returns the values that were queued for the device to the core.
    fn return_queued_values(&mut self, tell: &mut impl FnMut(DeviceEvent)) {
        for (value, _) in self.owner.take_unassigned_values() {
            tell(DeviceEvent::Returned(value));
        }
    }
}

/// Reports the bytes of a value that a device has, and returns the value with its slot.
pub(crate) fn report_bytes(held: SlotValue, tell: &mut impl FnMut(DeviceEvent)) -> (Slot, Value) {
    let SlotValue { slot, value, bytes } = held;
    if value.has_bytes() {
        tell(DeviceEvent::ValueBytes(value, SlotRange::one(slot), Payload::new(bytes)));
    }
    (slot, value)
}
