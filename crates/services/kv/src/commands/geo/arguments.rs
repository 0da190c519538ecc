//! Arguments of GEOSEARCH and its relatives.

use super::{
    cell::Place,
    search::{Center, Order, Search, with},
    shape::Shape,
    unit::Unit,
};
use crate::{
    command::{Refusal, Request, SYNTAX},
    commands::score::Score,
    key::Key,
};

/// Key to store the result in, and whether to store distances.
pub(super) type Target<'a> = (Key<'a>, bool);

/// Form of the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// GEOSEARCH or GEOSEARCHSTORE.
    Search { stores: bool },
    /// GEORADIUS or GEORADIUSBYMEMBER; with `_RO`, it does not store.
    Radius { by_member: bool, may_store: bool },
}

impl Form {
    pub(super) fn of(command: &str) -> Self {
        if let Some(rest) = command.strip_prefix("geosearch") {
            return Self::Search { stores: rest == "store" };
        }
        let by_member = command.starts_with("georadiusbymember");
        Self::Radius { by_member, may_store: !command.ends_with("_ro") }
    }
}

/// Returns a double, or the error `what`.
pub(super) fn number(text: &[u8], what: &'static str) -> Result<f64, Refusal> {
    Ok(Score::parse(text).ok_or(what)?.number())
}

pub(super) fn place(r: &Request<'_>, at: usize) -> Result<Place, Refusal> {
    const NOT_A_FLOAT: &str = "ERR value is not a valid float";
    let (longitude, latitude) =
        (number(r.at(at), NOT_A_FLOAT)?, number(r.at(at + 1), NOT_A_FLOAT)?);
    let place = Place { longitude, latitude };
    if !place.is_on_map() {
        let text = format!("ERR invalid longitude,latitude pair {longitude:.6},{latitude:.6}");
        return Err(Refusal::Text(text.into()));
    }
    Ok(place)
}

fn circle(r: &Request<'_>, at: usize) -> Result<(Shape, Unit), Refusal> {
    let radius = number(r.at(at), "ERR need numeric radius")?;
    if radius < 0.0 {
        return Err("ERR radius cannot be negative".into());
    }
    let unit = Unit::parse(r.at(at + 1))?;
    Ok((Shape::Circle { radius: radius * unit.meters() }, unit))
}

fn rectangle(r: &Request<'_>, at: usize) -> Result<(Shape, Unit), Refusal> {
    let width = number(r.at(at), "ERR need numeric width")?;
    let height = number(r.at(at + 1), "ERR need numeric height")?;
    if width < 0.0 || height < 0.0 {
        return Err("ERR height or width cannot be negative".into());
    }
    let unit = Unit::parse(r.at(at + 2))?;
    let meters = unit.meters();
    Ok((Shape::Box { width: width * meters, height: height * meters }, unit))
}

/// Arguments that have been read so far.
struct Options<'a> {
    form: Form,
    center: Option<Center<'a>>,
    shape: Option<(Shape, Unit)>,
    target: Option<Target<'a>>,
    order: Order,
    most: Option<u64>,
    any: bool,
    with: u8,
}

impl<'a> Options<'a> {
    /// Reads the arguments at fixed places, and returns the index of the next one.
    fn begin(r: &Request<'a>, form: Form) -> Result<(Self, usize), Refusal> {
        let mut options = Self {
            form,
            center: None,
            shape: None,
            target: None,
            order: Order::None,
            most: None,
            any: false,
            with: 0,
        };
        let at = match form {
            Form::Search { stores: false } => 1,
            Form::Search { stores: true } => {
                options.target = Some((Key::new(r.at(0))?, false));
                2
            }
            Form::Radius { by_member: true, .. } => {
                options.center = Some(Center::Member(r.at(1)));
                options.shape = Some(circle(r, 2)?);
                4
            }
            Form::Radius { by_member: false, .. } => {
                options.center = Some(Center::Place(place(r, 1)?));
                options.shape = Some(circle(r, 3)?);
                5
            }
        };
        Ok((options, at))
    }

    /// Reads an option, and returns the number of words after its name.
    fn read(&mut self, r: &Request<'a>, at: usize) -> Result<usize, Refusal> {
        let left = r.arguments.len() - at - 1;
        match &*r.at(at).to_ascii_lowercase() {
            b"withdist" => self.with |= with::DISTANCE,
            b"withhash" => self.with |= with::HASH,
            b"withcoord" => self.with |= with::PLACE,
            b"any" => self.any = true,
            b"asc" => self.order = Order::Nearest,
            b"desc" => self.order = Order::Farthest,
            b"count" if left >= 1 => {
                let count = u64::try_from(r.integer(at + 1)?).ok().filter(|&count| count > 0);
                self.most = Some(count.ok_or("ERR COUNT must be > 0")?);
                return Ok(1);
            }
            word => {
                return match self.form {
                    Form::Search { stores } => self.read_area(word, stores, r, at + 1, left),
                    Form::Radius { may_store, .. } if may_store && left >= 1 => {
                        let distances = match word {
                            b"store" => false,
                            b"storedist" => true,
                            _ => return Err(SYNTAX.into()),
                        };
                        self.target = Some((Key::new(r.at(at + 1))?, distances));
                        Ok(1)
                    }
                    Form::Radius { .. } => Err(SYNTAX.into()),
                };
            }
        }
        Ok(0)
    }

    /// Reads an option that only GEOSEARCH and GEOSEARCHSTORE have, with its arguments from `at`
    /// on.
    fn read_area(
        &mut self,
        word: &[u8],
        stores: bool,
        r: &Request<'a>,
        at: usize,
        left: usize,
    ) -> Result<usize, Refusal> {
        match (word, self.center, self.shape) {
            (b"frommember", None | Some(Center::Member(_)), _) if left >= 1 => {
                self.center = Some(Center::Member(r.at(at)));
                Ok(1)
            }
            (b"fromlonlat", None | Some(Center::Place(_)), _) if left >= 2 => {
                self.center = Some(Center::Place(place(r, at)?));
                Ok(2)
            }
            (b"byradius", _, None | Some((Shape::Circle { .. }, _))) if left >= 2 => {
                self.shape = Some(circle(r, at)?);
                Ok(2)
            }
            (b"bybox", _, None | Some((Shape::Box { .. }, _))) if left >= 3 => {
                self.shape = Some(rectangle(r, at)?);
                Ok(3)
            }
            (b"storedist", ..) if stores => {
                self.target = self.target.map(|(key, _)| (key, true));
                Ok(0)
            }
            _ => Err(SYNTAX.into()),
        }
    }

    fn end(self, r: &Request<'_>) -> Result<(Search<'a>, Option<Target<'a>>), Refusal> {
        if self.target.is_some() && self.with != 0 {
            let what = match self.form {
                Form::Search { .. } => "GEOSEARCHSTORE",
                Form::Radius { .. } => "STORE option in GEORADIUS",
            };
            let options = "is not compatible with WITHDIST, WITHHASH and WITHCOORD options";
            return Err(Refusal::Text(format!("ERR {what} {options}").into()));
        }
        let one_of = |words: &str| {
            let text = format!("ERR exactly one of {words} can be specified for {}", r.name);
            Refusal::Text(text.into())
        };
        let center = self.center.ok_or_else(|| one_of("FROMMEMBER or FROMLONLAT"))?;
        let (shape, unit) = self.shape.ok_or_else(|| one_of("BYRADIUS and BYBOX"))?;
        let Self { mut order, most, any, with, .. } = self;
        if any && most.is_none() {
            return Err("ERR the ANY argument requires COUNT argument".into());
        }
        // A number of members without an order means the nearest ones.
        if most.is_some() && order == Order::None && !any {
            order = Order::Nearest;
        }
        Ok((Search { center, shape, unit, order, most, any, with }, self.target))
    }
}

/// Parses the arguments of a command of this form.
pub(super) fn parse<'a>(
    r: &Request<'a>,
    form: Form,
) -> Result<(Search<'a>, Option<Target<'a>>), Refusal> {
    let (mut options, mut at) = Options::begin(r, form)?;
    while at < r.arguments.len() {
        at += 1 + options.read(r, at)?;
    }
    options.end(r)
}
