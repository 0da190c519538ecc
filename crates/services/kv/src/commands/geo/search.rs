//! Searches for places, as commands contain them.

use super::{
    cell::Place,
    shape::{Around, Shape},
    unit::Unit,
};
use crate::encode::{Decoder, Encoder, Malformed};

/// Parts of the reply.
pub(super) mod with {
    pub(crate) const DISTANCE: u8 = 1;
    pub(crate) const HASH: u8 = 2;
    pub(crate) const PLACE: u8 = 4;
}

/// Center of a search.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Center<'a> {
    Place(Place),
    Member(&'a [u8]),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    None = 0,
    Nearest = 1,
    Farthest = 2,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Search<'a> {
    pub(super) center: Center<'a>,
    pub(super) shape: Shape,
    pub(super) unit: Unit,
    pub(super) order: Order,
    /// Maximum number of members; `None` if unlimited.
    pub(super) most: Option<u64>,
    /// Any members will do, not the nearest ones.
    pub(super) any: bool,
    pub(super) with: u8,
}

impl<'a> Search<'a> {
    pub(super) fn encode(&self, out: &mut Encoder<'_>) {
        match self.center {
            Center::Place(Place { longitude, latitude }) => {
                out.byte(0).word(longitude.to_bits()).word(latitude.to_bits())
            }
            Center::Member(member) => out.byte(1).bytes(member),
        };
        match self.shape {
            Shape::Circle { radius } => out.byte(0).word(radius.to_bits()),
            Shape::Box { width, height } => {
                out.byte(1).word(width.to_bits()).word(height.to_bits())
            }
        };
        out.byte(self.unit as u8).byte(self.order as u8).byte(u8::from(self.any)).byte(self.with);
        out.count(self.most.unwrap_or(0));
    }

    pub(super) fn decode(from: &mut Decoder<'a>) -> Result<Self, Malformed> {
        let number = |from: &mut Decoder<'_>| from.word().map(f64::from_bits);
        let length = |from: &mut Decoder<'_>| {
            // Not a NaN.
            number(from).and_then(|length| if length >= 0.0 { Ok(length) } else { Err(Malformed) })
        };
        let center = match from.byte()? {
            0 => {
                let place = Place { longitude: number(from)?, latitude: number(from)? };
                if !place.is_on_map() {
                    return Err(Malformed);
                }
                Center::Place(place)
            }
            1 => Center::Member(from.bytes()?),
            _ => return Err(Malformed),
        };
        let shape = match from.byte()? {
            0 => Shape::Circle { radius: length(from)? },
            1 => Shape::Box { width: length(from)?, height: length(from)? },
            _ => return Err(Malformed),
        };
        let unit = Unit::decode(from)?;
        let order = match from.byte()? {
            0 => Order::None,
            1 => Order::Nearest,
            2 => Order::Farthest,
            _ => return Err(Malformed),
        };
        let (any, with) = (from.byte()? != 0, from.byte()?);
        let most = Some(from.count()?).filter(|&most| most > 0);
        Ok(Self { center, shape, unit, order, most, any, with })
    }

    pub(super) const fn around(&self, center: Place) -> Around {
        Around { center, shape: self.shape }
    }
}
