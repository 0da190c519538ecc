//! Sorted sets: client commands and their encoding.

mod combine;
pub(super) mod flag;
pub(super) mod members;
pub(super) mod range;
pub(super) mod run;

use self::range::{By, Query, Range};
use crate::{
    command::{Doc, READS, REMOVES, Refusal, Request, SYNTAX, Spec, WRITES},
    commands::{
        elements,
        family::{Family, Operation},
        score::Score,
    },
    encode::Encoder,
    op::Op,
    resp::integer::parse_integer,
    store::collection::Kind,
};

pub const FAMILY: Family = Family {
    commands: COMMANDS,
    operations: &[
        Operation::read(Op::ZScore, run::scores),
        Operation::read(Op::ZRank, run::rank),
        Operation::read(Op::ZCount, run::count),
        Operation::read(Op::ZRange, run::range),
        Operation::read(Op::ZRandMember, run::random),
        Operation::read(Op::ZCombine, combine::combine),
        Operation::read(Op::ZInterCard, combine::intersection_size),
        Operation::write(Op::ZAdd, run::add),
        Operation::write(Op::ZRem, run::remove),
        Operation::write(Op::ZRemRange, run::remove_range),
        Operation::write(Op::ZPop, run::pop),
        Operation::write(Op::ZMpop, run::pop_first),
        Operation::write(Op::ZRangeStore, run::store_range),
        Operation::write(Op::ZStore, combine::store),
    ],
};

const COMMANDS: &[Spec] = &[
    Spec::data(
        "zadd",
        -4,
        WRITES,
        (1, 1, 1),
        encode_zadd,
        Doc::new(
            "sorted-set",
            "1.2.0",
            "O(log(N)) for each member added",
            "Adds one or more members to a sorted set, or updates their scores. Creates the key if it doesn't exist.",
        ).with_difference("no hexadecimal scores"),
    ),
    Spec::data(
        "zincrby",
        4,
        WRITES,
        (1, 1, 1),
        encode_zincrby,
        Doc::new(
            "sorted-set",
            "1.2.0",
            "O(log(N))",
            "Increments the score of a member in a sorted set.",
        ).with_difference("no hexadecimal scores"),
    ),
    Spec::data(
        "zrem",
        -3,
        REMOVES,
        (1, 1, 1),
        encode_zrem,
        Doc::new(
            "sorted-set",
            "1.2.0",
            "O(log(N)) for each member removed",
            "Removes one or more members from a sorted set. Deletes the sorted set if all members were removed.",
        ),
    ),
    Spec::data(
        "zscore",
        3,
        READS,
        (1, 1, 1),
        encode_zscore,
        Doc::new(
            "sorted-set",
            "1.2.0",
            "O(log(N))",
            "Returns the score of a member in a sorted set.",
        ),
    ),
    Spec::data(
        "zmscore",
        -3,
        READS,
        (1, 1, 1),
        encode_zmscore,
        Doc::new(
            "sorted-set",
            "6.2.0",
            "O(N), where N is the number of members asked for",
            "Returns the score of one or more members in a sorted set.",
        ),
    ),
    Spec::data(
        "zcard",
        2,
        READS,
        (1, 1, 1),
        encode_zcard,
        Doc::new(
            "sorted-set",
            "1.2.0",
            "O(1)",
            "Returns the number of members in a sorted set.",
        ),
    ),
    Spec::data(
        "zrank",
        -3,
        READS,
        (1, 1, 1),
        encode_zrank,
        Doc::new(
            "sorted-set",
            "2.0.0",
            "O(N), where N is the distance to the nearer end",
            "Returns the index of a member in a sorted set ordered by ascending scores.",
        ),
    ),
    Spec::data(
        "zrevrank",
        -3,
        READS,
        (1, 1, 1),
        encode_zrevrank,
        Doc::new(
            "sorted-set",
            "2.0.0",
            "O(N), where N is the distance to the nearer end",
            "Returns the index of a member in a sorted set ordered by descending scores.",
        ),
    ),
    Spec::data(
        "zcount",
        4,
        READS,
        (1, 1, 1),
        encode_zcount,
        Doc::new(
            "sorted-set",
            "2.0.0",
            "O(N), where N is the number of members in the range",
            "Returns the count of members in a sorted set that have scores within a range.",
        ),
    ),
    Spec::data(
        "zlexcount",
        4,
        READS,
        (1, 1, 1),
        encode_zlexcount,
        Doc::new(
            "sorted-set",
            "2.8.9",
            "O(N), where N is the number of members in the range",
            "Returns the number of members in a sorted set within a lexicographical range.",
        ),
    ),
    Spec::data(
        "zrange",
        -4,
        READS,
        (1, 1, 1),
        encode_zrange,
        Doc::new(
            "sorted-set",
            "1.2.0",
            "O(N), where N is the number of members returned, and skipped from the nearer end",
            "Returns members in a sorted set within a range of indexes, scores or names.",
        ),
    ),
    Spec::data(
        "zrevrange",
        -4,
        READS,
        (1, 1, 1),
        encode_zrevrange,
        Doc::new(
            "sorted-set",
            "1.2.0",
            "O(N), where N is the number of members returned, and skipped from the nearer end",
            "Returns members in a sorted set within a range of indexes in reverse order.",
        ),
    ),
    Spec::data(
        "zrangebyscore",
        -4,
        READS,
        (1, 1, 1),
        encode_zrangebyscore,
        Doc::new(
            "sorted-set",
            "1.0.5",
            "O(N), where N is the number of members returned and skipped",
            "Returns members in a sorted set within a range of scores.",
        ),
    ),
    Spec::data(
        "zrevrangebyscore",
        -4,
        READS,
        (1, 1, 1),
        encode_zrevrangebyscore,
        Doc::new(
            "sorted-set",
            "2.2.0",
            "O(N), where N is the number of members returned and skipped",
            "Returns members in a sorted set within a range of scores in reverse order.",
        ),
    ),
    Spec::data(
        "zrangebylex",
        -4,
        READS,
        (1, 1, 1),
        encode_zrangebylex,
        Doc::new(
            "sorted-set",
            "2.8.9",
            "O(N), where N is the number of members returned and skipped",
            "Returns members in a sorted set within a lexicographical range.",
        ),
    ),
    Spec::data(
        "zrevrangebylex",
        -4,
        READS,
        (1, 1, 1),
        encode_zrevrangebylex,
        Doc::new(
            "sorted-set",
            "2.8.9",
            "O(N), where N is the number of members returned and skipped",
            "Returns members in a sorted set within a lexicographical range in reverse order.",
        ),
    ),
    Spec::data(
        "zrangestore",
        -5,
        WRITES,
        (1, 2, 1),
        encode_zrangestore,
        Doc::new(
            "sorted-set",
            "6.2.0",
            "O(N), where N is the number of members stored and skipped",
            "Stores a range of members from a sorted set in a key.",
        ),
    ),
    Spec::data(
        "zremrangebyrank",
        4,
        REMOVES,
        (1, 1, 1),
        encode_zremrangebyrank,
        Doc::new(
            "sorted-set",
            "2.0.0",
            "O(N), where N is the number of members removed, and skipped from the nearer end",
            "Removes members in a sorted set within a range of indexes. Deletes the sorted set if all members were removed.",
        ),
    ),
    Spec::data(
        "zremrangebyscore",
        4,
        REMOVES,
        (1, 1, 1),
        encode_zremrangebyscore,
        Doc::new(
            "sorted-set",
            "1.2.0",
            "O(N), where N is the number of members removed",
            "Removes members in a sorted set within a range of scores. Deletes the sorted set if all members were removed.",
        ),
    ),
    Spec::data(
        "zremrangebylex",
        4,
        REMOVES,
        (1, 1, 1),
        encode_zremrangebylex,
        Doc::new(
            "sorted-set",
            "2.8.9",
            "O(N), where N is the number of members removed",
            "Removes members in a sorted set within a lexicographical range. Deletes the sorted set if all members were removed.",
        ),
    ),
    Spec::data(
        "zpopmin",
        -2,
        REMOVES,
        (1, 1, 1),
        encode_zpopmin,
        Doc::new(
            "sorted-set",
            "5.0.0",
            "O(log(N)) for each member returned",
            "Returns the lowest-scoring members from a sorted set after removing them. Deletes the sorted set if the last member was popped.",
        ),
    ),
    Spec::data(
        "zpopmax",
        -2,
        REMOVES,
        (1, 1, 1),
        encode_zpopmax,
        Doc::new(
            "sorted-set",
            "5.0.0",
            "O(log(N)) for each member returned",
            "Returns the highest-scoring members from a sorted set after removing them. Deletes the sorted set if the last member was popped.",
        ),
    ),
    Spec::data(
        "zmpop",
        -4,
        REMOVES,
        (0, 0, 0),
        encode_zmpop,
        Doc::new(
            "sorted-set",
            "7.0.0",
            "O(K) + O(log(N)) for each member returned, where K is the number of keys",
            "Returns the highest- or lowest-scoring members from one or more sorted sets after removing them. Deletes the sorted set if the last member was popped.",
        ),
    ),
    Spec::data(
        "zrandmember",
        -2,
        READS,
        (1, 1, 1),
        encode_zrandmember,
        Doc::new(
            "sorted-set",
            "6.2.0",
            "O(N), where N is the number of members returned",
            "Returns one or more random members from a sorted set.",
        ).with_difference("nearly uniform"),
    ),
    Spec::data(
        "zscan",
        -3,
        READS,
        (1, 1, 1),
        encode_zscan,
        Doc::new(
            "sorted-set",
            "2.8.0",
            "O(1) for every call, O(N) for a complete iteration",
            "Iterates over members and scores of a sorted set.",
        ).with_difference("every member that is there throughout comes exactly once"),
    ),
    Spec::data(
        "zunion",
        -3,
        READS,
        (0, 0, 0),
        combine::encode_zunion,
        Doc::new(
            "sorted-set",
            "6.2.0",
            "O(N*log(N)), where N is the number of members in all sets",
            "Returns the union of multiple sorted sets.",
        ),
    ),
    Spec::data(
        "zinter",
        -3,
        READS,
        (0, 0, 0),
        combine::encode_zinter,
        Doc::new(
            "sorted-set",
            "6.2.0",
            "O(N*M*log(N)), where N is the size of the smallest set and M the number of sets",
            "Returns the intersect of multiple sorted sets.",
        ),
    ),
    Spec::data(
        "zdiff",
        -3,
        READS,
        (0, 0, 0),
        combine::encode_zdiff,
        Doc::new(
            "sorted-set",
            "6.2.0",
            "O(N*M*log(N)), where N is the size of the first set and M the number of sets",
            "Returns the difference between multiple sorted sets.",
        ),
    ),
    Spec::data(
        "zunionstore",
        -4,
        WRITES,
        (1, 1, 1),
        combine::encode_zunionstore,
        Doc::new(
            "sorted-set",
            "2.0.0",
            "O(N*log(N)), where N is the number of members in all sets",
            "Stores the union of multiple sorted sets in a key.",
        ),
    ),
    Spec::data(
        "zinterstore",
        -4,
        WRITES,
        (1, 1, 1),
        combine::encode_zinterstore,
        Doc::new(
            "sorted-set",
            "2.0.0",
            "O(N*M*log(N)), where N is the size of the smallest set and M the number of sets",
            "Stores the intersect of multiple sorted sets in a key.",
        ),
    ),
    Spec::data(
        "zdiffstore",
        -4,
        WRITES,
        (1, 1, 1),
        combine::encode_zdiffstore,
        Doc::new(
            "sorted-set",
            "6.2.0",
            "O(N*M*log(N)), where N is the size of the first set and M the number of sets",
            "Stores the difference of multiple sorted sets in a key.",
        ),
    ),
    Spec::data(
        "zintercard",
        -3,
        READS,
        (0, 0, 0),
        combine::encode_zintercard,
        Doc::new(
            "sorted-set",
            "7.0.0",
            "O(N*M), where N is the size of the smallest set and M the number of sets",
            "Returns the number of members of the intersect of multiple sorted sets.",
        ),
    ),
];

const NOT_A_FLOAT: &str = "ERR value is not a valid float";

fn encode_zadd(r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    let (mut flags, mut at) = (0, 1);
    while at < r.arguments.len() {
        flags |= match &*r.at(at).to_ascii_lowercase() {
            b"nx" => flag::NX,
            b"xx" => flag::XX,
            b"gt" => flag::GT,
            b"lt" => flag::LT,
            b"ch" => flag::CH,
            b"incr" => flag::INCR,
            _ => break,
        };
        at += 1;
    }
    let pairs = r.arguments.from(at).len();
    if pairs == 0 || !pairs.is_multiple_of(2) {
        return Err(SYNTAX.into());
    }
    let has = |flag| flags & flag != 0;
    if has(flag::NX) && has(flag::XX) {
        return Err("ERR XX and NX options at the same time are not compatible".into());
    }
    let orders = flags & (flag::GT | flag::LT);
    if (orders != 0 && has(flag::NX)) || orders.count_ones() > 1 {
        return Err("ERR GT, LT, and/or NX options at the same time are not compatible".into());
    }
    if has(flag::INCR) && pairs > 2 {
        return Err("ERR INCR option supports a single increment-element pair".into());
    }
    out.byte(Op::ZAdd as u8).bytes(r.at(0)).byte(flags);
    out.length(pairs);
    for at in (at..r.arguments.len()).step_by(2) {
        let score = Score::parse(r.at(at)).ok_or(NOT_A_FLOAT)?;
        out.bytes(&score.to_bytes()).bytes(r.field(at + 1)?);
    }
    Ok(())
}

fn encode_zincrby(r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    let score = Score::parse(r.at(1)).ok_or(NOT_A_FLOAT)?;
    out.byte(Op::ZAdd as u8)
        .bytes(r.at(0))
        .byte(flag::INCR)
        .length(2)
        .bytes(&score.to_bytes())
        .bytes(r.field(2)?);
    Ok(())
}

fn encode_zrem(r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    out.byte(Op::ZRem as u8).bytes(r.at(0));
    elements::write_fields(r, 1, out)
}

fn write_scores(many: bool, r: &Request<'_>, out: &mut Encoder<'_>) {
    out.byte(Op::ZScore as u8).bytes(r.at(0)).byte(u8::from(many));
    elements::write_rest(r, 1, out);
}

fn encode_zscore(r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    write_scores(false, r, out);
    Ok(())
}

fn encode_zmscore(r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    write_scores(true, r, out);
    Ok(())
}

fn encode_zcard(r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    elements::write_count(Kind::Zset, r, out);
    Ok(())
}

fn write_rank(back: bool, r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    let score = match r.arguments.len() {
        2 => false,
        3 if r.is(2, "withscore") => true,
        3 => return Err(SYNTAX.into()),
        _ => return Err(Refusal::Arity),
    };
    out.byte(Op::ZRank as u8)
        .bytes(r.at(0))
        .byte(u8::from(back))
        .byte(u8::from(score))
        .bytes(r.at(1));
    Ok(())
}

fn encode_zrank(r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    write_rank(false, r, out)
}

fn encode_zrevrank(r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    write_rank(true, r, out)
}

fn encode_zcount(r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    out.byte(Op::ZCount as u8).bytes(r.at(0));
    Range::scores(r.at(1), r.at(2))?.encode(out);
    Ok(())
}

fn encode_zlexcount(r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    out.byte(Op::ZCount as u8).bytes(r.at(0));
    Range::names(r.at(1), r.at(2))?.encode(out);
    Ok(())
}

/// Encodes a range command. Its name or options determine the kind and direction of the range.
fn write_range(
    by: Option<By>,
    back: Option<bool>,
    r: &Request<'_>,
    out: &mut Encoder<'_>,
) -> Result<(), Refusal> {
    let query = Query::parse(r, 1, by, back, true)?;
    out.byte(Op::ZRange as u8).bytes(r.at(0));
    query.encode(out);
    Ok(())
}

fn encode_zrange(r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    write_range(None, None, r, out)
}

fn encode_zrevrange(r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    write_range(Some(By::Rank), Some(true), r, out)
}

fn encode_zrangebyscore(r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    write_range(Some(By::Score), Some(false), r, out)
}

fn encode_zrevrangebyscore(r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    write_range(Some(By::Score), Some(true), r, out)
}

fn encode_zrangebylex(r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    write_range(Some(By::Name), Some(false), r, out)
}

fn encode_zrevrangebylex(r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    write_range(Some(By::Name), Some(true), r, out)
}

fn encode_zrangestore(r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    let query = Query::parse(r, 2, None, None, false)?;
    out.byte(Op::ZRangeStore as u8).bytes(r.at(0)).bytes(r.at(1));
    query.encode(out);
    Ok(())
}

fn write_remove_range(
    range: &Range<'_>,
    r: &Request<'_>,
    out: &mut Encoder<'_>,
) -> Result<(), Refusal> {
    out.byte(Op::ZRemRange as u8).bytes(r.at(0));
    range.encode(out);
    Ok(())
}

fn encode_zremrangebyrank(r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    write_remove_range(&Range::Ranks(r.integer(1)?, r.integer(2)?), r, out)
}

fn encode_zremrangebyscore(r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    write_remove_range(&Range::scores(r.at(1), r.at(2))?, r, out)
}

fn encode_zremrangebylex(r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    write_remove_range(&Range::names(r.at(1), r.at(2))?, r, out)
}

fn write_pop(max: bool, r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    let count = match r.arguments.len() {
        1 => None,
        2 => {
            let count = parse_integer(r.at(1)).and_then(|count| u64::try_from(count).ok());
            Some(count.ok_or("ERR value is out of range, must be positive")?)
        }
        _ => return Err(SYNTAX.into()),
    };
    out.byte(Op::ZPop as u8).bytes(r.at(0)).byte(u8::from(max));
    match count {
        None => out.byte(0),
        Some(count) => out.byte(1).count(count),
    };
    Ok(())
}

fn encode_zpopmin(r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    write_pop(false, r, out)
}

fn encode_zpopmax(r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    write_pop(true, r, out)
}

fn encode_zmpop(r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    let (keys, at) = elements::keys(r, 0, "ERR numkeys should be greater than 0")?;
    let max = is_max(r.at(at))?;
    let count = elements::pop_count(r, at + 1)?;
    out.byte(Op::ZMpop as u8).byte(u8::from(max)).count(count);
    out.keys(&keys);
    Ok(())
}

/// Parses MIN or MAX. Returns whether it is MAX.
pub(super) fn is_max(word: &[u8]) -> Result<bool, Refusal> {
    match &*word.to_ascii_lowercase() {
        b"min" => Ok(false),
        b"max" => Ok(true),
        _ => Err(SYNTAX.into()),
    }
}

fn encode_zrandmember(r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    let wanted = elements::Random::parse(r, "withscores")?;
    out.byte(Op::ZRandMember as u8).bytes(r.at(0));
    wanted.encode(out);
    Ok(())
}

fn encode_zscan(r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    elements::write_scan(Kind::Zset, r, out)
}
