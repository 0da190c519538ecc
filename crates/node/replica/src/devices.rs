//! This node's device, if it has one. Passes the core's orders to the device's owner, and the
//! device's events to the core ([offload-5]–[offload-19]).

use quorate_core::{
    ballot::Ballot,
    device::{DeviceReport, Order},
    node_id::NodeId,
    slot::{Slot, SlotRange},
    time::Time,
    value::Value,
};
use quorate_offload::owner::{Event, Loss, NotSubmitted, Owner, SlotValue, Start};
use quorate_offload::{
    Form,
    port::{Connectivity, Device, Shape},
    reason::COUNTERS,
};
use quorate_wire::frame_clients::{DevicePlace, Name};

use crate::{
    idling::{Idling, Surroundings},
    offers::{Offer, Offers},
    ports::{
        device::{AttachedDevice, DeviceSource, DeviceStatus},
        payload::Payload,
    },
};

/// Time in milliseconds for which a device is left unused after it refused an order or a value.
const REFUSAL_PAUSE_MS: u64 = 1_000;
/// Interval in milliseconds between searches for a device while this node has none.
const SEARCH_MS: u64 = 5_000;
/// Interval in milliseconds between checks that a device still receives from the network.
const CHECK_INTERVAL_MS: u64 = 500;
/// [offload-9] Time in microseconds after which a silent device whose votes count is abandoned.
///
/// A late device still has its votes: the machine is busy, a virtual machine is paused or migrated,
/// or an operator stopped the device process. Such pauses take seconds. Waiting costs one silent
/// member, and the other members continue. Abandoning a device is permanent, and losing more
/// devices than the loss budget ends the group. So the bound only has to be shorter than an
/// operator's patience with a hung device.
const LATE_US: u64 = 30_000_000;
const LATE_REASON: &str = "the device does not answer";

/// Events from a device, in order.
#[derive(Debug)]
pub(crate) enum DeviceEvent {
    /// A value whose bytes the device holds.
    Bytes(Value, SlotRange, Payload),
    /// A report to the core.
    Word(DeviceReport),
    /// Change of the number of slots that the device can hold; 0 if no device is usable.
    Use(u64),
    /// [offload-11] A decision that a coordinator counted in this ballot, for nodes without a vote.
    Told(Ballot, SlotValue),
    /// A value that the device refused, returned so that the core proposes it again.
    Returned(Value),
}

/// A device, its owner and the state of its use.
struct OwnedDevice {
    device: Box<dyn Device + Send>,
    owner: Owner,
    armed: Option<Ballot>,
    started: Option<(Ballot, Slot)>,
    limit: Slot,
    /// [offload-9] The device was fenced after this process started.
    is_fenced: bool,
    /// The core has been notified that the device may be used.
    is_offered: bool,
    /// The device is not used until this time.
    rests_until: Time,
    is_closed: bool,
    /// [offload-9] Answers of the device are overdue, and the core was notified.
    is_late: bool,
    looks: u64,
    hears: NetworkState,
    offers: Offers,
    idling: Idling,
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
    unit: Option<OwnedDevice>,
    events: Vec<Event>,
    status: Option<DeviceStatus>,
    ladder: Option<Box<dyn DeviceSource>>,
    /// Time of the next search for a device; `None` if no search is pending.
    search_at: Option<Time>,
    /// Number of names assigned to device clients ([offload-22]).
    names_lent: u32,
}

/// Maximum number of names assigned by one process; the next one would repeat the first.
const NAMES_MAX: u32 = 1 << 16;

impl Devices {
    /// Assigns the next name to a device client; `None` once [`NAMES_MAX`] are assigned.
    pub(crate) fn lend_name(&mut self, node: NodeId, boot: u32) -> Option<Name> {
        let number = self.names_lent;
        let name = Name::of(node.0, boot, number).filter(|_| number < NAMES_MAX)?;
        self.names_lent += 1;
        Some(name)
    }

    /// Sets the devices to choose from, and opens the first one that is available.
    pub(crate) fn set_source(&mut self, ladder: Box<dyn DeviceSource>) {
        self.ladder = Some(ladder);
        self.climb(None);
    }

    fn climb(&mut self, lost: Option<&str>) {
        self.search_at = None;
        let climbed = self.ladder.as_mut().map(|ladder| ladder.open_device(lost));
        match climbed {
            Some(Ok(lent)) => self.own_device(lent),
            Some(Err(why)) => {
                self.status = Some(DeviceStatus {
                    name: "none".to_owned(),
                    why: Some(why),
                    ..self.take_totals()
                });
            }
            None => {}
        }
    }

    /// Takes the current status, and returns a new one with only the totals over all devices of
    /// this node, which never decrease.
    fn take_totals(&mut self) -> DeviceStatus {
        let DeviceStatus { votes, given, counted, taken_back, offered, outgrown, refused, .. } =
            self.status.take().unwrap_or_default();
        DeviceStatus {
            votes,
            given,
            counted,
            taken_back,
            offered,
            outgrown,
            refused,
            ..DeviceStatus::default()
        }
    }

    /// Takes ownership of a device, after fencing it from any earlier owner ([offload-9]).
    fn own_device(&mut self, lent: AttachedDevice) {
        let AttachedDevice { kind, name, device, mut owner } = lent;
        owner.disarm();
        let shape = device.shape();
        let counts = self.take_totals();
        let refused_before = counts.refused;
        self.status = Some(DeviceStatus {
            kind,
            name,
            cells: shape.cells,
            room: shape.room,
            boot: owner.device_boot(),
            ..counts
        });
        self.unit = Some(OwnedDevice {
            device,
            owner,
            armed: None,
            started: None,
            limit: Slot(0),
            is_fenced: false,
            is_offered: false,
            rests_until: Time(0),
            is_closed: false,
            is_late: false,
            looks: 0,
            hears: NetworkState {
                next_check_at: Time(0),
                renamed_to: None,
                is_paused: false,
                removal_reason: None,
            },
            offers: Offers::default(),
            idling: Idling::default(),
            refused_before,
        });
    }

    /// Returns whether this node has no device and never will.
    pub(crate) const fn is_none(&self) -> bool {
        self.unit.is_none() && self.ladder.is_none()
    }

    /// Returns the status of the device; `None` if this node never had one.
    pub(crate) fn status(&self) -> Option<&DeviceStatus> {
        self.status.as_ref()
    }

    /// [offload-9] Returns why a late device keeps this node from promising and voting.
    pub(crate) fn late_reason(&self) -> Option<&'static str> {
        self.unit.as_ref().is_some_and(|unit| unit.is_late).then_some(LATE_REASON)
    }

    /// Returns the maximum size in bytes of a batch that fits into a device frame, if there is a
    /// device.
    pub(crate) fn room(&self) -> Option<usize> {
        let unit = self.unit.as_ref()?;
        Some(unit.device.shape().room)
    }

    /// Returns the clients' address of a device that accepts raw frames and assigns slots.
    pub(crate) fn place(&self) -> Option<DevicePlace> {
        let unit = self.unit.as_ref().filter(|unit| unit.started.is_some())?;
        let Shape { form: Form::Raw, group, room, own, .. } = unit.device.shape() else {
            return None;
        };
        Some(DevicePlace { group, room: u16::try_from(room).ok()?, station: own.mac })
    }

    /// Returns whether the device can accept more values.
    pub(crate) fn has_room(&self) -> bool {
        self.unit.as_ref().is_none_or(|unit| unit.started.is_none() || unit.owner.has_room())
    }

    /// Executes an order of the core, which must not be [`Order::Submit`].
    pub(crate) fn execute_order(&mut self, order: &Order) {
        let Some(unit) = &mut self.unit else { return };
        match *order {
            Order::Arm { ballot, position, floor } => {
                unit.armed = Some(ballot);
                unit.owner.arm(ballot, position, floor);
            }
            Order::Fence { hint: true, .. } => unit.owner.disarm(),
            Order::Fence { .. } => unit.owner.fence(),
            Order::Floor { to } => unit.owner.raise_floor(to, unit.limit),
            Order::Start { ballot, first, limit, quorum, members, hint } => {
                unit.started = Some((ballot, first));
                unit.limit = limit;
                unit.owner.start(Start { ballot, first, limit, quorum, members, hint });
            }
            Order::Allow { floor, limit } => {
                unit.limit = unit.limit.max(limit);
                unit.owner.raise_floor(floor, unit.limit);
            }
            Order::TakeBack { .. } => unit.owner.take_back(),
            Order::Stop { .. } => unit.owner.stop(),
            Order::LookNext => {
                unit.looks += 1;
                unit.owner.look_next(unit.looks);
            }
            Order::Submit { .. } => {}
        }
    }

    /// Records the size of a value that is about to be proposed. The device is not used while
    /// values arrive that are too long for a frame ([offload-15]).
    pub(crate) fn note_proposed(&mut self, now: Time, bytes: usize) {
        let Some(unit) = &mut self.unit else { return };
        if bytes <= unit.device.shape().room {
            return;
        }
        let status = self.status.get_or_insert_default();
        status.outgrown += 1;
        if now >= unit.rests_until {
            status.why = Some("batches are longer than its frames carry".to_owned());
        }
        unit.rests_until = unit.rests_until.max(now.plus_ms(REFUSAL_PAUSE_MS));
    }

    /// Submits a value of the core to the device.
    pub(crate) fn submit(
        &mut self,
        now: Time,
        value: Value,
        bytes: &[u8],
    ) -> Result<(), NotSubmitted> {
        let Some(unit) = &mut self.unit else {
            return Ok(());
        };
        let done = unit.owner.submit(value, bytes);
        if let Err(NotSubmitted::NotCarried(_)) = done {
            // [offload-15] Until then, values travel over connections, this one included.
            unit.rests_until = now.plus_ms(REFUSAL_PAUSE_MS);
        }
        done
    }

    /// [offload-15] Offers a value of this node to the coordinator of this ballot's leader, if
    /// frames from it were seen recently. Returns whether the value was offered.
    pub(crate) fn offer(&mut self, now: Time, ballot: Ballot, offer: &Offer) -> bool {
        let Some(unit) = self.unit.as_mut().filter(|unit| unit.may_be_used()) else {
            return false;
        };
        let Offer { value, payload } = offer;
        let bytes = payload.as_deref().unwrap_or_default();
        let offered = unit.is_fenced
            && unit.offers.may_go(now, ballot)
            && unit.owner.offer(&mut *unit.device, value, bytes).is_ok();
        if offered {
            unit.offers.sent(now, offer.clone());
            self.status.get_or_insert_default().offered += 1;
        }
        offered
    }

    /// Returns an offered value that was not proposed in time, to be sent over connections instead.
    pub(crate) fn next_late(&mut self, now: Time) -> Option<Offer> {
        self.unit.as_mut()?.offers.next_late(now)
    }

    /// Drops the offers, because the leader to which they were made no longer leads.
    pub(crate) fn forget_offers(&mut self) {
        if let Some(unit) = &mut self.unit {
            unit.offers.drop_all();
        }
    }

    /// Stops using the device for a clean stop ([offload-8]).
    pub(crate) fn close(&mut self) {
        if let Some(unit) = &mut self.unit {
            unit.is_closed = true;
        }
    }

    /// Lets the owner process the device's messages and due work; reports results in order.
    ///
    /// A node without a vote learns decisions that other nodes' devices counted ([offload-11]).
    pub(crate) fn run_turn(
        &mut self,
        now: Time,
        group: &Surroundings,
        mut tell: impl FnMut(DeviceEvent),
    ) {
        self.step_down(now);
        let Some(unit) = &mut self.unit else { return };
        let status = self.status.get_or_insert_default();
        unit.check_reception(now, status);
        unit.owner.listen(!group.has_vote);
        // [offload-10] If votes are only hints, losing them is harmless.
        unit.owner.set_late_timeout(if group.is_durable { 0 } else { LATE_US });
        unit.owner.turn(now, &mut *unit.device, &mut self.events);
        let mut lost = None;
        for event in self.events.drain(..) {
            if let Some(why) = unit.on_event(now, group, event, status, &mut tell) {
                lost = Some(why);
            }
        }
        if unit.owner.is_late() {
            unit.rests_until = now.plus_ms(REFUSAL_PAUSE_MS);
            status.why = Some(LATE_REASON.to_owned());
            if !core::mem::replace(&mut unit.is_late, true) {
                tell(DeviceEvent::Word(DeviceReport::Late));
            }
        }
        // A device that answers only now and then is likely to be late again.
        unit.is_late &= now < unit.rests_until;
        let may = unit.is_fenced && unit.may_be_used() && now >= unit.rests_until;
        if lost.is_none() && may != unit.is_offered {
            unit.is_offered = may;
            let cells = if may { unit.device.shape().cells } else { 0 };
            tell(DeviceEvent::Use(cells.into()));
        }
        status.used = unit.is_offered;
        if status.used {
            status.why = None;
        }
        status.note = unit.describe_trouble(now, group, status);
        status.armed = unit.armed;
        status.gives_from = unit.started.map(|(_, first)| first);
        status.lost = unit.device.lost();
        if let Some(why) = lost {
            let lost_power = match why {
                Loss::Boot { found } => Some(found),
                _ => None,
            };
            status.why = Some(format!("the device is lost: {why:?}"));
            (status.used, status.armed, status.gives_from) = (false, None, None);
            status.note = None;
            tell(DeviceEvent::Word(DeviceReport::Lost));
            for (value, _) in unit.owner.withdraw() {
                tell(DeviceEvent::Returned(value));
            }
            self.unit = match (self.unit.take(), lost_power) {
                // [offload-9] In a durable group the device's votes were hints: this node takes
                // ownership again, and fences the device first.
                (Some(mut unit), Some(found)) => {
                    unit.own_again(now, found);
                    status.boot = unit.owner.device_boot();
                    Some(unit)
                }
                // Another device may work better. If the votes of the lost one counted, no other
                // may be used.
                _ => {
                    self.search_at = Some(now.plus_ms(SEARCH_MS));
                    None
                }
            };
        }
    }

    /// Replaces a device that was removed from the network, once the core has stopped using it.
    /// Searches for a device at intervals if there is none.
    fn step_down(&mut self, now: Time) {
        if let Some(unit) = self.unit.take_if(|unit| unit.is_left()) {
            let OwnedDevice { device, hears, .. } = unit;
            // Free the device's resources before searching for the next one.
            drop(device);
            self.climb(Some(&hears.removal_reason.unwrap_or_default()));
        }
        if self.unit.is_some() || self.ladder.is_none() {
            return;
        }
        let at = *self.search_at.get_or_insert(now.plus_ms(SEARCH_MS));
        if now >= at {
            self.climb(None);
        }
    }

    /// Returns the time at which a turn is due even without an event.
    pub(crate) fn wake_at(&self) -> Option<Time> {
        let Some(unit) = &self.unit else {
            return self.search_at;
        };
        let rests =
            (!unit.is_offered && unit.is_fenced && unit.may_be_used()).then_some(unit.rests_until);
        let look = unit.hears.removal_reason.is_none().then_some(unit.hears.next_check_at);
        [unit.owner.wake_at(), rests, look, unit.offers.wake_at()].into_iter().flatten().min()
    }
}

impl OwnedDevice {
    fn may_be_used(&self) -> bool {
        !self.is_closed && !self.hears.is_paused && self.hears.removal_reason.is_none()
    }

    /// Returns whether the device was removed from the network and no request to it is pending.
    fn is_left(&self) -> bool {
        let is_over = self.hears.removal_reason.is_some() && self.is_fenced && !self.is_closed;
        is_over && !self.is_offered && self.armed.is_none() && self.started.is_none()
    }

    /// Checks periodically whether the device receives from the network.
    fn check_reception(&mut self, now: Time, status: &mut DeviceStatus) {
        if now < self.hears.next_check_at || self.hears.removal_reason.is_some() {
            return;
        }
        self.hears.next_check_at = now.plus_ms(CHECK_INTERVAL_MS);
        let refused = self.device.refused();
        for (all, (before, since)) in
            (status.refused.iter_mut()).zip(self.refused_before.iter().zip(refused))
        {
            // Counters that cannot be read now keep their last value.
            *all = (*all).max(before + since);
        }
        self.hears.renamed_to = self.device.renamed_interface();
        let hearing = self.device.connectivity();
        self.hears.is_paused = matches!(hearing, Connectivity::Paused(_));
        match hearing {
            Connectivity::Well => {}
            Connectivity::Paused(why) => status.why = Some(why),
            Connectivity::Over(why) => {
                status.why = Some(why.clone());
                self.hears.removal_reason = Some(why);
            }
        }
    }

    fn describe_trouble(
        &mut self,
        now: Time,
        group: &Surroundings,
        status: &DeviceStatus,
    ) -> Option<String> {
        let armed = self.armed.is_some();
        let idles = self.idling.idle_remark(now, group, (status.used, armed));
        let moved = self.hears.renamed_to.as_ref();
        let moved = moved.map(|name| format!("its interface is called {name} now"));
        moved.or(idles)
    }

    /// Takes ownership again of a device with boot number `found`, after its power cycle.
    fn own_again(&mut self, now: Time, found: u32) {
        self.owner = self.owner.after_power(found);
        self.owner.disarm();
        (self.armed, self.started) = (None, None);
        (self.is_fenced, self.is_offered) = (false, false);
        self.rests_until = now.plus_ms(REFUSAL_PAUSE_MS);
    }

    /// Processes one event. Returns the reason if the device is lost.
    fn on_event(
        &mut self,
        now: Time,
        group: &Surroundings,
        event: Event,
        status: &mut DeviceStatus,
        tell: &mut impl FnMut(DeviceEvent),
    ) -> Option<Loss> {
        match event {
            Event::Armed { ballot } => tell(DeviceEvent::Word(DeviceReport::Armed { ballot })),
            Event::Fenced { ballot: of, mut votes } => {
                self.is_fenced = true;
                if let Some(ballot) = self.armed.take() {
                    // [offload-8] Votes of another ballot are void: an earlier owner requested
                    // them, and this owner's votes were read out.
                    if of != Some(ballot) {
                        votes.clear();
                    }
                    let votes = votes.into_iter().map(|held| report_bytes(held, tell)).collect();
                    tell(DeviceEvent::Word(DeviceReport::Fenced { ballot, votes }));
                }
            }
            Event::Started { ballot, .. } => {
                tell(DeviceEvent::Word(DeviceReport::Started { ballot }))
            }
            Event::Voted(held) => {
                status.votes += 1;
                self.idling.voted();
                if let Some(ballot) = self.armed {
                    self.offers.record_frame(now, ballot, &held.value);
                    let (slot, value) = report_bytes(held, tell);
                    tell(DeviceEvent::Word(DeviceReport::Voted { ballot, slot, value }));
                }
            }
            Event::Assigned(held) => {
                status.given += 1;
                if let Some((ballot, _)) = self.started {
                    let (slot, value) = report_bytes(held, tell);
                    tell(DeviceEvent::Word(DeviceReport::Given { ballot, slot, value }));
                }
            }
            // [offload-20] Answers no client: only a node that applied all earlier slots may.
            Event::Decided { ballot, slot, value } => {
                // [offload-10] Not counted if votes of devices are hints, whatever frames claim.
                status.counted += u64::from(!group.is_durable);
                self.offers.record_frame(now, ballot, &value);
                let range = SlotRange::one(slot);
                tell(DeviceEvent::Word(DeviceReport::Counted { ballot, range }));
            }
            Event::OtherDecided { ballot, held } => {
                status.counted += u64::from(!group.is_durable);
                self.offers.record_frame(now, ballot, &held.value);
                tell(DeviceEvent::Told(ballot, held));
            }
            Event::Withdrawn { ballot, next, given, holes } => {
                status.taken_back += 1;
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
                tell(DeviceEvent::Word(DeviceReport::TakenBack { ballot, from, rest }));
                self.return_queued_values(tell);
            }
            Event::StartRefused { ballot, .. } => {
                self.started = None;
                tell(DeviceEvent::Word(DeviceReport::Stopped { ballot }));
                self.return_queued_values(tell);
            }
            Event::Stopped => {
                if let Some((ballot, _)) = self.started.take() {
                    tell(DeviceEvent::Word(DeviceReport::Stopped { ballot }));
                }
                self.return_queued_values(tell);
            }
            Event::Next { next, .. } => tell(DeviceEvent::Word(DeviceReport::Next { slot: next })),
            Event::ArmRefused { reason, .. } => {
                // The order counts as executed: the device is fenced, and is armed later
                // ([offload-5]).
                status.why = Some(format!("the device refused to be armed: {reason:?}"));
                self.rests_until = now.plus_ms(REFUSAL_PAUSE_MS);
            }
            Event::Lost { why } => return Some(why),
        }
        None
    }

    /// Returns the values that were queued for the device to the core.
    fn return_queued_values(&mut self, tell: &mut impl FnMut(DeviceEvent)) {
        for (value, _) in self.owner.withdraw() {
            tell(DeviceEvent::Returned(value));
        }
    }
}

/// Reports the bytes of a value that a device has, and returns the value with its slot.
pub(crate) fn report_bytes(held: SlotValue, tell: &mut impl FnMut(DeviceEvent)) -> (Slot, Value) {
    let SlotValue { slot, value, bytes } = held;
    if value.has_bytes() {
        tell(DeviceEvent::Bytes(value, SlotRange::one(slot), Payload::new(bytes)));
    }
    (slot, value)
}
