//! Client-library scripts that are recognized, and the operations executed in their place.
//!
//! The texts belong to the libraries. This table has the SHA-1 of their tokens ([`super::words`])
//! and of the texts as the libraries send them. Comments list a script's `KEYS`, then its `ARGV`.

use crate::{
    command::{Refusal, Request},
    commands::{
        conditions::{Condition, write_del_if},
        expiry::{Unit, parse_deadline, positive_deadline},
        locks::{
            NewDeadline, Unlock, write_break, write_del_equal, write_expire_equal, write_lock,
            write_renew, write_set_all,
        },
    },
    encode::Encoder,
    key::Key,
};

/// Operation that replaces a script. Each variant names the script's keys and then its arguments:
/// `KEYS`, `ARGV`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// Deletes a key if it has the value: `key`, `value`. Replies 1 or 0. Used by redis-py's
    /// release and in Redis' documentation.
    DeleteEqual,
    /// Deletes every key that has the value: `key…`, `value`. Replies with the number of deleted
    /// keys. Used by node-redlock's release.
    DeleteEqualEach,
    /// Sets the lifetime of a key if it has the value: `key`, `value seconds`. Replies 1 or 0.
    ExpireEqual,
    /// Sets the lifetime of a key if it has the value: `key`, `value ms`. Replies 1 or 0. Used,
    /// among others, by redis-py's reacquire.
    PexpireEqual,
    /// Extends the lifetime of a key if it has the value: `key`, `value ms replace`. If `replace`
    /// is `0`, adds to the remaining lifetime. Used by redis-py's extend.
    Extend,
    /// Sets several keys if all are absent: `key…`, `value ms`. Replies with the number of keys, or
    /// 0. Used by node-redlock's acquire.
    SetAllAbsent,
    /// Sets several keys if all have the value: `key…`, `value ms`. Replies with the number of
    /// keys, or 0. Used by node-redlock's extend.
    SetAllEqual,
    /// Acquires a reentrant Redisson lock: `key`, `ms holder`. Replies null, or the remaining time
    /// if another client holds it.
    Lock,
    /// Releases a Redisson lock once: `key channel`, `message ms holder`. Replies 1 if the lock is
    /// free, 0 if it is still held, null if the caller did not hold it. Used by Redisson up to
    /// 3.2x.
    Unlock,
    /// Releases a Redisson lock once and stores the reply for retries: `key channel latch`,
    /// `message ms holder publish latch-ms`.
    UnlockOnce,
    /// Releases a spin lock once, without a notification: `key`, `ms holder`.
    UnlockSpin,
    /// Releases a spin lock once and stores the reply for retries: `key latch`, `ms holder
    /// latch-ms`.
    UnlockSpinOnce,
    /// Renews a Redisson lock: `key`, `ms holder`. Replies 1 or 0.
    Renew,
    /// Renews several Redisson locks: `key…`, `ms holder…`. Replies 1 or 0 for each.
    RenewEach,
    /// Releases a Redisson lock for any holder: `key channel`, `message`, optionally `publish`.
    /// Replies 1 or 0.
    Break,
    /// Releases a spin lock for any holder: `key`.
    BreakSpin,
}

type Hash = [u8; 20];

/// Operation, hash of the script's tokens, and hashes of its known texts.
type KnownScript = (Meaning, Hash, &'static [Hash]);

const KNOWN_SCRIPTS: [KnownScript; 20] = [
    (
        Meaning::DeleteEqual,
        hash("9c691b6b3185783408426c6cc6cce748dfb8cc61"),
        &[hash("b70c2384248f88e6b75b9f89241a180f856ad852")],
    ),
    (
        Meaning::ExpireEqual,
        hash("d31e786a25d0aeccceba62272880ca5cabf7bcd8"),
        &[hash("57486f22cb7668ecfab9f6e275419892fa3c4018")],
    ),
    (
        Meaning::PexpireEqual,
        hash("bb24dccb566811ad234b904e889829405e5e84a2"),
        &[hash("36e94d1c6e02fcefaa7ee5d79eee614dbac55f10")],
    ),
    // redis-py 3 to 7.
    (
        Meaning::DeleteEqual,
        hash("134d1e36c23bb8332f5582f181d9dbb68e635a80"),
        &[hash("c3f8721cbb97f72bc19e972846bd7aaf91901658")],
    ),
    (
        Meaning::Extend,
        hash("d51ceacf1e23b438cf96610f3c66e96816137ca1"),
        &[hash("a4e8783852e6b949f9ef3a97212805108459a890")],
    ),
    (
        Meaning::PexpireEqual,
        hash("6b1c2dd265f1670e369fa40d9f396ecbb06330d8"),
        &[hash("1cac51482acf5858da00f6d685d68f886cd6b6b2")],
    ),
    // node-redlock 5 and 4.
    (
        Meaning::SetAllAbsent,
        hash("2bfd6ca8567b5f9f1ad34b243263098bc438793d"),
        &[
            hash("96da70f7716f27d278a5218544df37fd8b0a5e4c"),
            hash("e5a322e2634ef59a516e8ea150cb085afafee684"),
        ],
    ),
    (
        Meaning::SetAllEqual,
        hash("d19259d379d77dc169f9b204074fb56455514a5a"),
        &[
            hash("aed6f382e410db8ba7926d4e5e9aab410bf2a78a"),
            hash("ce46f80993d5dac20dd066eb301a4e37994bdbed"),
        ],
    ),
    (
        Meaning::DeleteEqualEach,
        hash("36f08baf3a5e25e3fbb7d17dbc656b9ba307d85b"),
        &[
            hash("e4612211c9f8f51c257e26e056b0a654b3187242"),
            hash("0f0f23b9048b36752b5be114f357ba083449f908"),
        ],
    ),
    // Redisson's RLock in 3.17, from 3.2x and from 3.4x, and its spin lock.
    (
        Meaning::Lock,
        hash("d2efe62d68ef58ae603e92bbf9e9687f9baac4ea"),
        &[hash("dad0f8d619e548e04f21fb48d50be5034df3adae")],
    ),
    (
        Meaning::Lock,
        hash("e26022d794cf2919916c55bd7a35fbccf7a1740b"),
        &[hash("149c5a8bf18676fd99e9e6e24923bd64d9b62f94")],
    ),
    (
        Meaning::Unlock,
        hash("b16628916a954ede4e265f9a541e398094c6f6d0"),
        &[hash("3ffe249c16dee540ac8ab32e39bd408626b9aff7")],
    ),
    (
        Meaning::UnlockOnce,
        hash("245fdd21397f550337c9f7f4b310382fa38546a4"),
        &[hash("6866459238a13a701d42f4971f12d9f3a50e2442")],
    ),
    (
        Meaning::UnlockSpin,
        hash("aaf1edb462dd0ecfb195c91bfe42fbe459ecaf8d"),
        &[hash("5b9e58d1bcb8498e14aa1d5b49a1ca5b90748946")],
    ),
    (
        Meaning::UnlockSpinOnce,
        hash("2c56be2c9be58b65ec864f72fb6ab256f2697b62"),
        &[hash("73ac2729af29ea9a975f95e8097f7ee9a74cce3d")],
    ),
    (
        Meaning::Renew,
        hash("27d0e2749cfc10b2b97cc1310ed129b1f9b33e25"),
        &[hash("8e19a1ddbdee9138df9f32a480c57addab4353d1")],
    ),
    (
        Meaning::RenewEach,
        hash("87c1b6236f0fdc5ff65e41fa47edd31220e81306"),
        &[hash("6a3d31570dc6f4b0bd32bcdc8e75667747c6f635")],
    ),
    (
        Meaning::Break,
        hash("357bda02b1199b34130a26282e8db241f7933994"),
        &[hash("7e9c80b3d786b95d5d4aaf8fd73adb9775fa6fb1")],
    ),
    (
        Meaning::Break,
        hash("e188a5bf2d0a83f869def9c85459f78922a64eb6"),
        &[hash("605e338249a7a1d40df83b04f7658354f883b41b")],
    ),
    (
        Meaning::BreakSpin,
        hash("2407f2afe83733bdaea708bf0e9bf57e408bc440"),
        &[hash("51b433c3cc9a6ca991b3aefec63d23490c246318")],
    ),
];

const fn hash(hex: &str) -> Hash {
    let (hex, mut bytes, mut at) = (hex.as_bytes(), [0; 20], 0);
    assert!(hex.len() == 40, "a hash has 40 digits");
    while at < 40 {
        let digit = match hex[at] {
            digit @ b'0'..=b'9' => digit - b'0',
            letter => letter - b'a' + 10,
        };
        bytes[at / 2] = bytes[at / 2] << 4 | digit;
        at += 1;
    }
    bytes
}

/// Returns the operation of the script whose text has this hash.
pub(super) fn from_text_hash(hash: Hash) -> Option<Meaning> {
    let known = KNOWN_SCRIPTS.iter().find(|(_, _, texts)| texts.contains(&hash));
    known.map(|(meaning, ..)| *meaning)
}

/// Returns the operation of the script whose tokens have this hash.
pub(super) fn from_token_hash(hash: Hash) -> Option<Meaning> {
    let known = KNOWN_SCRIPTS.iter().find(|(_, words, _)| *words == hash);
    known.map(|(meaning, ..)| *meaning)
}

/// Encodes a script's operation. The arguments of `r` are `keys` keys, then those of the script.
pub(super) fn encode(
    meaning: Meaning,
    r: &Request<'_>,
    keys: usize,
    out: &mut Encoder<'_>,
) -> Result<(), Refusal> {
    let arguments = r.arguments.len() - keys;
    let (least_keys, least_arguments) = argument_shape(meaning, keys);
    let many = least_keys == 1 && takes_many_keys(meaning);
    if keys < least_keys || (keys > least_keys && !many) || arguments < least_arguments {
        return Err("ERR this script has other keys or arguments".into());
    }
    let key = |at| Key::new(r.at(at));
    for at in 0..keys {
        key(at)?;
    }
    let all = || (0..keys).map(|at| r.at(at));
    let arg = |at| r.at(keys + at);
    // Returns the deadline in an argument, as milliseconds.
    let ms = |at| parse_deadline(r, Unit::MILLISECONDS, keys + at);
    // Returns the deadline in an argument that the script passes to SET, which rejects times ≤ 0.
    let lasting = |at| positive_deadline(r, Unit::MILLISECONDS, keys + at);
    match meaning {
        Meaning::DeleteEqual => write_del_if(Condition::Equal(arg(0)), r.at(0), out),
        Meaning::DeleteEqualEach => write_del_equal(all(), arg(0), out),
        Meaning::ExpireEqual => {
            let deadline = parse_deadline(r, Unit::SECONDS, keys + 1)?;
            write_expire_equal(r.at(0), arg(0), NewDeadline::Until(deadline), out);
        }
        Meaning::PexpireEqual => {
            write_expire_equal(r.at(0), arg(0), NewDeadline::Until(ms(1)?), out);
        }
        Meaning::Extend => {
            let new = if arg(2) == b"0" {
                NewDeadline::Extend(r.integer(keys + 1)?)
            } else {
                NewDeadline::Until(ms(1)?)
            };
            write_expire_equal(r.at(0), arg(0), new, out);
        }
        Meaning::SetAllAbsent | Meaning::SetAllEqual => {
            let deadline = lasting(1)?;
            let absent = meaning == Meaning::SetAllAbsent;
            write_set_all(all(), absent, arg(0), deadline, out);
        }
        Meaning::Lock => write_lock(r.at(0), arg(1), ms(0)?, r.wall_ms, out),
        Meaning::Unlock | Meaning::UnlockOnce => {
            let once = meaning == Meaning::UnlockOnce;
            if once {
                is_publish(arg(3))?;
            }
            let latch = once.then(|| lasting(4)).transpose()?;
            let unlock = Unlock {
                key: key(0)?,
                holder: arg(2),
                deadline: ms(1)?,
                latch: latch.map(|deadline| key(2).map(|key| (key, deadline))).transpose()?,
                notification: Some((r.at(1), arg(0))),
            };
            unlock.write(out);
        }
        Meaning::UnlockSpin | Meaning::UnlockSpinOnce => {
            let once = meaning == Meaning::UnlockSpinOnce;
            let latch = once.then(|| lasting(2)).transpose()?;
            let unlock = Unlock {
                key: key(0)?,
                holder: arg(1),
                deadline: ms(0)?,
                latch: latch.map(|deadline| key(1).map(|key| (key, deadline))).transpose()?,
                notification: None,
            };
            unlock.write(out);
        }
        Meaning::Renew | Meaning::RenewEach => {
            let pairs = (0..keys).map(|at| (r.at(at), arg(1 + at)));
            write_renew(pairs, ms(0)?, meaning == Meaning::RenewEach, out);
        }
        Meaning::Break => {
            if arguments > 1 {
                is_publish(arg(1))?;
            }
            write_break(r.at(0), Some((r.at(1), arg(0))), out);
        }
        Meaning::BreakSpin => write_break(r.at(0), None, out),
    }
    Ok(())
}

/// Returns the number of keys (`keys` itself if it varies) and the least number of arguments.
const fn argument_shape(meaning: Meaning, keys: usize) -> (usize, usize) {
    match meaning {
        Meaning::DeleteEqual | Meaning::DeleteEqualEach => (1, 1),
        Meaning::Extend => (1, 3),
        Meaning::ExpireEqual
        | Meaning::PexpireEqual
        | Meaning::SetAllAbsent
        | Meaning::SetAllEqual
        | Meaning::Lock
        | Meaning::UnlockSpin
        | Meaning::Renew => (1, 2),
        Meaning::RenewEach => (1, 1 + keys),
        Meaning::Unlock => (2, 3),
        Meaning::UnlockOnce => (3, 5),
        Meaning::UnlockSpinOnce => (2, 3),
        Meaning::Break => (2, 1),
        Meaning::BreakSpin => (1, 0),
    }
}

const fn takes_many_keys(meaning: Meaning) -> bool {
    matches!(
        meaning,
        Meaning::DeleteEqualEach
            | Meaning::SetAllAbsent
            | Meaning::SetAllEqual
            | Meaning::RenewEach
    )
}

/// Checks that a script notifies waiting clients by PUBLISH. SPUBLISH is not supported here.
fn is_publish(command: &[u8]) -> Result<(), Refusal> {
    if command.eq_ignore_ascii_case(b"publish") {
        Ok(())
    } else {
        Err("ERR this script tells others by another command than PUBLISH".into())
    }
}
