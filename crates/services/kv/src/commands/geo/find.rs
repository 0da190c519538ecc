//! GEOSEARCH and its relatives: execution on every node.

use std::ops::ControlFlow;

use super::{
    cell::Place,
    found::{Found, Point},
    run::{WRITTEN, place_of, score, write_distance, write_place},
    search::{Center, Search, with},
};
use crate::{
    commands::{
        budget::{COPIED_BYTES_MAX, VISITS_PER_FOUND},
        state::{Items, ReadContext, TOO_LARGE, WriteContext},
        view::{View, view},
        zset::{self, members::Member},
    },
    encode::{Decoder, Fault},
    key::Key,
    op::REPLY_BYTES_MAX,
    resp::reply::Reply,
    store::{Store, collection::Kind},
};

/// Cost of the distance of a member, in visits, with that of its place in the order.
const MEASURED: u64 = 3;

const NO_MEMBER: &str = "ERR could not decode requested zset member";

/// Reason for a search without a result.
enum Failed {
    /// The reply has the error.
    Refused,
    TooLarge,
}

/// Searches the sorted set at a key, if there is one. `None` stands for the absent key.
fn search(
    search: &Search<'_>,
    store: &dyn Store,
    key: Key<'_>,
    bytes_max: usize,
    reply: &mut Reply<'_>,
) -> Result<Option<Vec<Point>>, Failed> {
    let Some(set) = view(store, key, Kind::Zset, reply).map_err(|_| Failed::Refused)? else {
        return Ok(None);
    };
    let center = match search.center {
        Center::Place(place) => place,
        Center::Member(member) => match place_of(&set, member) {
            Some(place) => place,
            None => {
                reply.error(NO_MEMBER);
                return Err(Failed::Refused);
            }
        },
    };
    let mut found = Found::new(search, bytes_max);
    each_inside(search, &set, center, &mut |point| found.add(point));
    found.into_points().ok_or(Failed::TooLarge).map(Some)
}

/// Passes the members inside the area to `each`.
fn each_inside(
    search: &Search<'_>,
    set: &View<'_>,
    center: Place,
    each: &mut dyn FnMut(Point) -> ControlFlow<()>,
) {
    let around = search.around(center);
    let mut go_on = ControlFlow::Continue(());
    for cell in around.cells() {
        if !set.store.meter().count_visits(VISITS_PER_FOUND) {
            return;
        }
        let (least, end) = cell.scores();
        let (least, end) = (score(least as f64), score(end as f64));
        zset::range::between(set, least, end, &mut |member, score| {
            if !set.store.meter().count_visits(MEASURED) {
                return ControlFlow::Break(());
            }
            let place = Place::of_score(score.number());
            if let Some(distance) = around.distance(place) {
                let member = member.to_vec();
                go_on = each(Point { member, score, place, distance });
            }
            go_on
        });
        if go_on.is_break() {
            return;
        }
    }
}

/// Executes GEOSEARCH, or GEORADIUS and its relatives without STORE.
pub(super) fn find(
    from: &mut Decoder<'_>,
    state: &ReadContext<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    let (key, wanted) = (from.key()?, Search::decode(from)?);
    from.end()?;
    let points = match search(&wanted, state.store, key, REPLY_BYTES_MAX, reply) {
        Ok(points) => points.unwrap_or_default(),
        Err(Failed::Refused) => return Ok(()),
        Err(Failed::TooLarge) => {
            reply.error(TOO_LARGE);
            return Ok(());
        }
    };
    let mut items = Items::default();
    for point in &points {
        if wanted.with & with::PLACE != 0 && !state.store.meter().count_visits(WRITTEN) {
            return Ok(());
        }
        write_point(point, &wanted, &mut items.next());
        if items.exceed_reply_limit() {
            break;
        }
    }
    items.write(reply, Reply::array);
    Ok(())
}

fn write_point(point: &Point, wanted: &Search<'_>, reply: &mut Reply<'_>) {
    let has = |part| wanted.with & part != 0;
    let parts = [with::DISTANCE, with::HASH, with::PLACE].into_iter().filter(|part| has(*part));
    match parts.count() {
        0 => {}
        parts => reply.array(1 + parts),
    }
    reply.bulk(&point.member);
    if has(with::DISTANCE) {
        write_distance(point.distance, wanted.unit, reply);
    }
    if has(with::HASH) {
        reply.integer(point.score.number() as i64);
    }
    if has(with::PLACE) {
        write_place(point.place, reply);
    }
}

/// Executes GEOSEARCHSTORE, or GEORADIUS and GEORADIUSBYMEMBER with STORE.
pub(super) fn store(
    from: &mut Decoder<'_>,
    state: &mut WriteContext<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    let (target, flags) = (from.key()?, from.byte()?);
    let (key, wanted) = (from.key()?, Search::decode(from)?);
    from.end()?;
    let points = match search(&wanted, state.store, key, COPIED_BYTES_MAX, reply) {
        Ok(points) => points.unwrap_or_default(),
        Err(Failed::Refused) => return Ok(()),
        Err(Failed::TooLarge) => return Err(Fault::Budget),
    };
    let distances = flags & stored::DISTANCES != 0;
    let stored = |point: Point| -> Member {
        let distance = point.distance / wanted.unit.meters();
        (point.member, if distances { score(distance) } else { point.score })
    };
    let members: Vec<Member> = points.into_iter().map(stored).collect();
    let event = match flags & stored::BY_SEARCH {
        0 => "georadiusstore",
        _ => "geosearchstore",
    };
    zset::run::put_all(state, target, &members, event)?;
    reply.count(members.len());
    Ok(())
}

/// Flags of [`Op::GeoStore`](crate::op::Op::GeoStore).
pub(super) mod stored {
    /// Scores are distances.
    pub(crate) const DISTANCES: u8 = 1;
    /// The command is GEOSEARCHSTORE.
    pub(crate) const BY_SEARCH: u8 = 2;
}

/// Returns the number of members that a command of [`Op::GeoStore`](crate::op::Op::GeoStore)
/// stores.
pub(in crate::commands) fn to_store(
    from: &mut Decoder<'_>,
    store: &dyn Store,
) -> Result<u64, Fault> {
    from.key()?;
    from.byte()?;
    let (key, wanted) = (from.key()?, Search::decode(from)?);
    let found = search(&wanted, store, key, COPIED_BYTES_MAX, &mut Reply(&mut Vec::new()));
    Ok(found.ok().flatten().map_or(0, |points| points.len() as u64))
}
