//! Places: client commands and their encoding. Their keys are sorted sets, whose scores are places.

mod arguments;
mod cell;
mod earth;
pub(super) mod find;
mod found;
mod run;
mod search;
mod shape;
mod unit;

use self::{
    arguments::{Form, parse, place},
    find::stored,
    run::about,
    unit::Unit,
};
use crate::{
    command::{Doc, READS, Refusal, Request, SYNTAX, Spec, WRITES},
    commands::{
        elements,
        family::{Family, Operation},
        zset,
    },
    encode::Encoder,
    op::Op,
};

pub const FAMILY: Family = Family {
    commands: COMMANDS,
    operations: &[
        Operation::read(Op::GeoMembers, run::members),
        Operation::read(Op::GeoDist, run::distance),
        Operation::read(Op::GeoSearch, find::find),
        Operation::write(Op::GeoStore, find::store),
    ],
};

const SEARCH: &str = "O(N+M*log(M)), where N is the number of members in the nine cells around the area, and M of those inside";

const COMMANDS: &[Spec] = &[
    Spec::data(
        "geoadd",
        -5,
        WRITES,
        (1, 1, 1),
        encode_geoadd,
        Doc::new(
            "geo",
            "3.2.0",
            "O(log(N)) for each member added",
            "Adds one or more members to a geospatial index. Creates the key if it doesn't exist.",
        ),
    ),
    Spec::data(
        "geodist",
        -4,
        READS,
        (1, 1, 1),
        encode_geodist,
        Doc::new(
            "geo",
            "3.2.0",
            "O(log(N))",
            "Returns the distance between two members of a geospatial index.",
        ),
    ),
    Spec::data(
        "geohash",
        -2,
        READS,
        (1, 1, 1),
        encode_geohash,
        Doc::new(
            "geo",
            "3.2.0",
            "O(log(N)) for each member asked for",
            "Returns members of a geospatial index as geohash strings.",
        ),
    ),
    Spec::data(
        "geopos",
        -2,
        READS,
        (1, 1, 1),
        encode_geopos,
        Doc::new(
            "geo",
            "3.2.0",
            "O(log(N)) for each member asked for",
            "Returns the longitude and latitude of members of a geospatial index.",
        ),
    ),
    Spec::data(
        "geosearch",
        -7,
        READS,
        (1, 1, 1),
        encode_search,
        Doc::new(
            "geo",
            "6.2.0",
            SEARCH,
            "Returns the members of a geospatial index inside a box or a circle.",
        ),
    ),
    Spec::data(
        "geosearchstore",
        -8,
        WRITES,
        (1, 2, 1),
        encode_search,
        Doc::new(
            "geo",
            "6.2.0",
            SEARCH,
            "Stores the members of a geospatial index inside a box or a circle in a key.",
        ),
    ),
    Spec::data(
        "georadius",
        -6,
        WRITES,
        (1, 1, 1),
        encode_search,
        Doc::new(
            "geo",
            "3.2.0",
            SEARCH,
            "Returns the members of a geospatial index within a distance of a place, optionally storing them.",
        ),
    ),
    Spec::data(
        "georadiusbymember",
        -5,
        WRITES,
        (1, 1, 1),
        encode_search,
        Doc::new(
            "geo",
            "3.2.0",
            SEARCH,
            "Returns the members of a geospatial index within a distance of a member, optionally storing them.",
        ),
    ),
    Spec::data(
        "georadius_ro",
        -6,
        READS,
        (1, 1, 1),
        encode_search,
        Doc::new(
            "geo",
            "3.2.10",
            SEARCH,
            "Returns the members of a geospatial index within a distance of a place.",
        ),
    ),
    Spec::data(
        "georadiusbymember_ro",
        -5,
        READS,
        (1, 1, 1),
        encode_search,
        Doc::new(
            "geo",
            "3.2.10",
            SEARCH,
            "Returns the members of a geospatial index within a distance of a member.",
        ),
    ),
];

/// Encodes a change of a sorted set.
fn encode_geoadd(r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    let (mut flags, mut at) = (0, 1);
    while at < r.arguments.len() {
        flags |= match &*r.at(at).to_ascii_lowercase() {
            b"nx" => zset::flag::NX,
            b"xx" => zset::flag::XX,
            b"ch" => zset::flag::CH,
            _ => break,
        };
        at += 1;
    }
    let words = r.arguments.len() - at;
    let both = zset::flag::NX | zset::flag::XX;
    if words == 0 || !words.is_multiple_of(3) || flags & both == both {
        return Err(SYNTAX.into());
    }
    out.byte(Op::ZAdd as u8).bytes(r.at(0)).byte(flags).length(words / 3 * 2);
    for at in (at..r.arguments.len()).step_by(3) {
        let score = run::score(place(r, at)?.score() as f64);
        out.bytes(&score.to_bytes()).bytes(r.field(at + 2)?);
    }
    Ok(())
}

fn encode_geodist(r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    let unit = match r.arguments.len() {
        3 => Unit::Meter,
        4 => Unit::parse(r.at(3))?,
        _ => return Err(SYNTAX.into()),
    };
    out.byte(Op::GeoDist as u8).bytes(r.at(0)).byte(unit as u8).bytes(r.at(1)).bytes(r.at(2));
    Ok(())
}

fn write_members(wanted: u8, r: &Request<'_>, out: &mut Encoder<'_>) {
    out.byte(Op::GeoMembers as u8).bytes(r.at(0)).byte(wanted);
    elements::write_rest(r, 1, out);
}

fn encode_geohash(r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    write_members(about::TEXT, r, out);
    Ok(())
}

fn encode_geopos(r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    write_members(about::PLACE, r, out);
    Ok(())
}

/// Encodes GEOSEARCH and its relatives.
fn encode_search(r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    let form = Form::of(r.name);
    let (search, target) = parse(r, form)?;
    let source = usize::from(form == Form::Search { stores: true });
    match target {
        None => out.byte(Op::GeoSearch as u8),
        Some((target, distances)) => {
            let searches = matches!(form, Form::Search { .. });
            let flags = if distances { stored::DISTANCES } else { 0 }
                | if searches { stored::BY_SEARCH } else { 0 };
            out.byte(Op::GeoStore as u8).bytes(target.bytes()).byte(flags)
        }
    };
    search.encode(out.bytes(r.at(source)));
    Ok(())
}
