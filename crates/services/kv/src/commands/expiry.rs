//! Deadlines of keys: EXPIRE, TTL and related commands, and the removal of expired keys.

use std::ops::ControlFlow;

use crate::{
    command::{Doc, NOT_AN_INTEGER, READS, REMOVES, Refusal, Request, Spec},
    commands::{
        ends::{remove_expired_fields, updated_header},
        events::class,
        family::{Family, Operation},
        state::{ReadContext, WriteContext},
    },
    encode::{Decoder, Encoder, Fault},
    key::Key,
    op::{Deadline, Op},
    resp::{integer::parse_integer, reply::Reply},
    store::{
        DeadlineKind,
        collection::{Header, Kind},
    },
};

pub const FAMILY: Family = Family {
    commands: COMMANDS,
    operations: &[
        Operation::read(Op::Ttl, ttl),
        Operation::write(Op::Expire, expire),
        Operation::write(Op::Persist, persist),
        Operation::write(Op::Expired, expired),
        Operation::write(Op::Sweep, sweep),
    ],
};

const COMMANDS: &[Spec] = &[
    Spec::data(
        "expire",
        -3,
        REMOVES,
        (1, 1, 1),
        encode_expire,
        Doc::new("generic", "1.0.0", "O(1)", "Sets the expiration time of a key in seconds."),
    ),
    Spec::data(
        "pexpire",
        -3,
        REMOVES,
        (1, 1, 1),
        encode_pexpire,
        Doc::new("generic", "2.6.0", "O(1)", "Sets the expiration time of a key in milliseconds."),
    ),
    Spec::data(
        "expireat",
        -3,
        REMOVES,
        (1, 1, 1),
        encode_expireat,
        Doc::new(
            "generic",
            "1.2.0",
            "O(1)",
            "Sets the expiration time of a key to a Unix timestamp.",
        ),
    ),
    Spec::data(
        "pexpireat",
        -3,
        REMOVES,
        (1, 1, 1),
        encode_pexpireat,
        Doc::new(
            "generic",
            "2.6.0",
            "O(1)",
            "Sets the expiration time of a key to a Unix milliseconds timestamp.",
        ),
    ),
    Spec::data(
        "ttl",
        2,
        READS,
        (1, 1, 1),
        encode_ttl,
        Doc::new("generic", "1.0.0", "O(1)", "Returns the expiration time in seconds of a key."),
    ),
    Spec::data(
        "pttl",
        2,
        READS,
        (1, 1, 1),
        encode_pttl,
        Doc::new(
            "generic",
            "2.6.0",
            "O(1)",
            "Returns the expiration time in milliseconds of a key.",
        ),
    ),
    Spec::data(
        "expiretime",
        2,
        READS,
        (1, 1, 1),
        encode_expiretime,
        Doc::new(
            "generic",
            "7.0.0",
            "O(1)",
            "Returns the expiration time of a key as a Unix timestamp.",
        ),
    ),
    Spec::data(
        "pexpiretime",
        2,
        READS,
        (1, 1, 1),
        encode_pexpiretime,
        Doc::new(
            "generic",
            "7.0.0",
            "O(1)",
            "Returns the expiration time of a key as a Unix milliseconds timestamp.",
        ),
    ),
    Spec::data(
        "persist",
        2,
        REMOVES,
        (1, 1, 1),
        encode_persist,
        Doc::new("generic", "2.2.0", "O(1)", "Removes the expiration time of a key."),
    ),
];

/// Unit of a time argument: seconds or milliseconds, relative or absolute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unit {
    milliseconds: bool,
    absolute: bool,
}

impl Unit {
    pub(crate) const SECONDS: Self = Self { milliseconds: false, absolute: false };
    pub(crate) const MILLISECONDS: Self = Self { milliseconds: true, absolute: false };
    pub(super) const UNIX_SECONDS: Self = Self { milliseconds: false, absolute: true };
    pub(super) const UNIX_MILLISECONDS: Self = Self { milliseconds: true, absolute: true };

    pub(super) fn of_option(word: &[u8]) -> Option<Self> {
        let options = [
            (&b"ex"[..], Self::SECONDS),
            (b"px", Self::MILLISECONDS),
            (b"exat", Self::UNIX_SECONDS),
            (b"pxat", Self::UNIX_MILLISECONDS),
        ];
        options.iter().find(|(name, _)| word.eq_ignore_ascii_case(name)).map(|(_, unit)| *unit)
    }

    pub(super) const fn byte(self) -> u8 {
        self.milliseconds as u8 | (self.absolute as u8) << 1
    }

    pub(super) const fn from_byte(byte: u8) -> Self {
        Self { milliseconds: byte & 1 != 0, absolute: byte & 2 != 0 }
    }

    /// Converts a deadline to this unit. If the unit is relative, the result is relative to
    /// `now_ms`. `up_ms` is added before rounding down to seconds.
    pub(super) fn convert_deadline(self, deadline: u64, now_ms: u64, up_ms: u64) -> i64 {
        let ms = match self.absolute {
            true => deadline,
            false => deadline.saturating_sub(now_ms),
        };
        let shown = match self.milliseconds {
            true => ms,
            false => ms.saturating_add(up_ms) / 1000,
        };
        i64::try_from(shown).unwrap_or(i64::MAX)
    }
}

/// Converts a time to an absolute deadline. Commands depend on the front's clock only through this
/// function, so a command in the log has the same effect whenever it is applied.
pub(super) fn deadline(r: &Request<'_>, unit: Unit, time: i64) -> Option<Deadline> {
    let ms = if unit.milliseconds { time } else { time.checked_mul(1000)? };
    let now = i64::try_from(r.wall_ms).ok()?;
    let at = if unit.absolute { ms } else { ms.checked_add(now)? };
    match u64::try_from(at) {
        Ok(at) if at > r.wall_ms => Some(Deadline::At(at)),
        _ => Some(Deadline::Past),
    }
}

/// Parses a deadline argument, which may be zero or negative.
pub(crate) fn parse_deadline(
    r: &Request<'_>,
    unit: Unit,
    index: usize,
) -> Result<Deadline, Refusal> {
    deadline(r, unit, r.integer(index)?).ok_or_else(|| r.invalid_expire())
}

/// Parses a deadline argument for SET or GETEX, which reject zero and negative times.
pub(crate) fn positive_deadline(
    r: &Request<'_>,
    unit: Unit,
    index: usize,
) -> Result<Deadline, Refusal> {
    let time = parse_integer(r.at(index)).ok_or(NOT_AN_INTEGER)?;
    if time <= 0 {
        return Err(r.invalid_expire());
    }
    deadline(r, unit, time).ok_or_else(|| r.invalid_expire())
}

/// Conditions for replacing a deadline, as flags of [`Op::Expire`] and [`Op::HExpire`].
pub(super) mod condition {
    use crate::op::Deadline;

    /// Requires no current deadline.
    pub(super) const NX: u8 = 1;
    /// Requires a current deadline.
    pub(super) const XX: u8 = 2;
    /// Requires a later deadline than the current one.
    pub(super) const GT: u8 = 4;
    /// Requires an earlier deadline than the current one.
    pub(super) const LT: u8 = 8;

    /// Returns the flag for a condition, or 0 for any other word.
    pub(crate) fn of(name: &[u8]) -> u8 {
        let names = [(&b"nx"[..], NX), (b"xx", XX), (b"gt", GT), (b"lt", LT)];
        let found = names.iter().find(|(word, _)| name.eq_ignore_ascii_case(word));
        found.map_or(0, |(_, flag)| *flag)
    }

    /// Returns whether the conditions in `flags` allow `new` to replace the deadline `old`.
    pub(crate) fn holds(flags: u8, old: Option<u64>, new: Deadline) -> bool {
        // The absence of a deadline counts as the latest deadline, and a past one as the earliest.
        let order = old.unwrap_or(u64::MAX);
        let new_order = match new {
            Deadline::Never => u64::MAX,
            Deadline::At(at) => at,
            Deadline::Past => 0,
        };
        let has = |flag| flags & flag != 0;
        let refused = (has(NX) && old.is_some())
            || (has(XX) && old.is_none())
            || (has(GT) && new_order <= order)
            || (has(LT) && new_order >= order);
        !refused
    }
}

fn write_expire(unit: Unit, r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    let mut flags = 0;
    for option in r.arguments.from(2).iter() {
        let flag = condition::of(option);
        if flag == 0 {
            let text = format!("ERR Unsupported option {}", option.escape_ascii());
            return Err(Refusal::Text(text.into()));
        }
        flags |= flag;
    }
    let both = |a, b| flags & a != 0 && flags & b != 0;
    if both(condition::NX, condition::XX | condition::GT | condition::LT) {
        let text = "ERR NX and XX, GT or LT options at the same time are not compatible";
        return Err(text.into());
    }
    if both(condition::GT, condition::LT) {
        return Err("ERR GT and LT options at the same time are not compatible".into());
    }
    let deadline = parse_deadline(r, unit, 1)?;
    out.byte(Op::Expire as u8).byte(flags).bytes(r.at(0));
    deadline.encode(out);
    Ok(())
}

fn encode_expire(r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    write_expire(Unit::SECONDS, r, out)
}

fn encode_pexpire(r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    write_expire(Unit::MILLISECONDS, r, out)
}

fn encode_expireat(r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    write_expire(Unit::UNIX_SECONDS, r, out)
}

fn encode_pexpireat(r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    write_expire(Unit::UNIX_MILLISECONDS, r, out)
}

pub(super) fn expire(
    from: &mut Decoder<'_>,
    state: &mut WriteContext<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    let (flags, key) = (from.byte()?, from.key()?);
    let new = Deadline::decode(from)?;
    from.end()?;
    let Some(old) = state.store.get(key).map(|entry| entry.own_deadline()) else {
        reply.integer(0);
        return Ok(());
    };
    let refused = !condition::holds(flags, old, new);
    if !refused {
        change(state, key, new)?;
    }
    reply.integer(i64::from(!refused));
    Ok(())
}

/// Sets the deadline of an existing key, or removes the key if the deadline has passed.
pub(super) fn change(
    state: &mut WriteContext<'_>,
    key: Key<'_>,
    deadline: Deadline,
) -> Result<(), Fault> {
    let deadline = match deadline {
        Deadline::Never => None,
        Deadline::At(at) => Some(at),
        Deadline::Past => {
            state.delete(key);
            return Ok(());
        }
    };
    if let Some(entry) = state.store.get(key) {
        state.budget.charge_bytes(entry.value.len())?;
        let (value, kind) = (entry.value.to_vec(), entry.kind);
        drop(entry);
        let header = Header::from_bytes(&value).filter(|_| kind == Kind::Hash);
        match header.filter(|header| header.field_deadlines.is_some()) {
            // The hash may expire earlier, together with its last field.
            Some(header) => {
                let (header, end) = updated_header(state.store, header, deadline);
                state.set(key, &header.to_bytes(), end, kind);
            }
            None => state.set(key, &value, deadline, kind),
        }
        let name = deadline.map_or("persist", |_| "expire");
        state.event(class::GENERIC, name, key);
    }
    Ok(())
}

fn encode_persist(r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    out.byte(Op::Persist as u8).bytes(r.at(0));
    Ok(())
}

pub(super) fn persist(
    from: &mut Decoder<'_>,
    state: &mut WriteContext<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    let key = from.key()?;
    from.end()?;
    let had = state.store.get(key).is_some_and(|entry| entry.own_deadline().is_some());
    if had {
        change(state, key, Deadline::Never)?;
    }
    reply.integer(i64::from(had));
    Ok(())
}

fn write_ttl(unit: Unit, r: &Request<'_>, out: &mut Encoder<'_>) {
    // Within EXEC, nodes must not read their clocks, so the command contains the request's time.
    out.byte(Op::Ttl as u8).byte(unit.byte()).word(r.wall_ms).bytes(r.at(0));
}

fn encode_ttl(r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    write_ttl(Unit::SECONDS, r, out);
    Ok(())
}

fn encode_pttl(r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    write_ttl(Unit::MILLISECONDS, r, out);
    Ok(())
}

fn encode_expiretime(r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    write_ttl(Unit::UNIX_SECONDS, r, out);
    Ok(())
}

fn encode_pexpiretime(r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    write_ttl(Unit::UNIX_MILLISECONDS, r, out);
    Ok(())
}

pub(super) fn ttl(
    from: &mut Decoder<'_>,
    state: &ReadContext<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    let (unit, asked_ms, key) = (from.byte()?, from.word()?, from.key()?);
    from.end()?;
    let Some(entry) = state.store.get(key) else {
        reply.integer(-2);
        return Ok(());
    };
    let Some(deadline) = entry.own_deadline() else {
        reply.integer(-1);
        return Ok(());
    };
    let now_ms = state.wall_ms.unwrap_or(asked_ms);
    reply.integer(Unit::from_byte(unit).convert_deadline(deadline, now_ms, 500));
    Ok(())
}

pub fn encode_sweep(keys: u64, out: &mut Encoder<'_>) {
    out.byte(Op::Sweep as u8).count(keys);
}

/// Maximum number of keys and fields removed by one sweep, even if the command requests more.
const BITE_MAX: usize = 4096;

/// Removes expired keys and fields. Clients cannot observe the removal.
pub(super) fn sweep(
    from: &mut Decoder<'_>,
    state: &mut WriteContext<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    let most = from.count()?;
    from.end()?;
    let most = usize::try_from(most).unwrap_or(BITE_MAX).min(BITE_MAX);
    if state.events != 0 {
        notify_expired(state, most);
    }
    let keys = state.store.sweep(most);
    reply.count(keys + remove_expired_fields(state, most.saturating_sub(keys)));
    Ok(())
}

/// Generates the events of expired keys before [`sweep`] removes them.
#[cold]
fn notify_expired(state: &mut WriteContext<'_>, most: usize) {
    let mut ended: Vec<Box<[u8]>> = Vec::new();
    let now_ms = state.store.time();
    state.store.deadlines(DeadlineKind::Keys, 0, now_ms, &mut |_, key| {
        if ended.len() == most {
            return ControlFlow::Break(());
        }
        ended.push(key.into());
        ControlFlow::Continue(())
    });
    for key in &ended {
        if let Ok(key) = Key::new(key) {
            state.notify_expired(key);
            state.notify_changed(key);
        }
    }
}

/// Deletes a key if it still has the given deadline and so has not been set again. Only logs
/// written before the introduction of the group's time contain this operation.
pub(super) fn expired(
    from: &mut Decoder<'_>,
    state: &mut WriteContext<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    let (deadline, key) = (from.word()?, from.key()?);
    from.end()?;
    let same = state.store.get(key).is_some_and(|entry| entry.deadline == Some(deadline));
    if same {
        state.store.remove(key);
        state.notify_changed(key);
        state.event(class::EXPIRED, "expired", key);
    }
    reply.integer(i64::from(same));
    Ok(())
}
