//! Intermediate representation of a program: names are replaced by numbers, variables are slots in
//! one array, and controls and actions are inlined.

use crate::p4::{Place, ast::BinaryOperator};

/// Index of a variable: a field, the validity of a header, or a local variable.
pub type VariableIndex = usize;

/// A program for v1model.
#[derive(Clone, Debug)]
pub struct Program {
    pub(crate) slots: Vec<SlotInfo>,
    pub(crate) standard_metadata: StandardMetadata,
    pub(crate) parser_states: Vec<ParserState>,
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
pub(crate) struct StandardMetadata {
    pub(crate) ingress_port: VariableIndex,
    pub(crate) egress_spec: VariableIndex,
    pub(crate) egress_port: VariableIndex,
    pub(crate) packet_length: VariableIndex,
    pub(crate) multicast_group: VariableIndex,
    pub(crate) copy_number: VariableIndex,
    pub(crate) checksum_error: VariableIndex,
    pub(crate) parser_error: VariableIndex,
}

/// A header that can be extracted and emitted: its validity, and its fields in order with their
/// widths.
#[derive(Clone, Debug)]
pub(crate) struct Header {
    pub(crate) validity: VariableIndex,
    pub(crate) fields: Vec<(VariableIndex, u32)>,
    pub(crate) bit_width: u32,
}

/// Destination of an assignment.
#[derive(Clone, Debug)]
pub(crate) struct AssignmentTarget {
    pub(crate) slot: VariableIndex,
    /// Validity of the header that contains the slot.
    pub(crate) validity: Option<VariableIndex>,
    pub(crate) slice: Option<(u32, u32)>,
}

#[derive(Clone, Debug)]
pub(crate) enum Expr {
    Constant(u128),
    Read {
        slot: VariableIndex,
        validity: Option<VariableIndex>,
        place: Box<Place>,
    },
    IsValid(VariableIndex),
    Slice(Box<Self>, u32, u32),
    Not(Box<Self>),
    Complement(Box<Self>, u32),
    Negate(Box<Self>, u32),
    /// Operator, operands, width of the result, and width of the right operand.
    Binary(BinaryOperator, Box<Self>, Box<Self>, u32, u32),
    Conditional(Box<Self>, Box<Self>, Box<Self>),
    /// Truncates to this number of bits.
    Truncate(Box<Self>, u32),
    /// Applies a table. The result is whether an entry matched.
    TableHit(usize, Box<Place>),
}

#[derive(Clone, Debug)]
pub(crate) enum Op {
    Assign(AssignmentTarget, Expr, Box<Place>),
    If(Expr, Vec<Self>, Vec<Self>),
    /// A body, which ends at `return`.
    Body(Vec<Self>),
    Return,
    Exit,
    ApplyTable(usize),
    ReadRegister(usize, AssignmentTarget, Expr, Box<Place>),
    WriteRegister(usize, Expr, Expr, Box<Place>),
    Extract(usize, Box<Place>),
    Emit(usize),
    SetValid(usize, bool),
    VerifyChecksum(Checksum),
    UpdateChecksum(Checksum, AssignmentTarget, Box<Place>),
    Drop,
    /// Makes a variable undefined.
    Undefine(VariableIndex),
}

#[derive(Clone, Debug)]
pub(crate) struct Checksum {
    pub(crate) condition: Expr,
    pub(crate) data: Vec<(Expr, u32)>,
    pub(crate) expected: Option<Expr>,
}

#[derive(Clone, Debug)]
pub(crate) struct ParserState {
    pub(crate) ops: Vec<Op>,
    pub(crate) keys: Vec<Expr>,
    pub(crate) cases: Vec<(Vec<Mask>, NextState)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NextState {
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
pub(crate) const fn low_bits_mask(width: u32) -> u128 {
    if width >= 128 { u128::MAX } else { (1 << width) - 1 }
}

/// Returns the result of a binary operator. `width` is the width of the result, or of both operands
/// of a comparison. `right` is the width of the right operand.
pub(crate) fn apply_binary(
    operator: BinaryOperator,
    a: u128,
    b: u128,
    width: u32,
    right: u32,
) -> u128 {
    let most = low_bits_mask(width);
    let shift = |by: u128| u32::try_from(by).ok().filter(|by| *by < width);
    match operator {
        BinaryOperator::Or => a | b,
        BinaryOperator::And => a & b,
        BinaryOperator::Equal => u128::from(a == b),
        BinaryOperator::NotEqual => u128::from(a != b),
        BinaryOperator::Less => u128::from(a < b),
        BinaryOperator::LessEqual => u128::from(a <= b),
        BinaryOperator::Greater => u128::from(a > b),
        BinaryOperator::GreaterEqual => u128::from(a >= b),
        BinaryOperator::BitOr => a | b,
        BinaryOperator::BitXor => a ^ b,
        BinaryOperator::BitAnd => a & b,
        BinaryOperator::ShiftLeft => shift(b).map_or(0, |by| a << by & most),
        BinaryOperator::ShiftRight => shift(b).map_or(0, |by| a >> by),
        BinaryOperator::Add => a.wrapping_add(b) & most,
        BinaryOperator::Subtract => a.wrapping_sub(b) & most,
        BinaryOperator::AddSaturated => a.checked_add(b).map_or(most, |sum| sum.min(most)),
        BinaryOperator::SubtractSaturated => a.saturating_sub(b),
        BinaryOperator::Concatenate => a << right | b,
        BinaryOperator::Multiply => a.wrapping_mul(b) & most,
    }
}
