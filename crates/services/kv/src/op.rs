//! Operation codes of logged commands and queries, and encodings that operations share.

use crate::{
    encode::{Decoder, Encoder, Malformed},
    store::places::Database,
};

/// Maximum size in bytes of a reply with several values. Constant, because all nodes must give the
/// same reply to a replicated command.
pub const REPLY_BYTES_MAX: usize = 32 * 1024 * 1024;

/// Operation number, the first byte of a command or query. A number is never reused, because logs
/// contain it. Operations below [`Op::FIRST_WRITE`] only read and may be queries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "named after the commands; docs/commands.md has them")]
#[repr(u8)]
pub enum Op {
    Literal = 1,
    Get = 2,
    Strlen = 3,
    GetRange = 4,
    Mget = 5,
    Exists = 6,
    Type = 7,
    Ttl = 8,
    Keys = 9,
    Scan = 10,
    Dbsize = 11,
    RandomKey = 12,
    Versions = 13,
    Digest = 14,
    ValueDigest = 15,
    LockHolder = 16,
    ErrorIfPresent = 17,
    Keyspace = 18,
    Inspect = 19,
    HMget = 20,
    HAll = 21,
    HStrlen = 22,
    HRandField = 23,
    Count = 24,
    ScanRows = 25,
    LIndex = 26,
    LRange = 27,
    LPos = 28,
    SIsMember = 29,
    SMembers = 30,
    SRandMember = 31,
    SCombine = 32,
    SInterCard = 33,
    ZScore = 34,
    ZRank = 35,
    ZCount = 36,
    ZRange = 37,
    ZRandMember = 38,
    ZCombine = 39,
    ZInterCard = 40,
    GetBit = 41,
    BitCount = 42,
    BitPos = 43,
    BitFieldRo = 44,
    Look = 45,
    Sort = 46,
    HTtl = 47,
    ScriptRo = 48,
    XRange = 49,
    XRead = 50,
    XPending = 51,
    XInfo = 52,
    XUndelivered = 53,
    PfCount = 54,
    GeoMembers = 55,
    GeoDist = 56,
    GeoSearch = 57,
    Lcs = 58,
    ScanNames = 59,
    Set = 64,
    GetDel = 65,
    GetEx = 66,
    Append = 67,
    SetRange = 68,
    IncrBy = 69,
    IncrByFloat = 70,
    Mset = 71,
    Del = 72,
    Rename = 73,
    Copy = 74,
    Expire = 75,
    Persist = 76,
    Flush = 77,
    Exec = 78,
    Expired = 79,
    DelIf = 80,
    ExpireEqual = 81,
    DelEqual = 82,
    SetAll = 83,
    Lock = 84,
    Unlock = 85,
    RenewLocks = 86,
    BreakLock = 87,
    Publish = 88,
    Sweep = 89,
    HSet = 90,
    HDel = 91,
    HIncrBy = 92,
    HIncrByFloat = 93,
    LPush = 94,
    LPop = 95,
    LSet = 96,
    LTrim = 97,
    LRem = 98,
    LInsert = 99,
    LMove = 100,
    LMpop = 101,
    SAdd = 102,
    SRem = 103,
    SMove = 104,
    SPop = 105,
    SStore = 106,
    ZAdd = 107,
    ZRem = 108,
    ZRemRange = 109,
    ZPop = 110,
    ZMpop = 111,
    ZRangeStore = 112,
    ZStore = 113,
    SetBit = 114,
    BitOp = 115,
    BitField = 116,
    Attempt = 117,
    Await = 118,
    Claim = 119,
    Withdraw = 120,
    Depose = 121,
    SortStore = 122,
    PublishShard = 123,
    HExpire = 124,
    /// Prefix of a command that fails rather than exceed its limits ([visit-2]).
    Bounded = 125,
    Script = 126,
    XAdd = 127,
    XDel = 128,
    XTrim = 129,
    XSetId = 130,
    XGroup = 131,
    XReadGroup = 132,
    XAck = 133,
    XClaim = 134,
    XAutoClaim = 135,
    Announce = 136,
    PfAdd = 137,
    PfMerge = 138,
    GeoStore = 139,
    HGetDel = 140,
    /// Prefix of a command or query on a database other than the first: its number, then the rest.
    In = 141,
    /// As [`Op::Exec`], with the database of each watched key before it.
    ExecIn = 142,
    FlushAll = 143,
    SwapDb = 144,
    MoveDb = 145,
    /// COPY to a given database.
    CopyTo = 146,
}

/// Parts of an encoded command or query.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Split<'a> {
    pub(crate) op: Op,
    /// Bytes after the operation's number.
    pub(crate) from: Decoder<'a>,
    /// True if the command fails rather than exceed its limits ([visit-2]).
    pub(crate) bounded: bool,
    /// Database that the operation uses; the first one if it uses none.
    pub(crate) database: Database,
}

impl Op {
    pub const ALL: [Self; 142] = [
        Self::Literal,
        Self::Get,
        Self::Strlen,
        Self::GetRange,
        Self::Mget,
        Self::Exists,
        Self::Type,
        Self::Ttl,
        Self::Keys,
        Self::Scan,
        Self::Dbsize,
        Self::RandomKey,
        Self::Versions,
        Self::Digest,
        Self::ValueDigest,
        Self::LockHolder,
        Self::ErrorIfPresent,
        Self::Keyspace,
        Self::Inspect,
        Self::HMget,
        Self::HAll,
        Self::HStrlen,
        Self::HRandField,
        Self::Count,
        Self::ScanRows,
        Self::LIndex,
        Self::LRange,
        Self::LPos,
        Self::SIsMember,
        Self::SMembers,
        Self::SRandMember,
        Self::SCombine,
        Self::SInterCard,
        Self::ZScore,
        Self::ZRank,
        Self::ZCount,
        Self::ZRange,
        Self::ZRandMember,
        Self::ZCombine,
        Self::ZInterCard,
        Self::GetBit,
        Self::BitCount,
        Self::BitPos,
        Self::BitFieldRo,
        Self::Look,
        Self::Sort,
        Self::HTtl,
        Self::ScriptRo,
        Self::XRange,
        Self::XRead,
        Self::XPending,
        Self::XInfo,
        Self::XUndelivered,
        Self::PfCount,
        Self::GeoMembers,
        Self::GeoDist,
        Self::GeoSearch,
        Self::Lcs,
        Self::ScanNames,
        Self::Set,
        Self::GetDel,
        Self::GetEx,
        Self::Append,
        Self::SetRange,
        Self::IncrBy,
        Self::IncrByFloat,
        Self::Mset,
        Self::Del,
        Self::Rename,
        Self::Copy,
        Self::Expire,
        Self::Persist,
        Self::Flush,
        Self::Exec,
        Self::Expired,
        Self::DelIf,
        Self::ExpireEqual,
        Self::DelEqual,
        Self::SetAll,
        Self::Lock,
        Self::Unlock,
        Self::RenewLocks,
        Self::BreakLock,
        Self::Publish,
        Self::Sweep,
        Self::HSet,
        Self::HDel,
        Self::HIncrBy,
        Self::HIncrByFloat,
        Self::LPush,
        Self::LPop,
        Self::LSet,
        Self::LTrim,
        Self::LRem,
        Self::LInsert,
        Self::LMove,
        Self::LMpop,
        Self::SAdd,
        Self::SRem,
        Self::SMove,
        Self::SPop,
        Self::SStore,
        Self::ZAdd,
        Self::ZRem,
        Self::ZRemRange,
        Self::ZPop,
        Self::ZMpop,
        Self::ZRangeStore,
        Self::ZStore,
        Self::SetBit,
        Self::BitOp,
        Self::BitField,
        Self::Attempt,
        Self::Await,
        Self::Claim,
        Self::Withdraw,
        Self::Depose,
        Self::SortStore,
        Self::PublishShard,
        Self::HExpire,
        Self::Bounded,
        Self::Script,
        Self::XAdd,
        Self::XDel,
        Self::XTrim,
        Self::XSetId,
        Self::XGroup,
        Self::XReadGroup,
        Self::XAck,
        Self::XClaim,
        Self::XAutoClaim,
        Self::Announce,
        Self::PfAdd,
        Self::PfMerge,
        Self::GeoStore,
        Self::HGetDel,
        Self::In,
        Self::ExecIn,
        Self::FlushAll,
        Self::SwapDb,
        Self::MoveDb,
        Self::CopyTo,
    ];
    /// Lowest operation number that may write.
    pub const FIRST_WRITE: u8 = 64;

    const BY_NUMBER: [Option<Self>; 256] = {
        let mut table = [None; 256];
        let mut at = 0;
        while at < Self::ALL.len() {
            let number = Self::ALL[at] as usize;
            assert!(table[number].is_none(), "two operations of one number");
            table[number] = Some(Self::ALL[at]);
            at += 1;
        }
        table
    };

    pub fn from_byte(byte: u8) -> Option<Self> {
        Self::BY_NUMBER[usize::from(byte)]
    }

    /// [db-1] Splits a command or query into its parts. A command has one encoding: a prefix that
    /// occurs twice, stands in the wrong order, names the first database, or precedes an operation
    /// that uses no database makes it malformed.
    pub(crate) fn split(command: &[u8]) -> Option<Split<'_>> {
        let mut from = Decoder(command);
        let mut op = Self::from_byte(from.byte().ok()?)?;
        let bounded = op == Self::Bounded;
        if bounded {
            op = Self::from_byte(from.byte().ok()?).filter(|op| *op != Self::Bounded)?;
        }
        let mut database = Database::ZERO;
        if op == Self::In {
            let number = Database::new(from.byte().ok()?.into());
            database = number.filter(|number| *number != Database::ZERO)?;
            op = Self::from_byte(from.byte().ok()?).filter(|op| op.uses_database())?;
        }
        Some(Split { op, from, bounded, database })
    }

    /// Splits a command of a transaction. Returns `None` if it is malformed or forbidden there.
    pub(crate) fn split_queued(command: &[u8]) -> Option<Split<'_>> {
        Self::split(command).filter(|split| !split.bounded && !split.op.stands_alone())
    }

    /// Puts the prefix of `database` before a command without prefixes, if it needs one.
    pub(crate) fn address(command: &mut Vec<u8>, database: Database) {
        let op = command.first().copied().and_then(Self::from_byte);
        if database != Database::ZERO && op.is_some_and(Self::uses_database) {
            command.splice(0..0, [Self::In as u8, database.number()]);
        }
    }

    /// Returns whether the operation reads or changes the keys of one database, or those of one
    /// and a further one that it names.
    pub(crate) const fn uses_database(self) -> bool {
        !matches!(
            self,
            Self::Literal
                | Self::Digest
                | Self::Publish
                | Self::PublishShard
                | Self::Announce
                | Self::Look
                | Self::Claim
                | Self::Withdraw
                | Self::Depose
                | Self::Exec
                | Self::ExecIn
                | Self::FlushAll
                | Self::SwapDb
                | Self::Bounded
                | Self::In
        )
    }

    /// Returns whether the operation is forbidden in transactions, e.g. one on the queue of blocked
    /// clients.
    pub const fn stands_alone(self) -> bool {
        matches!(
            self,
            Self::Exec
                | Self::ExecIn
                | Self::Bounded
                | Self::In
                | Self::Versions
                | Self::Look
                | Self::XUndelivered
                | Self::Announce
                | Self::Await
                | Self::Claim
                | Self::Withdraw
                | Self::Depose
        )
    }

    /// Returns whether the operation adds no data: it removes or moves data, or changes a deadline.
    /// Its commands lack the flag `denyoom`.
    pub const fn only_removes(self) -> bool {
        self.is_read()
            || matches!(
                self,
                Self::GetDel
                    | Self::GetEx
                    | Self::Del
                    | Self::DelIf
                    | Self::DelEqual
                    | Self::Flush
                    | Self::FlushAll
                    | Self::SwapDb
                    | Self::Rename
                    | Self::Expire
                    | Self::ExpireEqual
                    | Self::Expired
                    | Self::Persist
                    | Self::Sweep
                    | Self::Unlock
                    | Self::BreakLock
                    | Self::RenewLocks
                    | Self::Publish
                    | Self::PublishShard
                    | Self::HDel
                    | Self::HExpire
                    | Self::LPop
                    | Self::LMove
                    | Self::LTrim
                    | Self::LRem
                    | Self::LMpop
                    | Self::SRem
                    | Self::SMove
                    | Self::SPop
                    | Self::ZRem
                    | Self::ZRemRange
                    | Self::ZPop
                    | Self::ZMpop
                    | Self::Attempt
                    | Self::Await
                    | Self::Claim
                    | Self::Withdraw
                    | Self::Depose
                    | Self::XDel
                    | Self::XTrim
                    | Self::XAck
                    | Self::Announce
                    | Self::HGetDel
            )
    }

    /// Returns whether the operation reads or changes no keys except those in its arguments
    /// ([read-9]).
    pub const fn names_its_keys(self) -> bool {
        matches!(
            self,
            Self::Set
                | Self::GetDel
                | Self::GetEx
                | Self::Append
                | Self::SetRange
                | Self::IncrBy
                | Self::IncrByFloat
                | Self::Mset
                | Self::Del
                | Self::Expire
                | Self::Persist
                | Self::SetBit
                | Self::BitField
                | Self::HSet
                | Self::HDel
                | Self::HIncrBy
                | Self::LPush
                | Self::LPop
                | Self::LSet
                | Self::LTrim
                | Self::LRem
                | Self::SAdd
                | Self::SRem
                | Self::ZAdd
                | Self::ZRem
                | Self::XAdd
                | Self::XDel
                | Self::XTrim
                | Self::XAck
                | Self::PfAdd
                | Self::HGetDel
        )
    }

    /// Returns whether the operation reads one key, its first argument, and nothing else.
    pub const fn reads_first_key(self) -> bool {
        matches!(
            self,
            Self::Get
                | Self::Strlen
                | Self::GetRange
                | Self::Type
                | Self::Count
                | Self::HMget
                | Self::HAll
                | Self::LIndex
                | Self::LRange
                | Self::SIsMember
                | Self::SMembers
                | Self::ZScore
                | Self::ZRange
                | Self::XRange
        )
    }

    /// Returns whether the operation is one of streams, which feature level 10 brought.
    pub const fn is_of_streams(self) -> bool {
        matches!(
            self,
            Self::XRange
                | Self::XRead
                | Self::XPending
                | Self::XInfo
                | Self::XUndelivered
                | Self::XAdd
                | Self::XDel
                | Self::XTrim
                | Self::XSetId
                | Self::XGroup
                | Self::XReadGroup
                | Self::XAck
                | Self::XClaim
                | Self::XAutoClaim
        )
    }

    /// Returns whether feature level 10 brought the operation.
    pub const fn is_of_level_10(self) -> bool {
        self.is_script()
            || self.is_of_streams()
            || matches!(
                self,
                Self::PfCount
                    | Self::GeoMembers
                    | Self::GeoDist
                    | Self::GeoSearch
                    | Self::Lcs
                    | Self::ScanNames
                    | Self::Announce
                    | Self::PfAdd
                    | Self::PfMerge
                    | Self::GeoStore
                    | Self::HGetDel
                    | Self::In
                    | Self::ExecIn
                    | Self::FlushAll
                    | Self::SwapDb
                    | Self::MoveDb
                    | Self::CopyTo
            )
    }

    pub const fn is_script(self) -> bool {
        matches!(self, Self::Script | Self::ScriptRo)
    }

    pub const fn is_read(self) -> bool {
        (self as u8) < Self::FIRST_WRITE
    }
}

/// Path of an encoded command to the service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A query, outside the log.
    Read,
    /// Through the log, with a small reply.
    Write,
    /// Through the log, with a reply that may be as large as a value or larger.
    WriteReturning,
}

impl Kind {
    pub fn of(command: &[u8]) -> Self {
        let Some(Split { op, mut from, .. }) = Op::split(command) else {
            return Self::Write;
        };
        match op {
            op if op.is_read() => Self::Read,
            Op::GetDel
            | Op::GetEx
            | Op::Exec
            | Op::ExecIn
            | Op::Script
            | Op::LPop
            | Op::LMove
            | Op::LMpop
            | Op::SPop
            | Op::ZPop
            | Op::ZMpop
            | Op::Attempt
            | Op::Await
            | Op::Claim
            | Op::XReadGroup
            | Op::XClaim
            | Op::XAutoClaim
            | Op::HGetDel => Self::WriteReturning,
            Op::Set if from.byte().is_ok_and(|flags| flags & set_flag::GET != 0) => {
                Self::WriteReturning
            }
            _ => Self::Write,
        }
    }
}

/// Flags of [`Op::Set`].
pub mod set_flag {
    /// Set only an absent key.
    pub const NX: u8 = 1;
    /// Set only an existing key.
    pub const XX: u8 = 2;
    /// Keep the deadline.
    pub const KEEP_TTL: u8 = 4;
    /// Reply with the old value.
    pub const GET: u8 = 8;
    /// Reply 1 or 0, as SETNX does.
    pub const COUNTED: u8 = 16;
    /// A condition follows the value.
    pub const IF: u8 = 32;
}

/// New deadline of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deadline {
    Never,
    /// The key expires at this Unix time in milliseconds.
    At(u64),
    /// The deadline had passed when the front encoded it, so the key is removed at once.
    Past,
}

impl Deadline {
    pub fn encode(self, out: &mut Encoder<'_>) {
        match self {
            Self::Never => out.byte(0),
            Self::At(at) => out.byte(1).word(at),
            Self::Past => out.byte(2),
        };
    }

    pub fn decode(from: &mut Decoder<'_>) -> Result<Self, Malformed> {
        match from.byte()? {
            0 => Ok(Self::Never),
            1 => match from.word()? {
                // Stores may represent a missing deadline by this number.
                u64::MAX => Err(Malformed),
                at => Ok(Self::At(at)),
            },
            2 => Ok(Self::Past),
            _ => Err(Malformed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operation_numbers_are_stable() {
        for op in Op::ALL {
            assert_eq!(Op::from_byte(op as u8), Some(op));
        }
        for byte in [0, 60, 63, 147, 255] {
            assert_eq!(Op::from_byte(byte), None);
        }
    }

    /// [level-9] An operation unknown to the previous release waits for the group's feature level.
    #[test]
    fn operations_after_level_8_are_listed_with_a_level() {
        const OF_LEVEL_8: [std::ops::RangeInclusive<u8>; 2] = [1..=47, 64..=124];
        let new = Op::ALL.into_iter().filter(|op| {
            let number = *op as u8;
            !OF_LEVEL_8.iter().any(|known| known.contains(&number))
        });
        assert_eq!(
            new.collect::<Vec<_>>(),
            [
                Op::ScriptRo,
                Op::XRange,
                Op::XRead,
                Op::XPending,
                Op::XInfo,
                Op::XUndelivered,
                Op::PfCount,
                Op::GeoMembers,
                Op::GeoDist,
                Op::GeoSearch,
                Op::Lcs,
                Op::ScanNames,
                Op::Bounded,
                Op::Script,
                Op::XAdd,
                Op::XDel,
                Op::XTrim,
                Op::XSetId,
                Op::XGroup,
                Op::XReadGroup,
                Op::XAck,
                Op::XClaim,
                Op::XAutoClaim,
                Op::Announce,
                Op::PfAdd,
                Op::PfMerge,
                Op::GeoStore,
                Op::HGetDel,
                Op::In,
                Op::ExecIn,
                Op::FlushAll,
                Op::SwapDb,
                Op::MoveDb,
                Op::CopyTo
            ],
            "let Service::level_of say the level of a command with it, in transactions and scripts, too"
        );
    }
}
