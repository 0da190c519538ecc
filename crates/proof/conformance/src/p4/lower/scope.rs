//! Scopes of names and types during lowering.

use std::collections::BTreeMap;

use crate::p4::{
    ast::{Action, Block},
    ir::{Expr, VariableIndex},
};

/// Type of an expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ty {
    Bits(u32),
    Bool,
    /// A number without a width: a constant that takes the width of the other operand.
    Int,
    Error,
    Header(usize),
    Struct(usize),
    PacketIn,
    PacketOut,
}

impl Ty {
    pub(crate) fn name(&self) -> String {
        match self {
            Self::Bits(width) => format!("bit<{width}>"),
            Self::Bool => "bool".to_owned(),
            Self::Int => "a number without a width".to_owned(),
            Self::Error => "error".to_owned(),
            Self::Header(_) => "a header".to_owned(),
            Self::Struct(_) => "a struct".to_owned(),
            Self::PacketIn | Self::PacketOut => "a packet".to_owned(),
        }
    }
}

/// Definition of a header or a struct.
#[derive(Clone, Debug)]
pub(crate) struct Struct {
    pub(crate) is_header: bool,
    pub(crate) fields: Vec<(String, Ty)>,
}

/// A variable. Its fields occupy consecutive slots, starting at `slot`.
#[derive(Clone, Debug)]
pub(crate) struct Variable {
    pub(crate) slot: VariableIndex,
    pub(crate) ty: Ty,
    /// Validity of the header that contains the variable.
    pub(crate) validity: Option<VariableIndex>,
    /// Set if the program may write to the variable.
    pub(crate) is_writable: bool,
    pub(crate) slice: Option<(u32, u32)>,
}

impl Variable {
    pub(crate) const fn packet(ty: Ty) -> Self {
        Self { slot: 0, ty, validity: None, is_writable: false, slice: None }
    }
}

/// A lowered expression with its type.
#[derive(Clone, Debug)]
pub(crate) struct Value {
    pub(crate) ty: Ty,
    pub(crate) expr: Expr,
    /// Value of a number without a width. Meaningless for other types.
    pub(crate) int_value: i128,
}

impl Value {
    pub(crate) const fn new(ty: Ty, expr: Expr) -> Self {
        Self { ty, expr, int_value: 0 }
    }

    pub(crate) const fn int(int: i128) -> Self {
        Self { ty: Ty::Int, expr: Expr::Constant(0), int_value: int }
    }

    /// Returns the value if it is known at compile time. Meaningless for numbers without a width,
    /// whose value is `int`.
    pub(crate) const fn constant_value(&self) -> Option<u128> {
        match self.expr {
            Expr::Constant(value) => Some(value),
            _ => None,
        }
    }
}

/// Meaning of a name.
#[derive(Clone, Debug)]
pub(crate) enum ScopeEntry<'a> {
    Constant(Ty, u128),
    Type(Ty),
    Block(&'a Block),
    Variable(Variable),
    Action(&'a Action),
    Table(usize),
    Register(usize, u32),
    /// An instance of a control, with its registers by name. All calls of the instance share them.
    Instance(&'a Block, BTreeMap<String, usize>),
}

/// Stack of scopes, the innermost last.
#[derive(Debug)]
pub(crate) struct Scope<'a>(Vec<BTreeMap<String, ScopeEntry<'a>>>);

impl Default for Scope<'_> {
    fn default() -> Self {
        Self(vec![BTreeMap::new()])
    }
}

impl<'a> Scope<'a> {
    pub(crate) fn open(&mut self) {
        self.0.push(BTreeMap::new());
    }

    pub(crate) fn close(&mut self) {
        self.0.pop();
    }

    /// Returns the number of open scopes, to be passed to [`Scope::hide_inner`].
    pub(crate) fn depth(&self) -> usize {
        self.0.len()
    }

    /// Removes the scopes inside the first `depth` ones, and returns them for `restore_inner`.
    /// Hides the caller's names from an inlined body.
    pub(crate) fn hide_inner(&mut self, depth: usize) -> Vec<BTreeMap<String, ScopeEntry<'a>>> {
        self.0.split_off(depth)
    }

    pub(crate) fn restore_inner(&mut self, inner: Vec<BTreeMap<String, ScopeEntry<'a>>>) {
        self.0.extend(inner);
    }

    /// Declares a name. Returns whether it is new in the innermost scope.
    pub(crate) fn declare(&mut self, name: &str, entry: ScopeEntry<'a>) -> bool {
        let innermost = self.0.last_mut().expect("one is always open");
        let is_new = !innermost.contains_key(name);
        innermost.insert(name.to_owned(), entry);
        is_new
    }

    pub(crate) fn find(&self, name: &str) -> Option<ScopeEntry<'a>> {
        self.0.iter().rev().find_map(|names| names.get(name)).cloned()
    }
}
