//! Intermediate representation of a program: names are replaced by numbers, variables are slots in
//! one array, and controls and actions are inlined.

use crate::p4::{Place, ast::Binary};

/// Index of a variable: a field, the validity of a header, or a local variable.
pub type Slot = usize;

/// A program for v1model.
#[derive(Clone, Debug)]
pub struct Program {
    pub(crate) slots: Vec<SlotInfo>,
    pub(crate) standard: Standard,
    pub(crate) states: Vec<State>,
    /// Operations of the controls: verify, ingress, egress, compute, deparser.
    pub(crate) controls: [Vec<Op>; 5],
    pub(crate) tables: Vec<Table>,
    pub(crate) registers: Vec<Register>,
    /// Index of the parser's first state.
    pub(crate) start: usize,
    pub(crate) headers: Vec<Header>,
}

/// A variable's name and its initial state when a packet arrives: zero if `zeroed`, otherwise
/// undefined.
#[derive(Clone, Debug)]
pub(crate) struct SlotInfo {
    pub(crate) name: String,
    pub(crate) zeroed: bool,
}

/// Slots of the fields of `standard_metadata_t` that the machine uses.
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

/// A header that can be extracted and emitted: its validity, and its fields in order with their
/// widths.
#[derive(Clone, Debug)]
pub(crate) struct Header {
    pub(crate) valid: Slot,
    pub(crate) fields: Vec<(Slot, u32)>,
    pub(crate) bits: u32,
}

/// Destination of an assignment.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub(crate) slot: Slot,
    /// Validity of the header that contains the slot.
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
    /// Operator, operands, width of the result, and width of the right operand.
    Binary(Binary, Box<Self>, Box<Self>, u32, u32),
    Choose(Box<Self>, Box<Self>, Box<Self>),
    /// Truncates to this number of bits.
    Cut(Box<Self>, u32),
    /// Applies a table. The result is whether an entry matched.
    Hit(usize, Box<Place>),
}

#[derive(Clone, Debug)]
pub(crate) enum Op {
    Set(Target, Expr, Box<Place>),
    If(Expr, Vec<Self>, Vec<Self>),
    /// A body, which ends at `return`.
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
    /// Makes a variable undefined.
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

/// Returns the number with the lowest `width` bits set.
pub(crate) const fn ones(width: u32) -> u128 {
    if width >= 128 { u128::MAX } else { (1 << width) - 1 }
}

/// Returns the result of a binary operator. `width` is the width of the result, or of both operands
/// of a comparison. `right` is the width of the right operand.
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
