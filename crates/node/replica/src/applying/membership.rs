//! The group as of the applied slots: its table and its eras. Both are functions of the log, are
//! stored with the service's state, and are part of every snapshot ([snap-1], [member-2]).

use quorate_core::{level::Level, reconfigure::Eras, slot::Slot, value::Value};

use crate::{
    applying::sessions::UnreadableMetadata,
    fields::Fields,
    group::{CommandReply, Group, command::encode_reply},
    ports::service::{MetaChange, Metadata},
    snapshots::eras::{put_eras, take_eras},
};

/// Metadata key of the group in a persistent service, distinct from the keys of sessions.
pub(crate) const GROUP_KEY: &[u8] = b"group";

/// The group's table and eras.
#[derive(Clone, Debug)]
pub(crate) struct Membership {
    founded: (Group, Eras),
    table: Group,
    eras: Eras,
    /// Highest level that this release supports.
    supported_level: Level,
    /// The latest change has not been passed to the service for storage.
    is_unsaved: bool,
    /// Number of events that may have changed the group.
    version: u64,
}

impl Membership {
    pub(crate) fn new(table: Group, eras: Eras) -> Self {
        Self {
            supported_level: Level::NEWEST,
            founded: (table.clone(), eras.clone()),
            table,
            eras,
            is_unsaved: true,
            version: 0,
        }
    }

    pub(crate) fn with_supported_level(self, supports: Level) -> Self {
        Self { supported_level: supports, ..self }
    }

    /// Restores the group from a service's metadata and removes its entry. Metadata without an
    /// entry is from a version in which groups could not change.
    pub(crate) fn restore(&mut self, meta: &mut Metadata) -> Result<(), UnreadableMetadata> {
        self.version += 1;
        let kept = meta.extract_if(.., |(key, _)| key == GROUP_KEY).next();
        let Some((key, value)) = kept else {
            (self.table, self.eras) = self.founded.clone();
            self.is_unsaved = true;
            return Ok(());
        };
        let decoded = decode(&value).filter(|(table, _)| table.level() <= self.supported_level);
        (self.table, self.eras) = decoded.ok_or(UnreadableMetadata { key })?;
        self.is_unsaved = false;
        Ok(())
    }

    pub(crate) fn table(&self) -> &Group {
        &self.table
    }

    pub(crate) fn eras(&self) -> &Eras {
        &self.eras
    }

    /// Returns a number that increases whenever the group may have changed.
    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    /// Executes a group command and appends its encoded reply.
    pub(crate) fn execute(
        &mut self,
        slot: Slot,
        command: &[u8],
        reply: &mut Vec<u8>,
    ) -> CommandReply {
        let done = self.table.execute(slot, command, &self.eras);
        if done.is_ok() {
            self.mark_changed();
        }
        encode_reply(&done, reply);
        done
    }

    /// [era-2] Applies a value decided in the next slot.
    pub(crate) fn apply_decided(&mut self, slot: Slot, value: &Value) {
        if self.eras.apply_decided(slot, value) {
            self.table.apply_eras(slot, &self.eras);
            self.mark_changed();
        }
    }

    /// [level-5] Applies a raise of the feature level. Other values have no effect.
    pub(crate) fn apply_raise(&mut self, value: &Value) {
        let Value::Raise { era, nodes, to } = *value else {
            return;
        };
        if self.table.raise_level(era, nodes, to, &self.eras) {
            self.mark_changed();
        }
    }

    /// [level-8] Returns the reason to refuse stored or decided data of level `level`; `None` if
    /// this release supports the level.
    pub(crate) fn why_unsupported(&self, level: Level) -> Option<String> {
        (level > self.supported_level).then(|| {
            format!(
                "the cluster is at level {level}, and this release supports {} at most: install the release that the \
                 other nodes run",
                self.supported_level
            )
        })
    }

    fn mark_changed(&mut self) {
        self.is_unsaved = true;
        self.version += 1;
    }

    /// Returns the change that the service still has to store, if any.
    pub(crate) fn take_change(&mut self) -> Option<MetaChange> {
        let unsaved = std::mem::take(&mut self.is_unsaved);
        let (key, value) = unsaved.then(|| self.encode_entry())?;
        let value = Some(value);
        Some(MetaChange { key, value })
    }

    /// Encodes the group for a snapshot, the same on all nodes that applied the same slots.
    pub(crate) fn encode_entry(&self) -> (Vec<u8>, Vec<u8>) {
        let table = self.table.encode();
        let length = u32::try_from(table.len()).expect("ids and texts are bounded");
        let mut out = length.to_be_bytes().to_vec();
        out.extend_from_slice(&table);
        put_eras(&self.eras, &mut out);
        (GROUP_KEY.to_vec(), out)
    }
}

pub(crate) fn decode(bytes: &[u8]) -> Option<(Group, Eras)> {
    let mut fields = Fields(bytes);
    let length = usize::try_from(fields.u32()?).ok()?;
    let table = Group::decode(fields.bytes(length)?)?;
    let eras = take_eras(&mut fields)?;
    fields.0.is_empty().then_some((table, eras))
}

#[cfg(test)]
mod tests {
    use quorate_core::{
        class::Class,
        configuration::{Change, Configuration},
        node_id::{Member, NodeId},
    };

    use super::*;
    use crate::group::{Command, MemberRole};

    fn founded() -> Membership {
        let members = [1, 2, 3].map(Member::first);
        let founding = Configuration::majority_of(members, Class::Durable).unwrap();
        let peers = (1..=3).map(|node| (NodeId(node), format!("n{node}:1")));
        Membership::new(Group::founded(peers), Eras::founded(founding))
    }

    /// [snap-1] Table and eras survive encoding as one unit, whatever changes they went through.
    #[test]
    fn membership_round_trips() {
        let mut membership = founded();
        let join = Command::Allocate {
            nonce: Some(7),
            node: None,
            peer: "n4:1".to_owned(),
            role: MemberRole::Learner,
        };
        assert!(membership.execute(Slot(1), &join.encode(), &mut Vec::new()).is_ok());
        let change = Change::Increment(Member::first(4));
        let era = membership.eras().era();
        membership.apply_decided(Slot(2), &Value::Reconfigure { era, change });
        let kept = membership.take_change().unwrap();
        assert_eq!(membership.take_change(), None, "it is kept");
        let mut meta = vec![(kept.key, kept.value.unwrap()), (b"other".to_vec(), vec![])];
        let mut again = founded();
        again.restore(&mut meta).unwrap();
        assert_eq!(meta, [(b"other".to_vec(), vec![])]);
        assert_eq!(again.encode_entry(), membership.encode_entry());
        assert_eq!(again.eras(), membership.eras());
        assert_eq!(again.table(), membership.table());
    }

    #[test]
    fn damaged_bytes_are_refused_and_none_means_as_founded() {
        let mut membership = founded();
        let (key, value) = membership.encode_entry();
        for cut in 0..value.len() {
            let mut meta = vec![(key.clone(), value[..cut].to_vec())];
            assert!(membership.restore(&mut meta).is_err(), "cut at {cut}");
        }
        let before = membership.version();
        membership.restore(&mut Metadata::new()).unwrap();
        assert!(membership.version() > before);
        assert_eq!(membership.encode_entry(), founded().encode_entry());
        assert!(membership.take_change().is_some(), "it is to be kept");
    }
}
