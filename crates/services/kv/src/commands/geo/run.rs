//! Places of members: execution on every node.

use super::{cell::Place, earth, unit::Unit};
use crate::{
    commands::{
        score::Score,
        state::{Items, ReadContext},
        view::{View, view},
    },
    encode::{Decoder, Fault},
    resp::reply::Reply,
    store::collection::Kind,
};

/// Tag byte for the reply about members: coordinates for GEOPOS, text for GEOHASH.
pub(super) mod about {
    pub(crate) const PLACE: u8 = 0;
    pub(crate) const TEXT: u8 = 1;
}

/// Visits of writing a place, whose numbers have up to 20 digits.
pub(super) const WRITTEN: u64 = 16;

pub(super) fn place_of(set: &View<'_>, member: &[u8]) -> Option<Place> {
    Some(Place::of_score(set.score(member)?.number()))
}

/// Formats a number with up to 17 digits after the point, as Redis does.
pub(super) fn degrees(number: f64) -> String {
    let text = format!("{number:.17}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text == "-0" { "0" } else { text }.to_owned()
}

pub(super) fn write_place(place: Place, reply: &mut Reply<'_>) {
    reply.array(2);
    reply.double(&degrees(place.longitude));
    reply.double(&degrees(place.latitude));
}

/// Writes a distance in meters in a unit, with four digits after the point.
pub(super) fn write_distance(meters: f64, unit: Unit, reply: &mut Reply<'_>) {
    reply.bulk(format!("{:.4}", meters / unit.meters()).as_bytes());
}

pub(super) fn score(number: f64) -> Score {
    Score::new(number).unwrap_or(Score::ZERO)
}

/// Executes GEOPOS or GEOHASH.
pub(super) fn members(
    from: &mut Decoder<'_>,
    state: &ReadContext<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    let (key, wanted, members) = (from.key()?, from.byte()?, from.list()?);
    from.end()?;
    if wanted > about::TEXT {
        return Err(Fault::Malformed);
    }
    let Ok(set) = view(state.store, key, Kind::Zset, reply) else {
        return Ok(());
    };
    let mut items = Items::default();
    for member in members {
        let place = set.as_ref().and_then(|set| place_of(set, member));
        let writes = place.is_some() && wanted == about::PLACE;
        if writes && !state.store.meter().count_visits(WRITTEN) {
            return Ok(());
        }
        let reply = &mut items.next();
        match (place, wanted) {
            (None, about::PLACE) => reply.null_array(),
            (None, _) => reply.null(),
            (Some(place), about::PLACE) => write_place(place, reply),
            (Some(place), _) => reply.bulk(&place.text()),
        }
        if items.exceed_reply_limit() {
            break;
        }
    }
    items.write(reply, Reply::array);
    Ok(())
}

/// Executes GEODIST.
pub(super) fn distance(
    from: &mut Decoder<'_>,
    state: &ReadContext<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    let (key, unit) = (from.key()?, Unit::decode(from)?);
    let (one, other) = (from.bytes()?, from.bytes()?);
    from.end()?;
    let Ok(set) = view(state.store, key, Kind::Zset, reply) else {
        return Ok(());
    };
    let places = set.and_then(|set| Some((place_of(&set, one)?, place_of(&set, other)?)));
    match places {
        Some((one, other)) => write_distance(earth::distance(one, other), unit, reply),
        None => reply.null(),
    }
    Ok(())
}
