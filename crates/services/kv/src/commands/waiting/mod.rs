//! Blocking commands: client commands and their encoding.
//!
//! A command consists of a time to block and an [`Attempt`]. Between MULTI and EXEC and within
//! sessions it is a single attempt. Otherwise a front wraps it in [`Op::Await`], which puts the
//! client in the queue (`docs/decisions/0023`).

pub(crate) mod attempt;
mod run;

pub use self::run::{
    ForeignTurn, GONE, PollAnswer, WAITING, encode_await, encode_claim, encode_depose, encode_look,
    encode_withdraw,
};
pub(crate) use self::{attempt::Attempt, run::elements};

use crate::{
    command::{Doc, Refusal, Request, Spec},
    commands::{
        elements,
        family::{Family, Operation},
        list::end::End,
        zset,
    },
    encode::Encoder,
    op::Op,
};

pub const FAMILY: Family = Family {
    commands: COMMANDS,
    operations: &[
        Operation::read(Op::Look, run::find_turns),
        Operation::write(Op::Attempt, run::attempt_once),
        Operation::write(Op::Await, run::wait),
        Operation::write(Op::Claim, run::claim),
        Operation::write(Op::Withdraw, run::withdraw),
        Operation::write(Op::Depose, run::depose),
    ],
};

const WAITS: &[&str] = &["write", "blocking"];

const COMMANDS: &[Spec] = &[
    Spec::data(
        "blpop",
        -3,
        WAITS,
        (1, -2, 1),
        encode_blpop,
        Doc::new(
            "list",
            "2.0.0",
            "O(N), where N is the number of keys",
            "Removes and returns the first element in a list. Blocks until an element is available otherwise. Deletes the list if the last element was popped.",
        ),
    ),
    Spec::data(
        "brpop",
        -3,
        WAITS,
        (1, -2, 1),
        encode_brpop,
        Doc::new(
            "list",
            "2.0.0",
            "O(N), where N is the number of keys",
            "Removes and returns the last element in a list. Blocks until an element is available otherwise. Deletes the list if the last element was popped.",
        ),
    ),
    Spec::data(
        "blmove",
        6,
        WAITS,
        (1, 2, 1),
        encode_blmove,
        Doc::new(
            "list",
            "6.2.0",
            "O(1)",
            "Pops an element from a list, pushes it to another list and returns it. Blocks until an element is available otherwise. Deletes the list if the last element was moved.",
        ),
    ),
    Spec::data(
        "brpoplpush",
        4,
        WAITS,
        (1, 2, 1),
        encode_brpoplpush,
        Doc::new(
            "list",
            "2.2.0",
            "O(1)",
            "Pops an element from a list, pushes it to another list and returns it. Blocks until an element is available otherwise. Deletes the list if the last element was popped.",
        ),
    ),
    Spec::data(
        "blmpop",
        -5,
        WAITS,
        (0, 0, 0),
        encode_blmpop,
        Doc::new(
            "list",
            "7.0.0",
            "O(N+M), where N is the number of keys and M the number of elements returned",
            "Pops the first element from one of multiple lists. Blocks until an element is available otherwise. Deletes the list if the last element was popped.",
        ),
    ),
    Spec::data(
        "bzpopmin",
        -3,
        WAITS,
        (1, -2, 1),
        encode_bzpopmin,
        Doc::new(
            "sorted-set",
            "5.0.0",
            "O(log(N)), where N is the number of members",
            "Removes and returns the member with the lowest score from one or more sorted sets. Blocks until a member is available otherwise. Deletes the sorted set if the last element was popped.",
        ),
    ),
    Spec::data(
        "bzpopmax",
        -3,
        WAITS,
        (1, -2, 1),
        encode_bzpopmax,
        Doc::new(
            "sorted-set",
            "5.0.0",
            "O(log(N)), where N is the number of members",
            "Removes and returns the member with the highest score from one or more sorted sets. Blocks until a member is available otherwise. Deletes the sorted set if the last element was popped.",
        ),
    ),
    Spec::data(
        "bzmpop",
        -5,
        WAITS,
        (0, 0, 0),
        encode_bzmpop,
        Doc::new(
            "sorted-set",
            "7.0.0",
            "O(N+M*log(S)), where N is the number of keys, M the number of members returned and S the size of the set",
            "Removes and returns a member by score from one or more sorted sets. Blocks until a member is available otherwise. Deletes the sorted set if the last element was popped.",
        ),
    ),
];

/// Returns the time in milliseconds for which a command may block, 0 for no limit; `None` if it
/// does not block.
pub fn waits_ms(command: &[u8]) -> Option<u64> {
    attempt::parts(command).ok().map(|(ms, _)| ms)
}

/// Parses a timeout in fractional seconds into milliseconds. Errors have Redis' texts.
fn timeout_ms(text: &[u8], now_ms: u64) -> Result<u64, Refusal> {
    const TEXT_BYTES_MAX: usize = 256;
    const LAST_MS: f64 = i64::MAX as f64;
    let text = std::str::from_utf8(text).ok();
    let text = text.filter(|text| text.len() <= TEXT_BYTES_MAX);
    // As in Redis, hexadecimal digits are allowed.
    let seconds = text.and_then(|text| match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok().map(|seconds| seconds as f64),
        None => text.parse().ok(),
    });
    let seconds = seconds.filter(|seconds| !seconds.is_nan());
    let seconds = seconds.ok_or("ERR timeout is not a float or out of range")?;
    let ms = (seconds * 1000.0).ceil();
    if ms < 0.0 {
        return Err("ERR timeout is negative".into());
    }
    if ms >= LAST_MS - now_ms as f64 {
        return Err("ERR timeout is out of range".into());
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked above")]
    Ok(ms as u64)
}

/// Encodes a command of the form `key … timeout`.
fn write_pop(
    action: &attempt::Action<'_>,
    r: &Request<'_>,
    out: &mut Encoder<'_>,
) -> Result<(), Refusal> {
    let last = r.arguments.len() - 1;
    let ms = timeout_ms(r.at(last), r.wall_ms)?;
    let keys: Vec<&[u8]> = r.arguments.iter().take(last).collect();
    attempt::write(ms, action, &keys, out);
    Ok(())
}

fn encode_blpop(r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    write_pop(&attempt::Action::List(End::Left, None), r, out)
}

fn encode_brpop(r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    write_pop(&attempt::Action::List(End::Right, None), r, out)
}

fn encode_bzpopmin(r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    write_pop(&attempt::Action::Zset(false, None), r, out)
}

fn encode_bzpopmax(r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    write_pop(&attempt::Action::Zset(true, None), r, out)
}

fn write_move(
    from: End,
    to: End,
    timeout: usize,
    r: &Request<'_>,
    out: &mut Encoder<'_>,
) -> Result<(), Refusal> {
    let ms = timeout_ms(r.at(timeout), r.wall_ms)?;
    let target = crate::key::Key::new(r.at(1))?;
    let action = attempt::Action::Move(from, to, target);
    attempt::write(ms, &action, &[r.at(0)], out);
    Ok(())
}

fn encode_blmove(r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    write_move(End::parse(r.at(2))?, End::parse(r.at(3))?, 4, r, out)
}

fn encode_brpoplpush(r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    write_move(End::Right, End::Left, 2, r, out)
}

/// Encodes a command of the form `timeout numkeys key … side [COUNT n]`.
fn write_mpop(
    action: impl Fn(&[u8], u64) -> Result<attempt::Action<'static>, Refusal>,
    r: &Request<'_>,
    out: &mut Encoder<'_>,
) -> Result<(), Refusal> {
    let ms = timeout_ms(r.at(0), r.wall_ms)?;
    let (keys, at) = elements::keys(r, 1, "ERR numkeys should be greater than 0")?;
    // Like Redis, checks the side before the count.
    action(r.at(at), 1)?;
    let action = action(r.at(at), elements::pop_count(r, at + 1)?)?;
    attempt::write(ms, &action, &keys, out);
    Ok(())
}

fn encode_blmpop(r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    let action = |side: &[u8], count| Ok(attempt::Action::List(End::parse(side)?, Some(count)));
    write_mpop(action, r, out)
}

fn encode_bzmpop(r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    let action = |side: &[u8], count| Ok(attempt::Action::Zset(zset::is_max(side)?, Some(count)));
    write_mpop(action, r, out)
}
