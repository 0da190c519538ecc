//! Delivers datagrams, and interrupts the multicast reception of nodes.

use quorate_core::{
    node_id::{Member, NodeId},
    time::Time,
};
use quorate_packets::endpoint::Destination;
use quorate_packets::plane::{Carrier as By, GroupPath, port::SendOutcome};

use super::{Event, World, name, sides::DatagramState};
use crate::side::PacketEndpoint;

impl World {
    /// Creates the packet plane of a new process, if the run's carrier is packets.
    pub(crate) fn open_packets(&mut self, node: usize, me: Member, boot: u32, cluster: u128) {
        let Some(reach) = DatagramState::group_path(&self.settings.network_conditions) else {
            return;
        };
        let now = self.nodes[node].monotonic_time(self.now);
        let side =
            PacketEndpoint::new(me, boot, cluster, reach, &self.settings.datagram_faults, now);
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
        let (dice, air) = (&mut self.datagram_state.dice, &self.settings.datagram_faults);
        let left = || match dice.chance(air.send_refused_of_1000, 1000) {
            true => dice.pick(&[SendOutcome::Dropped, SendOutcome::Blocked(0)]),
            false => SendOutcome::All,
        };
        let datagrams = packets.take_datagrams(now, left, &mut self.counts.datagram_counts);
        for (to, bytes) in datagrams {
            match to {
                Destination::Node(NodeId(id)) => {
                    let to = usize::try_from(id).map_or(0, |id| id.saturating_sub(1));
                    self.send_datagram(node, to, false, &bytes);
                }
                // The sender also receives a copy, as with the kernel's multicast loopback.
                Destination::Group => {
                    (0..self.nodes.len()).for_each(|to| self.send_datagram(node, to, true, &bytes))
                }
            }
        }
    }

    /// Sends one datagram to one node. A multicast datagram is lost or delayed independently for
    /// each receiver.
    fn send_datagram(&mut self, from: usize, to: usize, by_group: bool, datagram: &[u8]) {
        let (weather, dice) = (self.network.conditions(), &mut self.datagram_state.dice);
        let counts = &mut self.counts.datagram_counts;
        let arrivals =
            self.settings.datagram_faults.draw_deliveries(weather, dice, datagram, counts);
        for (us, bytes) in arrivals {
            let event = Event::DatagramArrives { from, to, is_multicast: by_group, bytes };
            self.schedule_after(us, event);
        }
    }

    /// Delivers a datagram to the node's current process, even if the datagram was sent to an
    /// earlier one.
    pub(super) fn deliver_datagram(
        &mut self,
        from: usize,
        to: usize,
        by_group: bool,
        bytes: Vec<u8>,
    ) {
        let blocked = from != to && self.network.is_blocked(from, to);
        if blocked || by_group && self.datagram_state.lost_reception[to] {
            self.counts.datagram_counts.blocked += 1;
            return;
        }
        let running = self.nodes.get_mut(to).and_then(|node| node.running.as_mut());
        let packets = running.and_then(|running| running.packets.as_mut());
        if packets.is_some_and(|packets| packets.receive_datagram(bytes)) {
            self.schedule_turn(to);
        } else {
            self.counts.datagram_counts.undelivered += 1;
        }
    }

    /// Schedules the next loss of multicast reception, if the run has any.
    pub(super) fn plan_reception_loss(&mut self) {
        let group = DatagramState::group_path(&self.settings.network_conditions)
            == Some(GroupPath::Multicast);
        if let Some(mean_us) =
            self.settings.datagram_faults.reception_loss_interval_us.filter(|_| group)
        {
            let wait = self.datagram_state.dice.interval(mean_us);
            self.schedule_after(wait, Event::LoseReception);
        }
    }

    /// Makes the switch forget that a node is a member of the multicast group.
    pub(super) fn lose_reception(&mut self) {
        self.plan_reception_loss();
        let dice = &mut self.datagram_state.dice;
        let node = dice.index(self.nodes.len());
        let most = dice.pick(&[5_000, 300_000, 3_000_000]);
        let wait = dice.between(1_000, most);
        self.datagram_state.lost_reception[node] = true;
        self.counts.datagram_counts.reception_losses += 1;
        self.trace_line(&name(node), "deaf", format_args!("to the group"));
        self.schedule_after(wait, Event::RestoreReception(node));
    }

    /// Restores the node's multicast reception.
    pub(super) fn restore_reception(&mut self, node: usize) {
        self.datagram_state.lost_reception[node] = false;
        self.trace_line(&name(node), "hears", format_args!("the group"));
    }

    /// Schedules the next change of a plane's transport, if the run has any.
    pub(super) fn plan_transport_change(&mut self) {
        if let Some(mean_us) = self.settings.datagram_faults.transport_change_interval_us {
            let wait = self.datagram_state.dice.interval(mean_us);
            self.schedule_after(wait, Event::ChangeTransport);
        }
    }

    /// [plane-3] Changes a plane's transport at random.
    pub(super) fn change_transport(&mut self) {
        self.plan_transport_change();
        let dice = &mut self.datagram_state.dice;
        let node = dice.index(self.nodes.len());
        let by = dice.pick(&[
            By::TcpConnections,
            By::UnicastDatagrams,
            By::MulticastDatagrams,
            By::Chain,
        ]);
        let now = self.nodes[node].monotonic_time(self.now);
        let running = self.nodes[node].running.as_mut();
        if let Some(side) = running.and_then(|running| running.packets.as_mut()) {
            side.plane().set_carrier(by, now);
            self.trace_line(&name(node), "way", format_args!("{}", by.name()));
            self.schedule_turn(node);
        }
    }

    pub(super) fn clear_network_faults(&mut self) {
        self.settings.datagram_faults.stop();
        self.datagram_state.lost_reception.fill(false);
    }
}
