//! Lowering of types, variables, and expressions that name a variable.

use super::{Lowering, OPS_MAX, REGISTER_ELEMENTS_MAX, SLOTS_MAX};
use crate::p4::{
    Error, Place,
    ast::{self, ExprKind, Type},
    ir::{self, SlotInfo},
    lower::scope::{ScopeEntry, Ty, Variable},
    token::error,
};

impl Lowering<'_> {
    /// Counts an operation. Fails if there are too many.
    pub(super) fn count_op(&mut self, place: &Place) -> Result<(), Error> {
        self.op_count += 1;
        if self.op_count > OPS_MAX {
            return Err(error(place, "the program is too long"));
        }
        Ok(())
    }

    pub(super) fn resolve_type(&mut self, kind: &Type) -> Result<Ty, Error> {
        match kind {
            Type::Bool => Ok(Ty::Bool),
            Type::Bits(width, place) => {
                let width = self.whole_number(width)?;
                match u32::try_from(width) {
                    Ok(width @ 1..=128) => Ok(Ty::Bits(width)),
                    _ => Err(error(place, "a bit string of the subset has 1 to 128 bits")),
                }
            }
            Type::Named(name) => match self.scope.find(&name.text) {
                Some(ScopeEntry::Type(ty)) => Ok(ty),
                _ => Err(error(&name.place, format!("there is no type {}", name.text))),
            },
        }
    }

    /// Evaluates a constant expression that is at least 0.
    pub(super) fn whole_number(&mut self, expr: &ast::Expr) -> Result<u128, Error> {
        let value = self.lower_expr(expr)?;
        let number = match value.ty {
            Ty::Int => u128::try_from(value.int_value).ok(),
            Ty::Bits(_) => value.constant_value(),
            _ => None,
        };
        number.ok_or_else(|| error(&expr.place, "expected a constant number"))
    }

    pub(super) fn count_elements(&mut self, size: u128, place: &Place) -> Result<usize, Error> {
        let size = usize::try_from(size).unwrap_or(usize::MAX);
        self.element_count = self.element_count.saturating_add(size);
        if self.element_count > REGISTER_ELEMENTS_MAX {
            return Err(error(place, "registers are too large"));
        }
        Ok(size)
    }

    /// Allocates the slots for a variable of this type.
    pub(super) fn allocate_variable(
        &mut self,
        name: &str,
        ty: &Ty,
        zeroed: bool,
        place: &Place,
    ) -> Result<Variable, Error> {
        self.count_op(place)?;
        let slot = self.slots.len();
        if slot > SLOTS_MAX {
            return Err(error(place, "there are too many variables"));
        }
        let mut push = |name: &str, zeroed| {
            self.slots.push(SlotInfo { name: name.to_owned(), zeroed });
        };
        match ty {
            Ty::Bits(_) | Ty::Bool | Ty::Error => push(name, zeroed),
            Ty::Header(index) => {
                // Headers are invalid when a packet arrives.
                push(name, true);
                let fields = self.structs[*index].fields.clone();
                let mut places = Vec::new();
                let mut bits = 0;
                for (field, ty) in &fields {
                    let at = self.slots.len();
                    self.allocate_variable(&format!("{name}.{field}"), ty, false, place)?;
                    if let Ty::Bits(width) = ty {
                        places.push((at, *width));
                        bits += width;
                    }
                }
                self.headers.push(ir::Header { validity: slot, fields: places, bit_width: bits });
            }
            Ty::Struct(index) => {
                let fields = self.structs[*index].fields.clone();
                for (field, ty) in &fields {
                    self.allocate_variable(&format!("{name}.{field}"), ty, zeroed, place)?;
                }
            }
            _ => return Err(error(place, format!("a variable cannot be {}", ty.name()))),
        }
        Ok(Variable { slot, ty: ty.clone(), validity: None, is_writable: true, slice: None })
    }

    fn slot_count(&self, ty: &Ty) -> usize {
        let of = |index: usize| -> usize {
            let fields = &self.structs[index].fields;
            fields.iter().map(|(_, ty)| self.slot_count(ty)).sum()
        };
        match ty {
            Ty::Header(index) => 1 + of(*index),
            Ty::Struct(index) => of(*index),
            _ => 1,
        }
    }

    /// Returns the variable that an expression names, or `None` if the expression does not name
    /// one.
    pub(super) fn resolve_variable(&mut self, expr: &ast::Expr) -> Result<Option<Variable>, Error> {
        match &expr.kind {
            ExprKind::Name(name) => Ok(match self.scope.find(name) {
                Some(ScopeEntry::Variable(variable)) => Some(variable),
                _ => None,
            }),
            ExprKind::Member(inner, name) => {
                let Some(outer) = self.resolve_variable(inner)? else {
                    return Ok(None);
                };
                let (Ty::Header(index) | Ty::Struct(index)) = outer.ty else {
                    return Ok(None);
                };
                let is_header = self.structs[index].is_header;
                let mut slot = outer.slot + usize::from(is_header);
                for (field, ty) in &self.structs[index].fields {
                    if *field == name.text {
                        return Ok(Some(Variable {
                            slot,
                            ty: ty.clone(),
                            validity: is_header.then_some(outer.slot),
                            ..outer
                        }));
                    }
                    slot += self.slot_count(ty);
                }
                Err(error(&name.place, format!("there is no field {}", name.text)))
            }
            ExprKind::Slice(inner, high, low) => {
                let Some(outer) = self.resolve_variable(inner)? else {
                    return Ok(None);
                };
                let Ty::Bits(width) = outer.ty else {
                    return Ok(None);
                };
                let (high, low) = self.slice_bounds(high, low, width)?;
                let below = outer.slice.map_or(0, |(_, below)| below);
                Ok(Some(Variable {
                    ty: Ty::Bits(high - low + 1),
                    slice: Some((high + below, low + below)),
                    ..outer
                }))
            }
            _ => Ok(None),
        }
    }

    pub(super) fn slice_bounds(
        &mut self,
        high: &ast::Expr,
        low: &ast::Expr,
        width: u32,
    ) -> Result<(u32, u32), Error> {
        let (place, first, last) = (&high.place, self.whole_number(high)?, self.whole_number(low)?);
        match (u32::try_from(first), u32::try_from(last)) {
            (Ok(high), Ok(low)) if low <= high && high < width => Ok((high, low)),
            _ => Err(error(place, format!("[{first}:{last}] does not lie in bit<{width}>"))),
        }
    }
}
