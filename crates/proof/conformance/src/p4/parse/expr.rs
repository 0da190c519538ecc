//! Parses P4 expressions by operator precedence.

use super::{DEPTH_MAX, Parser};
use crate::p4::{
    Error,
    ast::{BinaryOperator, Expr, ExprKind, UnaryOperator},
    token::Kind,
};

impl Parser {
    pub(super) fn arguments(&mut self) -> Result<Vec<Expr>, Error> {
        self.expect_sign("(")?;
        let mut arguments = Vec::new();
        while !self.take_sign(")") {
            if !arguments.is_empty() {
                self.expect_sign(",")?;
            }
            arguments.push(self.expr()?);
        }
        Ok(arguments)
    }

    pub(super) fn expr(&mut self) -> Result<Expr, Error> {
        self.parse_nested(Self::conditional)
    }

    pub(super) fn conditional(&mut self) -> Result<Expr, Error> {
        let condition = self.binary(0)?;
        if !self.take_sign("?") {
            return Ok(condition);
        }
        let then = self.expr()?;
        self.expect_sign(":")?;
        let otherwise = self.expr()?;
        let place = condition.place.clone();
        let kind = ExprKind::Conditional(Box::new(condition), Box::new(then), Box::new(otherwise));
        Ok(Expr { kind, place })
    }

    /// Returns the operator at the current token, with its precedence and its number of tokens.
    pub(super) fn peek_operator(&self) -> Option<(BinaryOperator, usize, usize)> {
        let Kind::Sign(sign) = self.peek().kind else {
            return None;
        };
        let twice = matches!(self.peek_second().kind, Kind::Sign(">"))
            && self.peek_second().touches_previous;
        Some(match sign {
            "||" => (BinaryOperator::Or, 1, 1),
            "&&" => (BinaryOperator::And, 2, 1),
            "==" => (BinaryOperator::Equal, 3, 1),
            "!=" => (BinaryOperator::NotEqual, 3, 1),
            "<" => (BinaryOperator::Less, 4, 1),
            "<=" => (BinaryOperator::LessEqual, 4, 1),
            ">" if twice => (BinaryOperator::ShiftRight, 8, 2),
            ">" => (BinaryOperator::Greater, 4, 1),
            ">=" => (BinaryOperator::GreaterEqual, 4, 1),
            "|" => (BinaryOperator::BitOr, 5, 1),
            "^" => (BinaryOperator::BitXor, 6, 1),
            "&" => (BinaryOperator::BitAnd, 7, 1),
            "<<" => (BinaryOperator::ShiftLeft, 8, 1),
            "+" => (BinaryOperator::Add, 9, 1),
            "-" => (BinaryOperator::Subtract, 9, 1),
            "|+|" => (BinaryOperator::AddSaturated, 9, 1),
            "|-|" => (BinaryOperator::SubtractSaturated, 9, 1),
            "++" => (BinaryOperator::Concatenate, 9, 1),
            "*" => (BinaryOperator::Multiply, 10, 1),
            _ => return None,
        })
    }

    pub(super) fn binary(&mut self, least: usize) -> Result<Expr, Error> {
        let mut left = self.unary()?;
        let depth = self.depth;
        while let Some((operator, binds, words)) = self.peek_operator() {
            if binds <= least {
                break;
            }
            // A chain of operators is as deep as it is long.
            self.depth += 1;
            if self.depth > DEPTH_MAX {
                return self.fail("too deep");
            }
            self.token_index += words;
            let right = self.binary(binds)?;
            let place = left.place.clone();
            let kind = ExprKind::Binary(operator, Box::new(left), Box::new(right));
            left = Expr { kind, place };
        }
        self.depth = depth;
        Ok(left)
    }

    pub(super) fn unary(&mut self) -> Result<Expr, Error> {
        let place = self.place();
        for (sign, operator) in [
            ("!", UnaryOperator::Not),
            ("~", UnaryOperator::Complement),
            ("-", UnaryOperator::Negate),
        ] {
            if self.take_sign(sign) {
                let inner = self.parse_nested(Self::unary)?;
                let kind = ExprKind::Unary(operator, Box::new(inner));
                return Ok(Expr { kind, place });
            }
        }
        let cast = self.is_sign("(")
            && matches!(&self.peek_second().kind, Kind::Name(word) if word == "bit" || word == "bool");
        if cast {
            self.token_index += 1;
            let to = self.kind()?;
            self.expect_sign(")")?;
            let inner = self.parse_nested(Self::unary)?;
            let kind = ExprKind::Cast(to, Box::new(inner));
            return Ok(Expr { kind, place });
        }
        self.postfix()
    }

    pub(super) fn postfix(&mut self) -> Result<Expr, Error> {
        let mut inner = self.primary()?;
        let depth = self.depth;
        loop {
            self.depth += 1;
            if self.depth > DEPTH_MAX {
                return self.fail("too deep");
            }
            let place = inner.place.clone();
            let kind = if self.take_sign(".") {
                ExprKind::Member(Box::new(inner), self.name()?)
            } else if self.is_sign("[") {
                self.token_index += 1;
                let high = self.expr()?;
                self.expect_sign(":")?;
                let low = self.expr()?;
                self.expect_sign("]")?;
                ExprKind::Slice(Box::new(inner), Box::new(high), Box::new(low))
            } else if self.is_sign("(") {
                ExprKind::Call(Box::new(inner), Vec::new(), self.arguments()?)
            } else if self.is_sign("<") && is_lookahead(&inner) {
                self.token_index += 1;
                let kind = self.kind()?;
                self.expect_sign(">")?;
                ExprKind::Call(Box::new(inner), vec![kind], self.arguments()?)
            } else {
                self.depth = depth;
                return Ok(inner);
            };
            inner = Expr { kind, place };
        }
    }

    pub(super) fn primary(&mut self) -> Result<Expr, Error> {
        let place = self.place();
        let kind = match self.peek().kind.clone() {
            Kind::Number(number, width) => {
                self.token_index += 1;
                ExprKind::Number(number, width)
            }
            Kind::Name(name) => {
                self.token_index += 1;
                match name.as_str() {
                    "true" => ExprKind::Bool(true),
                    "false" => ExprKind::Bool(false),
                    _ => ExprKind::Name(name),
                }
            }
            Kind::Sign("(") => {
                self.token_index += 1;
                let inner = self.expr()?;
                self.expect_sign(")")?;
                return Ok(inner);
            }
            Kind::Sign("{") => {
                self.token_index += 1;
                let mut list = Vec::new();
                while !self.take_sign("}") {
                    if !list.is_empty() {
                        self.expect_sign(",")?;
                    }
                    list.push(self.expr()?);
                }
                ExprKind::List(list)
            }
            _ => {
                return self
                    .fail(format!("expected an expression, found {}", self.describe_token()));
            }
        };
        Ok(Expr { kind, place })
    }
}

fn is_lookahead(callee: &Expr) -> bool {
    matches!(&callee.kind, ExprKind::Member(_, name) if name.text == "lookahead")
}
