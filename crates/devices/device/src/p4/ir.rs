//! A program in which every name is a number: variables are slots of one array, controls and
//! actions are in place.

use crate::p4::{Place, ast::Binary};

/// An index of a variable: a field, a header's validity, a local.
pub type Slot = usize;

/// A whole program for v1model.
#[derive(Clone, Debug)]
pub struct Program {
    pub(crate) slots: Vec<SlotInfo>,
    pub(crate) standard: Standard,
    pub(crate) states: Vec<State>,
    /// Verify, ingress, egress, compute, deparser.
    pub(crate) controls: [Vec<Op>; 5],
    pub(crate) tables: Vec<Table>,
    pub(crate) registers: Vec<Register>,
    /// First state of the parser.
    pub(crate) start: usize,
    pub(crate) headers: Vec<Header>,
}

/// Name of a variable, and whether it has a value when a packet arrives.
#[derive(Clone, Debug)]
pub(crate) struct SlotInfo {
    pub(crate) name: String,
    pub(crate) zeroed: bool,
}

/// Fields of `standard_metadata_t` that the machine itself uses.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Standard {
    pub(crate) ingress_port: Slot,
    pub(crate) egress_spec: Slot,
    pub(crate) egress_port: Slot,
    pub(crate) packet_length: Slot,
    pub(crate) multicast: Slot,
    pub(crate) copy: Slot,
    pub(crate) checksum_error: Slot,
    pub(crate) parser_error: Slot,
}

/// A header that can be extracted and emitted: its validity, its fields in order with their widths.
#[derive(Clone, Debug)]
pub(crate) struct Header {
    pub(crate) valid: Slot,
    pub(crate) fields: Vec<(Slot, u32)>,
    pub(crate) bits: u32,
}

/// A place to write to.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub(crate) slot: Slot,
    /// Validity of the header that it belongs to.
    pub(crate) valid: Option<Slot>,
    pub(crate) slice: Option<(u32, u32)>,
}

#[derive(Clone, Debug)]
pub(crate) enum Expr {
    Constant(u128),
    Read {
        slot: Slot,
        valid: Option<Slot>,
        place: Box<Place>,
    },
    Valid(Slot),
    Slice(Box<Self>, u32, u32),
    Not(Box<Self>),
    Complement(Box<Self>, u32),
    Negate(Box<Self>, u32),
    /// With the width of the result, and of the right side.
    Binary(Binary, Box<Self>, Box<Self>, u32, u32),
    Choose(Box<Self>, Box<Self>, Box<Self>),
    /// To fewer bits.
    Cut(Box<Self>, u32),
    /// Applies a table; whether an entry matched.
    Hit(usize, Box<Place>),
}

#[derive(Clone, Debug)]
pub(crate) enum Op {
    Set(Target, Expr, Box<Place>),
    If(Expr, Vec<Self>, Vec<Self>),
    /// A body that `return` leaves.
    Body(Vec<Self>),
    Return,
    Exit,
    Apply(usize),
    ReadRegister(usize, Target, Expr, Box<Place>),
    WriteRegister(usize, Expr, Expr, Box<Place>),
    Extract(usize, Box<Place>),
    Emit(usize),
    SetValid(usize, bool),
    Verify(Checksum),
    Update(Checksum, Target, Box<Place>),
    Drop,
    /// A variable has no value any more.
    Forget(Slot),
}

#[derive(Clone, Debug)]
pub(crate) struct Checksum {
    pub(crate) condition: Expr,
    pub(crate) data: Vec<(Expr, u32)>,
    pub(crate) expected: Option<Expr>,
}

#[derive(Clone, Debug)]
pub(crate) struct State {
    pub(crate) ops: Vec<Op>,
    pub(crate) keys: Vec<Expr>,
    pub(crate) cases: Vec<(Vec<Mask>, Next)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    State(usize),
    Accept,
    Reject,
}

/// Value and mask.
pub(crate) type Mask = (u128, u128);

#[derive(Clone, Debug)]
pub(crate) struct Table {
    pub(crate) keys: Vec<Expr>,
    pub(crate) entries: Vec<(Vec<Mask>, Vec<Op>)>,
    pub(crate) default: Vec<Op>,
}

#[derive(Clone, Debug)]
pub(crate) struct Register {
    pub(crate) name: String,
    pub(crate) size: usize,
}

/// Returns a number of this many bits, all ones.
pub(crate) const fn ones(width: u32) -> u128 {
    if width >= 128 { u128::MAX } else { (1 << width) - 1 }
}

/// Returns the result of an operator on two numbers; `width` is that of the result, or of both
/// sides of a comparison.
pub(crate) fn binary(operator: Binary, a: u128, b: u128, width: u32, right: u32) -> u128 {
    let most = ones(width);
    let shift = |by: u128| u32::try_from(by).ok().filter(|by| *by < width);
    match operator {
        Binary::Or => a | b,
        Binary::And => a & b,
        Binary::Equal => u128::from(a == b),
        Binary::Differ => u128::from(a != b),
        Binary::Less => u128::from(a < b),
        Binary::LessEqual => u128::from(a <= b),
        Binary::Greater => u128::from(a > b),
        Binary::GreaterEqual => u128::from(a >= b),
        Binary::BitOr => a | b,
        Binary::BitXor => a ^ b,
        Binary::BitAnd => a & b,
        Binary::Left => shift(b).map_or(0, |by| a << by & most),
        Binary::Right => shift(b).map_or(0, |by| a >> by),
        Binary::Add => a.wrapping_add(b) & most,
        Binary::Subtract => a.wrapping_sub(b) & most,
        Binary::AddSaturated => a.checked_add(b).map_or(most, |sum| sum.min(most)),
        Binary::SubtractSaturated => a.saturating_sub(b),
        Binary::Concatenate => a << right | b,
        Binary::Multiply => a.wrapping_mul(b) & most,
    }
}
