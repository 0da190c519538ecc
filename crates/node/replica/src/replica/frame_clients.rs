//! Serves requests from device clients.

use quorate_core::{
    effect::Role,
    node_id::NodeId,
    record::Class,
    value::{BatchName, Value},
};
use quorate_log::disk::Disk;
use quorate_wire::{
    checksum,
    frame_clients::{LENT_NAME_BIT, LentName, NodePosition, REGISTRATION_NUMBER},
};

use super::requests::Requester;
use crate::ports::{
    frame_clients::FrameClients, front::Failure, payload::Payload, service::StateMachine,
};

impl<D: Disk, S: StateMachine> FrameClients for Requester<'_, D, S> {
    fn assign_name(&mut self) -> Result<LentName, Failure> {
        let replica = &mut *self.replica;
        replica.check_serves_clients()?;
        let own = replica.spine.identity;
        replica.devices.assign_name(own.member.node, own.boot).ok_or(Failure::Unavailable)
    }

    fn node_position(&self, name: LentName) -> NodePosition {
        let replica = &*self.replica;
        let node = replica.spine.node();
        let leads = node.role() == Role::Leader;
        // [offload-10] If votes of devices are hints, their decisions do not count.
        let counts = node.configuration().class() == Class::Volatile;
        let place = replica.devices.client_address().filter(|_| leads && counts);
        let sessions = replica.spine.applying.sessions();
        let session = sessions.next_batch(NodeId(name.origin), name.boot);
        let (session, next) = session.unwrap_or_default();
        NodePosition {
            cluster: replica.spine.identity.cluster,
            is_leader: leads,
            device_place: place,
            era: node.era().0,
            applied_to: replica.spine.applying.applied_to().0,
            session_slot: session,
            next,
        }
    }

    fn register_session(&mut self, name: LentName) -> Result<(), Failure> {
        let value = Value::RegisterSession {
            origin: NodeId(name.origin),
            boot: name.boot,
            number: REGISTRATION_NUMBER,
        };
        self.take_lent(name, value, &[])
    }

    fn propose_batch(&mut self, name: LentName, counter: u64, bytes: &[u8]) -> Result<(), Failure> {
        let length = u32::try_from(bytes.len()).map_err(|_| Failure::TooBig)?;
        let value = Value::Batch(BatchName {
            origin: NodeId(name.origin),
            boot: name.boot,
            counter,
            length,
            checksum: checksum(bytes),
        });
        self.take_lent(name, value, bytes)
    }
}

impl<D: Disk, S: StateMachine> Requester<'_, D, S> {
    /// [offload-24] Accepts a value under an assigned name, in the same way as one forwarded by a
    /// node.
    fn take_lent(&mut self, name: LentName, value: Value, bytes: &[u8]) -> Result<(), Failure> {
        let replica = &mut *self.replica;
        replica.check_serves_clients()?;
        if name.origin & LENT_NAME_BIT == 0 {
            return Err(Failure::Unavailable);
        }
        if replica.spine.node().role() != Role::Leader {
            return Err(Failure::NoQuorum);
        }
        if replica.spine.proposing.has_pending(&value)
            || replica.spine.is_already_executed(&value, bytes)
        {
            replica.spine.counters.forwards_repeated += 1;
            return Ok(());
        }
        let payload = value.has_bytes().then(|| Payload::new(bytes.to_vec()));
        if !replica.spine.proposing.take_forwarded(value, payload) {
            return Err(Failure::Busy);
        }
        replica.spine.counters.forwards_taken += 1;
        Ok(())
    }
}
