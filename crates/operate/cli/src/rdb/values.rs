//! Values of keys, except streams.

use std::io::Read;

use super::{
    input::Input,
    packed::{Elements, intset},
    stream::{self, Form},
    types::{Element, Kind, Malformed, ReadError, Visitor},
};

/// Encoding of a value, named by its type byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Encoding {
    Value,
    Items,
    ItemsZiplist,
    QuicklistZiplist,
    Quicklist,
    Members,
    Intset,
    MembersListpack,
    ScoredText,
    Scored,
    ScoredZiplist,
    ScoredListpack,
    Fields,
    FieldsZipmap,
    FieldsZiplist,
    FieldsListpack,
    FieldsExpiring,
    FieldsExpiringListpack,
    Stream(Form),
}

/// Returns the type and encoding with the code `code`. Values of modules are not among them.
pub(super) fn encoding(code: u8) -> Option<(Kind, Encoding)> {
    use Encoding as E;
    Some(match code {
        0 => (Kind::String, E::Value),
        1 => (Kind::List, E::Items),
        2 => (Kind::Set, E::Members),
        3 => (Kind::SortedSet, E::ScoredText),
        4 => (Kind::Hash, E::Fields),
        5 => (Kind::SortedSet, E::Scored),
        9 => (Kind::Hash, E::FieldsZipmap),
        10 => (Kind::List, E::ItemsZiplist),
        11 => (Kind::Set, E::Intset),
        12 => (Kind::SortedSet, E::ScoredZiplist),
        13 => (Kind::Hash, E::FieldsZiplist),
        14 => (Kind::List, E::QuicklistZiplist),
        15 => (Kind::Stream, E::Stream(Form::First)),
        16 => (Kind::Hash, E::FieldsListpack),
        17 => (Kind::SortedSet, E::ScoredListpack),
        18 => (Kind::List, E::Quicklist),
        19 => (Kind::Stream, E::Stream(Form::Counters)),
        20 => (Kind::Set, E::MembersListpack),
        21 => (Kind::Stream, E::Stream(Form::Activity)),
        24 => (Kind::Hash, E::FieldsExpiring),
        25 => (Kind::Hash, E::FieldsExpiringListpack),
        _ => return None,
    })
}

pub(super) fn read<R: Read>(
    encoding: Encoding,
    input: &mut Input<R>,
    visitor: &mut dyn Visitor,
) -> Result<(), ReadError> {
    match encoding {
        Encoding::Value => {
            let value = input.string()?;
            visitor.element(Element::Value(&value))?;
        }
        Encoding::Items | Encoding::Members | Encoding::ScoredText | Encoding::Scored => {
            for _ in 0..input.length()? {
                let name = input.string()?;
                visitor.element(match encoding {
                    Encoding::Items => Element::Item(&name),
                    Encoding::Members => Element::Member(&name),
                    Encoding::ScoredText => Element::Scored(&name, score_text(input)?),
                    _ => Element::Scored(&name, score(input)?),
                })?;
            }
        }
        Encoding::Fields => {
            for _ in 0..input.length()? {
                let (field, value) = (input.string()?, input.string()?);
                visitor.element(Element::Field(&field, &value, None))?;
            }
        }
        Encoding::FieldsExpiring => read_expiring_fields(input, visitor)?,
        Encoding::QuicklistZiplist | Encoding::Quicklist => {
            for _ in 0..input.length()? {
                read_node(encoding, input, visitor)?;
            }
        }
        Encoding::FieldsExpiringListpack => {
            let _first_ms = input.moment_ms()?;
            read_packed(encoding, input, visitor)?;
        }
        Encoding::Stream(form) => stream::read(form, input, visitor)?,
        _ => read_packed(encoding, input, visitor)?,
    }
    Ok(())
}

/// Reads a node of a quicklist: a listpack, a ziplist, or one large item.
fn read_node<R: Read>(
    encoding: Encoding,
    input: &mut Input<R>,
    visitor: &mut dyn Visitor,
) -> Result<(), ReadError> {
    const PLAIN: u64 = 1;
    const PACKED: u64 = 2;
    let is_plain = match encoding {
        Encoding::Quicklist => match input.length()? {
            PLAIN => true,
            PACKED => false,
            _ => return Err(input.malformed("a node of a list has an unknown form")),
        },
        _ => false,
    };
    if is_plain {
        let item = input.string()?;
        return Ok(visitor.element(Element::Item(&item))?);
    }
    read_packed(encoding, input, visitor)
}

/// Reads a string that holds many elements.
fn read_packed<R: Read>(
    encoding: Encoding,
    input: &mut Input<R>,
    visitor: &mut dyn Visitor,
) -> Result<(), ReadError> {
    use Encoding as E;
    let bytes = input.string()?;
    if encoding == E::Intset {
        for member in input.sensible(intset(&bytes))? {
            visitor.element(Element::Member(member.to_string().as_bytes()))?;
        }
        return Ok(());
    }
    let elements = match encoding {
        E::ItemsZiplist | E::QuicklistZiplist | E::ScoredZiplist | E::FieldsZiplist => {
            Elements::ziplist(&bytes)
        }
        E::FieldsZipmap => Elements::zipmap(&bytes),
        _ => Elements::listpack(&bytes),
    };
    let mut elements = input.sensible(elements)?;
    while let Some(first) = input.sensible(elements.next())? {
        match encoding {
            E::MembersListpack => visitor.element(Element::Member(&first))?,
            E::ScoredZiplist | E::ScoredListpack => {
                let score = elements.need().and_then(|text| parse_score(&text));
                visitor.element(Element::Scored(&first, input.sensible(score)?))?;
            }
            E::FieldsZipmap => {
                let value = input.sensible(elements.need_zipmap_value())?;
                visitor.element(Element::Field(&first, &value, None))?;
            }
            E::FieldsZiplist | E::FieldsListpack => {
                let value = input.sensible(elements.need())?;
                visitor.element(Element::Field(&first, &value, None))?;
            }
            E::FieldsExpiringListpack => {
                let value = input.sensible(elements.need())?;
                let ms = u64::try_from(input.sensible(elements.need_int())?).unwrap_or(0);
                visitor.element(Element::Field(&first, &value, (ms != 0).then_some(ms)))?;
            }
            _ => visitor.element(Element::Item(&first))?,
        }
    }
    Ok(())
}

/// Reads a hash whose fields expire: each field's moment counts from one less than the earliest.
fn read_expiring_fields<R: Read>(
    input: &mut Input<R>,
    visitor: &mut dyn Visitor,
) -> Result<(), ReadError> {
    let first_ms = input.moment_ms()?;
    for _ in 0..input.length()? {
        let after = input.length()?;
        let ms = after.checked_sub(1).map(|after| first_ms.saturating_add(after));
        let (field, value) = (input.string()?, input.string()?);
        visitor.element(Element::Field(&field, &value, ms))?;
    }
    Ok(())
}

fn score<R: Read>(input: &mut Input<R>) -> Result<f64, ReadError> {
    let score = f64::from_le_bytes(input.array()?);
    if score.is_nan() { Err(input.malformed("a score is not a number")) } else { Ok(score) }
}

fn score_text<R: Read>(input: &mut Input<R>) -> Result<f64, ReadError> {
    let mut text = Vec::new();
    match input.byte()? {
        253 => return Err(input.malformed("a score is not a number")),
        254 => return Ok(f64::INFINITY),
        255 => return Ok(f64::NEG_INFINITY),
        length => {
            for _ in 0..length {
                text.push(input.byte()?);
            }
        }
    }
    input.sensible(parse_score(&text))
}

fn parse_score(text: &[u8]) -> Result<f64, Malformed> {
    let score = std::str::from_utf8(text).ok().and_then(|text| text.parse::<f64>().ok());
    score.filter(|score| !score.is_nan()).ok_or(Malformed("a score is not a number"))
}
