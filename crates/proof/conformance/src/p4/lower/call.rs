//! Lowering of calls: actions, v1model functions, and methods of registers, tables, controls,
//! headers and packets.

use super::{Lowering, control::assignment_target};
use crate::p4::{
    Error, Place,
    ast::{self, ExprKind, Name},
    ir::{Checksum, Expr, Op},
    lower::scope::{ScopeEntry, Ty},
    token::error,
};

impl<'a> Lowering<'a> {
    pub(super) fn lower_call(
        &mut self,
        call: &'a ast::Expr,
        ops: &mut Vec<Op>,
    ) -> Result<(), Error> {
        self.count_op(&call.place)?;
        let ExprKind::Call(callee, types, arguments) = &call.kind else {
            return Err(error(&call.place, "expected a call"));
        };
        if !types.is_empty() {
            return Err(error(&call.place, "lookahead is not in the subset"));
        }
        let place = &call.place;
        match &callee.kind {
            ExprKind::Name(name) => self.lower_function_call(name, arguments, place, ops),
            ExprKind::Member(object, method) => {
                self.lower_method_call(object, method, arguments, place, ops)
            }
            _ => Err(error(place, "this cannot be called")),
        }
    }

    pub(super) fn lower_function_call(
        &mut self,
        name: &str,
        arguments: &'a [ast::Expr],
        place: &Place,
        ops: &mut Vec<Op>,
    ) -> Result<(), Error> {
        if let Some(ScopeEntry::Action(action)) = self.scope.find(name) {
            ops.extend(self.inline_action(action, arguments, place)?);
            return Ok(());
        }
        match (name, arguments) {
            ("NoAction", []) => Ok(()),
            ("mark_to_drop", [metadata]) => {
                let variable = self.resolve_variable(metadata)?;
                if variable.is_none_or(|variable| variable.ty != Ty::Struct(0)) {
                    return Err(error(&metadata.place, "expected standard_metadata"));
                }
                ops.push(Op::Drop);
                Ok(())
            }
            ("verify_checksum" | "update_checksum", [condition, data, checksum, algorithm]) => {
                let is_csum16 = matches!(&algorithm.kind, ExprKind::Member(inner, name)
                    if name.text == "csum16"
                        && matches!(&inner.kind, ExprKind::Name(name) if name == "HashAlgorithm"));
                if !is_csum16 {
                    return Err(error(&algorithm.place, "only csum16 is in the subset"));
                }
                let condition = self.lower_typed(condition, &Ty::Bool)?.expr;
                let data = self.lower_bit_strings(data)?;
                if name == "verify_checksum" {
                    let expected = self.lower_typed(checksum, &Ty::Bits(16))?.expr;
                    ops.push(Op::VerifyChecksum(Checksum {
                        condition,
                        data,
                        expected: Some(expected),
                    }));
                    return Ok(());
                }
                let variable = self.assigned_variable(checksum)?;
                if variable.ty != Ty::Bits(16) {
                    return Err(error(&checksum.place, "expected bit<16>"));
                }
                let sum = Checksum { condition, data, expected: None };
                let place = Box::new(checksum.place.clone());
                ops.push(Op::UpdateChecksum(sum, assignment_target(&variable), place));
                Ok(())
            }
            _ => Err(error(place, format!("there is no {name} with these arguments"))),
        }
    }

    /// Lowers a list of bit strings, whose total width must be a multiple of 16. Returns each with
    /// its width.
    pub(super) fn lower_bit_strings(
        &mut self,
        list: &ast::Expr,
    ) -> Result<Vec<(Expr, u32)>, Error> {
        let ExprKind::List(items) = &list.kind else {
            return Err(error(&list.place, "expected a list in braces"));
        };
        let mut data = Vec::new();
        let mut bits = 0;
        for item in items {
            let value = self.lower_expr(item)?;
            let Ty::Bits(width) = value.ty else {
                return Err(error(&item.place, "expected a bit string"));
            };
            bits += width;
            data.push((value.expr, width));
        }
        if !bits.is_multiple_of(16) {
            return Err(error(&list.place, format!("{bits} bits are no words of 16")));
        }
        Ok(data)
    }

    pub(super) fn lower_method_call(
        &mut self,
        object: &ast::Expr,
        method: &Name,
        arguments: &'a [ast::Expr],
        place: &Place,
        ops: &mut Vec<Op>,
    ) -> Result<(), Error> {
        let entry = match &object.kind {
            ExprKind::Name(name) => self.scope.find(name),
            _ => None,
        };
        let here = Box::new(place.clone());
        match (entry, method.text.as_str(), arguments) {
            (Some(ScopeEntry::Register(index, width)), "read", [to, at]) => {
                let variable = self.assigned_variable(to)?;
                if variable.ty != Ty::Bits(width) {
                    return Err(error(&to.place, format!("expected bit<{width}>")));
                }
                let at = self.lower_typed(at, &Ty::Bits(32))?.expr;
                ops.push(Op::ReadRegister(index, assignment_target(&variable), at, here));
                return Ok(());
            }
            (Some(ScopeEntry::Register(index, width)), "write", [at, value]) => {
                let at = self.lower_typed(at, &Ty::Bits(32))?.expr;
                let value = self.lower_typed(value, &Ty::Bits(width))?.expr;
                ops.push(Op::WriteRegister(index, at, value, here));
                return Ok(());
            }
            (Some(ScopeEntry::Table(index)), "apply", []) => {
                ops.push(Op::ApplyTable(index));
                return Ok(());
            }
            (Some(ScopeEntry::Instance(block, registers)), "apply", arguments) => {
                if arguments.len() != block.parameters.len() {
                    return Err(error(place, "another number of arguments is expected"));
                }
                let mut entries = Vec::new();
                for argument in arguments {
                    let variable = self.resolve_variable(argument)?;
                    let variable =
                        variable.ok_or_else(|| error(&argument.place, "expected a variable"))?;
                    entries.push(ScopeEntry::Variable(variable));
                }
                ops.extend(self.apply_block(block, &entries, &registers)?);
                return Ok(());
            }
            _ => {}
        }
        let variable = self.resolve_variable(object)?;
        let header = |this: &mut Self, expr: &ast::Expr| -> Result<usize, Error> {
            let variable = this.resolve_variable(expr)?;
            let header = variable.filter(|variable| matches!(variable.ty, Ty::Header(_)));
            let header = header.ok_or_else(|| error(&expr.place, "expected a header"))?;
            let found = this.headers.iter().position(|known| known.validity == header.slot);
            found.ok_or_else(|| error(&expr.place, "expected a header"))
        };
        match (variable.map(|variable| variable.ty), method.text.as_str(), arguments) {
            (Some(Ty::PacketIn), "extract", [to]) => {
                let index = header(self, to)?;
                if !self.headers[index].bit_width.is_multiple_of(8) {
                    return Err(error(&to.place, "this header is not whole bytes"));
                }
                ops.push(Op::Extract(index, here));
            }
            (Some(Ty::PacketOut), "emit", [from]) => {
                let index = header(self, from)?;
                ops.push(Op::Emit(index));
            }
            (Some(Ty::Header(_)), "setValid", []) => {
                ops.push(Op::SetValid(header(self, object)?, true));
            }
            (Some(Ty::Header(_)), "setInvalid", []) => {
                ops.push(Op::SetValid(header(self, object)?, false));
            }
            _ => {
                let why = format!("there is no {} with these arguments here", method.text);
                return Err(error(&method.place, why));
            }
        }
        Ok(())
    }
}
