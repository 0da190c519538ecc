//! Values of keys, except streams.

use std::io::Read;

use super::{
    input::Input,
    packed::{PackedElements, intset_members},
    stream::{self, StreamForm},
    types::{Element, Kind, Malformed, RdbVisitor, ReadError},
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
    Stream(StreamForm),
}

/// Returns the type and encoding with the code `code`. Values of modules are not among them.
pub(super) fn parse_encoding(code: u8) -> Option<(Kind, Encoding)> {
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
        15 => (Kind::Stream, E::Stream(StreamForm::First)),
        16 => (Kind::Hash, E::FieldsListpack),
        17 => (Kind::SortedSet, E::ScoredListpack),
        18 => (Kind::List, E::Quicklist),
        19 => (Kind::Stream, E::Stream(StreamForm::Counters)),
        20 => (Kind::Set, E::MembersListpack),
        21 => (Kind::Stream, E::Stream(StreamForm::Activity)),
        24 => (Kind::Hash, E::FieldsExpiring),
        25 => (Kind::Hash, E::FieldsExpiringListpack),
        _ => return None,
    })
}

pub(super) fn read_value<R: Read>(
    encoding: Encoding,
    input: &mut Input<R>,
    visitor: &mut dyn RdbVisitor,
) -> Result<(), ReadError> {
    match encoding {
        Encoding::Value => {
            let value = input.read_string()?;
            visitor.visit_element(Element::Value(&value))?;
        }
        Encoding::Items | Encoding::Members | Encoding::ScoredText | Encoding::Scored => {
            for _ in 0..input.read_length()? {
                let name = input.read_string()?;
                visitor.visit_element(match encoding {
                    Encoding::Items => Element::Item(&name),
                    Encoding::Members => Element::Member(&name),
                    Encoding::ScoredText => Element::Scored(&name, read_score_text(input)?),
                    _ => Element::Scored(&name, read_score(input)?),
                })?;
            }
        }
        Encoding::Fields => {
            for _ in 0..input.read_length()? {
                let (field, value) = (input.read_string()?, input.read_string()?);
                visitor.visit_element(Element::Field(&field, &value, None))?;
            }
        }
        Encoding::FieldsExpiring => read_expiring_fields(input, visitor)?,
        Encoding::QuicklistZiplist | Encoding::Quicklist => {
            for _ in 0..input.read_length()? {
                read_quicklist_node(encoding, input, visitor)?;
            }
        }
        Encoding::FieldsExpiringListpack => {
            let _first_ms = input.read_unix_ms()?;
            read_packed(encoding, input, visitor)?;
        }
        Encoding::Stream(form) => stream::read_stream(form, input, visitor)?,
        _ => read_packed(encoding, input, visitor)?,
    }
    Ok(())
}

/// Reads a node of a quicklist: a listpack, a ziplist, or one large item.
fn read_quicklist_node<R: Read>(
    encoding: Encoding,
    input: &mut Input<R>,
    visitor: &mut dyn RdbVisitor,
) -> Result<(), ReadError> {
    const PLAIN: u64 = 1;
    const PACKED: u64 = 2;
    let is_plain = match encoding {
        Encoding::Quicklist => match input.read_length()? {
            PLAIN => true,
            PACKED => false,
            _ => return Err(input.malformed_at_position("a node of a list has an unknown form")),
        },
        _ => false,
    };
    if is_plain {
        let item = input.read_string()?;
        return Ok(visitor.visit_element(Element::Item(&item))?);
    }
    read_packed(encoding, input, visitor)
}

/// Reads a string that holds many elements.
fn read_packed<R: Read>(
    encoding: Encoding,
    input: &mut Input<R>,
    visitor: &mut dyn RdbVisitor,
) -> Result<(), ReadError> {
    use Encoding as E;
    let bytes = input.read_string()?;
    if encoding == E::Intset {
        for member in input.locate_error(intset_members(&bytes))? {
            visitor.visit_element(Element::Member(member.to_string().as_bytes()))?;
        }
        return Ok(());
    }
    let elements = match encoding {
        E::ItemsZiplist | E::QuicklistZiplist | E::ScoredZiplist | E::FieldsZiplist => {
            PackedElements::ziplist(&bytes)
        }
        E::FieldsZipmap => PackedElements::zipmap(&bytes),
        _ => PackedElements::listpack(&bytes),
    };
    let mut elements = input.locate_error(elements)?;
    while let Some(first) = input.locate_error(elements.next())? {
        match encoding {
            E::MembersListpack => visitor.visit_element(Element::Member(&first))?,
            E::ScoredZiplist | E::ScoredListpack => {
                let score = elements.next_required().and_then(|text| parse_score(&text));
                visitor.visit_element(Element::Scored(&first, input.locate_error(score)?))?;
            }
            E::FieldsZipmap => {
                let value = input.locate_error(elements.next_zipmap_value())?;
                visitor.visit_element(Element::Field(&first, &value, None))?;
            }
            E::FieldsZiplist | E::FieldsListpack => {
                let value = input.locate_error(elements.next_required())?;
                visitor.visit_element(Element::Field(&first, &value, None))?;
            }
            E::FieldsExpiringListpack => {
                let value = input.locate_error(elements.next_required())?;
                let ms = u64::try_from(input.locate_error(elements.next_int())?).unwrap_or(0);
                visitor.visit_element(Element::Field(&first, &value, (ms != 0).then_some(ms)))?;
            }
            _ => visitor.visit_element(Element::Item(&first))?,
        }
    }
    Ok(())
}

/// Reads a hash whose fields expire: each field's moment counts from one less than the earliest.
fn read_expiring_fields<R: Read>(
    input: &mut Input<R>,
    visitor: &mut dyn RdbVisitor,
) -> Result<(), ReadError> {
    let first_ms = input.read_unix_ms()?;
    for _ in 0..input.read_length()? {
        let after = input.read_length()?;
        let ms = after.checked_sub(1).map(|after| first_ms.saturating_add(after));
        let (field, value) = (input.read_string()?, input.read_string()?);
        visitor.visit_element(Element::Field(&field, &value, ms))?;
    }
    Ok(())
}

fn read_score<R: Read>(input: &mut Input<R>) -> Result<f64, ReadError> {
    let score = f64::from_le_bytes(input.read_array()?);
    if score.is_nan() {
        Err(input.malformed_at_position("a score is not a number"))
    } else {
        Ok(score)
    }
}

fn read_score_text<R: Read>(input: &mut Input<R>) -> Result<f64, ReadError> {
    let mut text = Vec::new();
    match input.read_byte()? {
        253 => return Err(input.malformed_at_position("a score is not a number")),
        254 => return Ok(f64::INFINITY),
        255 => return Ok(f64::NEG_INFINITY),
        length => {
            for _ in 0..length {
                text.push(input.read_byte()?);
            }
        }
    }
    input.locate_error(parse_score(&text))
}

fn parse_score(text: &[u8]) -> Result<f64, Malformed> {
    let score = std::str::from_utf8(text).ok().and_then(|text| text.parse::<f64>().ok());
    score.filter(|score| !score.is_nan()).ok_or(Malformed("a score is not a number"))
}
