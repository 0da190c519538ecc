//! Lowering of expressions, with their types.

use super::Lowering;
use crate::p4::{
    Error, Place,
    ast::{self, BinaryOperator, ExprKind, UnaryOperator},
    ir::{self, Expr, low_bits_mask},
    lower::scope::{ScopeEntry, Ty, Value, Variable},
    token::error,
};

/// Names of the errors in core.p4, in order.
const ERROR_NAMES: [&str; 7] = [
    "NoError",
    "PacketTooShort",
    "NoMatch",
    "StackOutOfBounds",
    "HeaderTooShort",
    "ParserTimeout",
    "ParserInvalidArgument",
];
pub(crate) const PACKET_TOO_SHORT: u128 = 1;
pub(crate) const NO_MATCH: u128 = 2;

impl Lowering<'_> {
    /// Converts a value to a type. A number without a width gets the width of the type. Any other
    /// value must already have the type.
    pub(super) fn convert_value(
        &self,
        value: Value,
        ty: &Ty,
        place: &Place,
    ) -> Result<Value, Error> {
        match (&value.ty, ty) {
            (Ty::Int, Ty::Bits(width)) => {
                let number = u128::try_from(value.int_value).ok();
                let number = number.filter(|number| *number <= low_bits_mask(*width));
                let number = number.ok_or_else(|| {
                    error(place, format!("{} is no bit<{width}>", value.int_value))
                })?;
                Ok(Value::new(ty.clone(), Expr::Constant(number)))
            }
            (found, wanted) if found == wanted => Ok(value),
            (found, wanted) => {
                let why = format!("expected {}, found {}", wanted.name(), found.name());
                Err(error(place, why))
            }
        }
    }

    pub(super) fn lower_typed(&mut self, expr: &ast::Expr, ty: &Ty) -> Result<Value, Error> {
        let value = self.lower_expr(expr)?;
        self.convert_value(value, ty, &expr.place)
    }

    pub(super) fn lower_expr(&mut self, expr: &ast::Expr) -> Result<Value, Error> {
        self.count_op(&expr.place)?;
        let place = &expr.place;
        if let Some(variable) = self.resolve_variable(expr)? {
            return self.read_variable(&variable, place);
        }
        match &expr.kind {
            ExprKind::Number(number, None) => match i128::try_from(*number) {
                Ok(number) => Ok(Value::int(number)),
                Err(_) => Err(error(place, "a number without a width has at most 127 bits")),
            },
            ExprKind::Number(number, Some(width)) => {
                if !(1..=128).contains(width) || *number > low_bits_mask(*width) {
                    return Err(error(place, format!("{number} is no bit<{width}>")));
                }
                Ok(Value::new(Ty::Bits(*width), Expr::Constant(*number)))
            }
            ExprKind::Bool(value) => Ok(Value::new(Ty::Bool, Expr::Constant((*value).into()))),
            ExprKind::Name(name) => match self.scope.find(name) {
                Some(ScopeEntry::Constant(ty, value)) => Ok(Value::new(ty, Expr::Constant(value))),
                Some(_) => Err(error(place, format!("{name} is no value"))),
                None => Err(error(place, format!("there is no {name}"))),
            },
            ExprKind::Member(inner, name) => self.lower_member(inner, name, place),
            ExprKind::Slice(inner, high, low) => {
                let value = self.lower_expr(inner)?;
                let Ty::Bits(width) = value.ty else {
                    let why = format!("{} has no slices", value.ty.name());
                    return Err(error(place, why));
                };
                let (high, low) = self.slice_bounds(high, low, width)?;
                let ty = Ty::Bits(high - low + 1);
                let expr = match value.constant_value() {
                    Some(number) => Expr::Constant(number >> low & low_bits_mask(high - low + 1)),
                    None => Expr::Slice(Box::new(value.expr), high, low),
                };
                Ok(Value::new(ty, expr))
            }
            ExprKind::Unary(operator, inner) => self.lower_unary(*operator, inner),
            ExprKind::Binary(operator, left, right) => self.lower_binary(*operator, left, right),
            ExprKind::Conditional(condition, then, otherwise) => {
                let condition = self.lower_typed(condition, &Ty::Bool)?;
                let (a, b) = self.lower_operands(then, otherwise)?;
                if !matches!(a.ty, Ty::Bits(_) | Ty::Bool) {
                    return Err(error(place, "expected values that have a width"));
                }
                let parts = (Box::new(condition.expr), Box::new(a.expr), Box::new(b.expr));
                Ok(Value::new(a.ty, Expr::Conditional(parts.0, parts.1, parts.2)))
            }
            ExprKind::Cast(ty, inner) => {
                let ty = self.resolve_type(ty)?;
                let value = self.lower_expr(inner)?;
                self.cast_value(value, ty, place)
            }
            ExprKind::Call(callee, types, arguments) => {
                if let ExprKind::Member(inner, method) = &callee.kind
                    && method.text == "isValid"
                    && types.is_empty()
                    && arguments.is_empty()
                    && let Some(header) = self.resolve_variable(inner)?
                    && matches!(header.ty, Ty::Header(_))
                {
                    return Ok(Value::new(Ty::Bool, Expr::IsValid(header.slot)));
                }
                Err(error(place, "this call is no value of the subset"))
            }
            ExprKind::List(_) | ExprKind::Mask(..) | ExprKind::Any => {
                Err(error(place, "this is no value here"))
            }
        }
    }

    fn read_variable(&self, variable: &Variable, place: &Place) -> Result<Value, Error> {
        let whole = Expr::Read {
            slot: variable.slot,
            validity: variable.validity,
            place: Box::new(place.clone()),
        };
        if !matches!(variable.ty, Ty::Bits(_) | Ty::Bool | Ty::Error) {
            return Err(error(place, format!("{} is no value", variable.ty.name())));
        }
        let expr = match variable.slice {
            Some((high, low)) => Expr::Slice(Box::new(whole), high, low),
            None => whole,
        };
        Ok(Value::new(variable.ty.clone(), expr))
    }

    /// Lowers a member expression, such as `error.NoError` or `table.apply().hit`.
    fn lower_member(
        &mut self,
        inner: &ast::Expr,
        name: &ast::Name,
        place: &Place,
    ) -> Result<Value, Error> {
        if matches!(&inner.kind, ExprKind::Name(name) if name == "error") {
            let number = ERROR_NAMES.iter().position(|known| *known == name.text);
            let number = number.ok_or_else(|| error(&name.place, "no error of core.p4"))?;
            return Ok(Value::new(Ty::Error, Expr::Constant(number as u128)));
        }
        if let ExprKind::Call(callee, _, arguments) = &inner.kind
            && let ExprKind::Member(table, apply) = &callee.kind
            && let ExprKind::Name(table) = &table.kind
            && apply.text == "apply"
            && arguments.is_empty()
            && let Some(ScopeEntry::Table(index)) = self.scope.find(table)
        {
            let hit = Expr::TableHit(index, Box::new(place.clone()));
            return match name.text.as_str() {
                "hit" => Ok(Value::new(Ty::Bool, hit)),
                "miss" => Ok(Value::new(Ty::Bool, Expr::Not(Box::new(hit)))),
                _ => Err(error(&name.place, "expected hit or miss")),
            };
        }
        Err(error(place, "this has no fields"))
    }

    fn lower_unary(&mut self, operator: UnaryOperator, inner: &ast::Expr) -> Result<Value, Error> {
        let place = &inner.place;
        if operator == UnaryOperator::Not {
            let value = self.lower_typed(inner, &Ty::Bool)?;
            let expr = match value.constant_value() {
                Some(fixed) => Expr::Constant(u128::from(fixed == 0)),
                None => Expr::Not(Box::new(value.expr)),
            };
            return Ok(Value::new(Ty::Bool, expr));
        }
        let value = self.lower_expr(inner)?;
        match (operator, &value.ty) {
            (UnaryOperator::Negate, Ty::Int) => {
                let int = value.int_value.checked_neg();
                Ok(Value::int(int.ok_or_else(|| error(place, "too large"))?))
            }
            (_, Ty::Bits(width)) => {
                let width = *width;
                let fixed = value.constant_value();
                let expr = match (operator, fixed) {
                    (UnaryOperator::Complement, Some(fixed)) => {
                        Expr::Constant(!fixed & low_bits_mask(width))
                    }
                    (UnaryOperator::Complement, None) => {
                        Expr::Complement(Box::new(value.expr), width)
                    }
                    (_, Some(fixed)) => Expr::Constant(fixed.wrapping_neg() & low_bits_mask(width)),
                    (_, None) => Expr::Negate(Box::new(value.expr), width),
                };
                Ok(Value::new(Ty::Bits(width), expr))
            }
            _ => Err(error(place, format!("not for {}", value.ty.name()))),
        }
    }

    /// Lowers two operands of one type. A number without a width gets the width of the other
    /// operand.
    fn lower_operands(
        &mut self,
        left: &ast::Expr,
        right: &ast::Expr,
    ) -> Result<(Value, Value), Error> {
        let (a, b) = (self.lower_expr(left)?, self.lower_expr(right)?);
        match (&a.ty, &b.ty) {
            (Ty::Int, other) if *other != Ty::Int => {
                let a = self.convert_value(a, &b.ty.clone(), &left.place)?;
                Ok((a, b))
            }
            _ => {
                let ty = a.ty.clone();
                let b = self.convert_value(b, &ty, &right.place)?;
                Ok((a, b))
            }
        }
    }

    fn lower_binary(
        &mut self,
        operator: BinaryOperator,
        left: &ast::Expr,
        right: &ast::Expr,
    ) -> Result<Value, Error> {
        let place = &left.place;
        let is_shift = matches!(operator, BinaryOperator::ShiftLeft | BinaryOperator::ShiftRight);
        let (a, b) = if is_shift || operator == BinaryOperator::Concatenate {
            (self.lower_expr(left)?, self.lower_expr(right)?)
        } else {
            self.lower_operands(left, right)?
        };
        if a.ty == Ty::Int && b.ty == Ty::Int {
            return fold_ints(operator, a.int_value, b.int_value)
                .ok_or_else(|| error(place, "no number"));
        }
        let wrong = || {
            let why = format!("this operator is not for {} and {}", a.ty.name(), b.ty.name());
            error(place, why)
        };
        let (ty, width, other) = match (operator, &a.ty, &b.ty) {
            (BinaryOperator::Or | BinaryOperator::And, Ty::Bool, _) => (Ty::Bool, 1, 1),
            (BinaryOperator::Equal | BinaryOperator::NotEqual, Ty::Bool | Ty::Error, _) => {
                (Ty::Bool, 1, 1)
            }
            (BinaryOperator::Or | BinaryOperator::And, ..) => return Err(wrong()),
            (
                BinaryOperator::Equal
                | BinaryOperator::NotEqual
                | BinaryOperator::Less
                | BinaryOperator::LessEqual
                | BinaryOperator::Greater
                | BinaryOperator::GreaterEqual,
                Ty::Bits(width),
                Ty::Bits(_),
            ) => (Ty::Bool, *width, *width),
            (BinaryOperator::Concatenate, Ty::Bits(high), Ty::Bits(low)) => {
                let width = high + low;
                if width > 128 {
                    return Err(error(place, "more than 128 bits"));
                }
                (Ty::Bits(width), width, *low)
            }
            (
                BinaryOperator::ShiftLeft | BinaryOperator::ShiftRight,
                Ty::Bits(width),
                Ty::Bits(by),
            ) => (Ty::Bits(*width), *width, *by),
            (BinaryOperator::ShiftLeft | BinaryOperator::ShiftRight, Ty::Bits(width), Ty::Int) => {
                let by = u128::try_from(b.int_value).map_err(|_| wrong())?;
                let (ty, width) = (Ty::Bits(*width), *width);
                let by = Value::new(Ty::Bits(128), Expr::Constant(by));
                return Ok(fold_constants(operator, a, by, ty, width, 128));
            }
            (BinaryOperator::Concatenate, ..) => return Err(wrong()),
            (_, Ty::Bits(width), Ty::Bits(_)) => (Ty::Bits(*width), *width, *width),
            _ => return Err(wrong()),
        };
        Ok(fold_constants(operator, a, b, ty, width, other))
    }

    fn cast_value(&self, value: Value, ty: Ty, place: &Place) -> Result<Value, Error> {
        let fixed = value.constant_value();
        let expr = match (&value.ty, &ty) {
            (Ty::Int, Ty::Bits(width)) => {
                let bits = u128::from_ne_bytes(value.int_value.to_ne_bytes());
                Expr::Constant(bits & low_bits_mask(*width))
            }
            (Ty::Bits(from), Ty::Bits(to)) if to < from => match fixed {
                Some(fixed) => Expr::Constant(fixed & low_bits_mask(*to)),
                None => Expr::Truncate(Box::new(value.expr), *to),
            },
            (Ty::Bits(_), Ty::Bits(_)) | (Ty::Bool, Ty::Bits(1)) | (Ty::Bits(1), Ty::Bool) => {
                value.expr
            }
            (from, to) if from == to => value.expr,
            (from, to) => {
                let why = format!("no cast from {} to {}", from.name(), to.name());
                return Err(error(place, why));
            }
        };
        Ok(Value::new(ty, expr))
    }
}

fn fold_constants(
    operator: BinaryOperator,
    a: Value,
    b: Value,
    ty: Ty,
    width: u32,
    right: u32,
) -> Value {
    let expr = match (a.constant_value(), b.constant_value()) {
        (Some(a), Some(b)) => Expr::Constant(ir::apply_binary(operator, a, b, width, right)),
        _ => Expr::Binary(operator, Box::new(a.expr), Box::new(b.expr), width, right),
    };
    Value::new(ty, expr)
}

/// Returns the result of an operator on two numbers without a width, or `None` if there is none.
fn fold_ints(operator: BinaryOperator, a: i128, b: i128) -> Option<Value> {
    let truth = |is: bool| Some(Value::new(Ty::Bool, Expr::Constant(is.into())));
    let by = || u32::try_from(b).ok().filter(|by| *by < 127);
    let number = match operator {
        BinaryOperator::Equal => return truth(a == b),
        BinaryOperator::NotEqual => return truth(a != b),
        BinaryOperator::Less => return truth(a < b),
        BinaryOperator::LessEqual => return truth(a <= b),
        BinaryOperator::Greater => return truth(a > b),
        BinaryOperator::GreaterEqual => return truth(a >= b),
        BinaryOperator::Add => a.checked_add(b),
        BinaryOperator::Subtract => a.checked_sub(b),
        BinaryOperator::Multiply => a.checked_mul(b),
        BinaryOperator::BitAnd => Some(a & b),
        BinaryOperator::BitOr => Some(a | b),
        BinaryOperator::BitXor => Some(a ^ b),
        BinaryOperator::ShiftLeft => by().and_then(|by| a.checked_mul(1_i128.checked_shl(by)?)),
        BinaryOperator::ShiftRight => by().map(|by| a >> by),
        BinaryOperator::Or
        | BinaryOperator::And
        | BinaryOperator::Concatenate
        | BinaryOperator::AddSaturated
        | BinaryOperator::SubtractSaturated => None,
    };
    number.map(Value::int)
}
