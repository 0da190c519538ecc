//! Delivers datagrams, and interrupts the multicast reception of nodes.

use quorate_core::{
    node_id::{Member, NodeId},
    time::Time,
};
use quorate_packets::endpoint::Destination;
use quorate_packets::plane::{Carrier as By, GroupPath, port::SendOutcome};

use super::{Event, World, name, sides::Flights};
use crate::side::PacketEndpoint;

impl World {
    /// Creates the packet plane of a new process, if the run's carrier is packets.
    pub(crate) fn open_packets(&mut self, node: usize, me: Member, boot: u32, cluster: u128) {
        let Some(reach) = Flights::group_path(&self.settings.weather) else {
            return;
        };
        let now = self.nodes[node].time(self.now);
        let side = PacketEndpoint::new(me, boot, cluster, reach, &self.settings.air, now);
        if let Some(running) = &mut self.nodes[node].running {
            running.packets = Some(side);
        }
    }

    /// Sends a plane's datagrams into the network.
    pub(super) fn send_datagrams(&mut self, node: usize, now: Time) {
        let running = self.nodes[node].running.as_mut();
        let Some(packets) = running.and_then(|running| running.packets.as_mut()) else {
            return;
        };
        let (dice, air) = (&mut self.flights.dice, &self.settings.air);
        let left = || match dice.chance(air.refused_of_1000, 1000) {
            true => dice.pick(&[SendOutcome::Dropped, SendOutcome::Blocked(0)]),
            false => SendOutcome::All,
        };
        let datagrams = packets.take_datagrams(now, left, &mut self.counts.packets);
        for (to, bytes) in datagrams {
            match to {
                Destination::Node(NodeId(id)) => {
                    let to = usize::try_from(id).map_or(0, |id| id.saturating_sub(1));
                    self.fly(node, to, false, &bytes);
                }
                // The sender also receives a copy, as with the kernel's multicast loopback.
                Destination::Group => {
                    (0..self.nodes.len()).for_each(|to| self.fly(node, to, true, &bytes))
                }
            }
        }
    }

    /// Sends one datagram to one node. A multicast datagram is lost or delayed independently for
    /// each receiver.
    fn fly(&mut self, from: usize, to: usize, by_group: bool, datagram: &[u8]) {
        let (weather, dice) = (self.network.weather(), &mut self.flights.dice);
        let counts = &mut self.counts.packets;
        let arrivals = self.settings.air.fly(weather, dice, datagram, counts);
        for (us, bytes) in arrivals {
            let event = Event::Datagram { from, to, by_group, bytes };
            self.schedule_after(us, event);
        }
    }

    /// Delivers a datagram to the node's current process, even if the datagram was sent to an
    /// earlier one.
    pub(super) fn datagram(&mut self, from: usize, to: usize, by_group: bool, bytes: Vec<u8>) {
        let blocked = from != to && self.network.is_blocked(from, to);
        if blocked || by_group && self.flights.deaf[to] {
            self.counts.packets.blocked += 1;
            return;
        }
        let running = self.nodes.get_mut(to).and_then(|node| node.running.as_mut());
        let packets = running.and_then(|running| running.packets.as_mut());
        if packets.is_some_and(|packets| packets.arrive(bytes)) {
            self.schedule_turn(to);
        } else {
            self.counts.packets.unheard += 1;
        }
    }

    /// Schedules the next loss of multicast reception, if the run has any.
    pub(super) fn plan_deaf(&mut self) {
        let group = Flights::group_path(&self.settings.weather) == Some(GroupPath::Group);
        if let Some(mean_us) = self.settings.air.deaf_us.filter(|_| group) {
            let wait = self.flights.dice.interval(mean_us);
            self.schedule_after(wait, Event::Deaf);
        }
    }

    /// Makes the switch forget that a node is a member of the multicast group.
    pub(super) fn deafen(&mut self) {
        self.plan_deaf();
        let dice = &mut self.flights.dice;
        let node = dice.index(self.nodes.len());
        let most = dice.pick(&[5_000, 300_000, 3_000_000]);
        let wait = dice.between(1_000, most);
        self.flights.deaf[node] = true;
        self.counts.packets.deaf += 1;
        self.line(&name(node), "deaf", format_args!("to the group"));
        self.schedule_after(wait, Event::Hears(node));
    }

    /// Restores the node's multicast reception.
    pub(super) fn restore_reception(&mut self, node: usize) {
        self.flights.deaf[node] = false;
        self.line(&name(node), "hears", format_args!("the group"));
    }

    /// Schedules the next change of a plane's transport, if the run has any.
    pub(super) fn plan_way(&mut self) {
        if let Some(mean_us) = self.settings.air.changes_us {
            let wait = self.flights.dice.interval(mean_us);
            self.schedule_after(wait, Event::Way);
        }
    }

    /// [plane-3] Changes a plane's transport at random.
    pub(super) fn take_another_way(&mut self) {
        self.plan_way();
        let dice = &mut self.flights.dice;
        let node = dice.index(self.nodes.len());
        let by = dice.pick(&[By::Connections, By::Each, By::Group, By::Chain]);
        let now = self.nodes[node].time(self.now);
        let running = self.nodes[node].running.as_mut();
        if let Some(side) = running.and_then(|running| running.packets.as_mut()) {
            side.plane().force(by, now);
            self.line(&name(node), "way", format_args!("{}", by.name()));
            self.schedule_turn(node);
        }
    }

    pub(super) fn clear_network_faults(&mut self) {
        self.settings.air.calm_down();
        self.flights.deaf.fill(false);
    }
}
