//! Member alarms, part of the replicated state. While any member has a NOSPACE alarm, the data may
//! not grow.

use std::ops::ControlFlow;

use bytes::Bytes;

use super::{
    base::Mvcc,
    layout::{alarm_place, alarms_end, parse_alarm},
};
use crate::{
    proto::etcdserverpb::{AlarmMember, AlarmType},
    refusal::Refusal,
};

/// Maximum number of raised alarms.
const ALARMS_MAX: usize = 1000;

impl Mvcc {
    /// Returns the raised alarms of a kind, or of all kinds.
    pub fn alarms(&self, kind: AlarmType) -> Vec<AlarmMember> {
        let mut alarms = Vec::new();
        let from = match kind {
            AlarmType::None => alarm_place(0, 0),
            kind => alarm_place(kind as u8, 0),
        };
        self.store.scan(&from, &alarms_end(), &mut |place, _| {
            if let Some((of, member)) = parse_alarm(place) {
                if kind != AlarmType::None && i32::from(of) != i32::from(kind) {
                    return ControlFlow::Break(());
                }
                alarms.push(AlarmMember { member_id: member, alarm: of.into() });
            }
            ControlFlow::Continue(())
        });
        alarms
    }

    /// Returns whether no alarm for lack of space is raised. Cached, because every put checks it.
    pub const fn has_space(&self) -> bool {
        !self.lacks_space
    }

    /// Returns whether the store has an alarm for a lack of space.
    pub(super) fn has_alarm_of_space(&self) -> bool {
        let (from, to) = (alarm_place(NO_SPACE, 0), alarm_place(NO_SPACE + 1, 0));
        self.store.first(&from, &to).is_some()
    }

    /// Raises an alarm and returns it. Fails if too many are raised.
    pub fn raise_alarm(
        &mut self,
        kind: AlarmType,
        member: u64,
    ) -> Result<Vec<AlarmMember>, Refusal> {
        if kind != AlarmType::None {
            let place = alarm_place(kind as u8, member);
            let is_new = self.store.get(&place).is_none();
            if is_new && self.alarms(AlarmType::None).len() >= ALARMS_MAX {
                return Err(Refusal::TooManyAlarms);
            }
            self.store.put(&place, Bytes::new());
            self.lacks_space |= kind == AlarmType::Nospace;
        }
        Ok(vec![AlarmMember { member_id: member, alarm: kind.into() }])
    }

    /// Disarms an alarm and returns it if it was raised.
    pub fn disarm_alarm(&mut self, kind: AlarmType, member: u64) -> Vec<AlarmMember> {
        let place = alarm_place(kind as u8, member);
        if self.store.get(&place).is_none() {
            return Vec::new();
        }
        self.store.remove(&place);
        self.lacks_space = self.has_alarm_of_space();
        vec![AlarmMember { member_id: member, alarm: kind.into() }]
    }
}

const NO_SPACE: u8 = AlarmType::Nospace as u8;
