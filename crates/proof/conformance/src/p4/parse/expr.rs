//! Parses P4 expressions by operator precedence.

use super::{DEPTH_MAX, Parser};
use crate::p4::{
    Error,
    ast::{Binary, Expr, ExprKind, Unary},
    token::Kind,
};

impl Parser {
    pub(super) fn arguments(&mut self) -> Result<Vec<Expr>, Error> {
        self.sign("(")?;
        let mut arguments = Vec::new();
        while !self.take_sign(")") {
            if !arguments.is_empty() {
                self.sign(",")?;
            }
            arguments.push(self.expr()?);
        }
        Ok(arguments)
    }

    pub(super) fn expr(&mut self) -> Result<Expr, Error> {
        self.deeper(Self::choose)
    }

    pub(super) fn choose(&mut self) -> Result<Expr, Error> {
        let condition = self.binary(0)?;
        if !self.take_sign("?") {
            return Ok(condition);
        }
        let then = self.expr()?;
        self.sign(":")?;
        let otherwise = self.expr()?;
        let place = condition.place.clone();
        let kind = ExprKind::Choose(Box::new(condition), Box::new(then), Box::new(otherwise));
        Ok(Expr { kind, place })
    }

    /// Returns the operator at the current token, with its precedence and its number of tokens.
    pub(super) fn operator(&self) -> Option<(Binary, usize, usize)> {
        let Kind::Sign(sign) = self.peek().kind else {
            return None;
        };
        let twice = matches!(self.second().kind, Kind::Sign(">")) && self.second().joined;
        Some(match sign {
            "||" => (Binary::Or, 1, 1),
            "&&" => (Binary::And, 2, 1),
            "==" => (Binary::Equal, 3, 1),
            "!=" => (Binary::Differ, 3, 1),
            "<" => (Binary::Less, 4, 1),
            "<=" => (Binary::LessEqual, 4, 1),
            ">" if twice => (Binary::Right, 8, 2),
            ">" => (Binary::Greater, 4, 1),
            ">=" => (Binary::GreaterEqual, 4, 1),
            "|" => (Binary::BitOr, 5, 1),
            "^" => (Binary::BitXor, 6, 1),
            "&" => (Binary::BitAnd, 7, 1),
            "<<" => (Binary::Left, 8, 1),
            "+" => (Binary::Add, 9, 1),
            "-" => (Binary::Subtract, 9, 1),
            "|+|" => (Binary::AddSaturated, 9, 1),
            "|-|" => (Binary::SubtractSaturated, 9, 1),
            "++" => (Binary::Concatenate, 9, 1),
            "*" => (Binary::Multiply, 10, 1),
            _ => return None,
        })
    }

    pub(super) fn binary(&mut self, least: usize) -> Result<Expr, Error> {
        let mut left = self.unary()?;
        let depth = self.depth;
        while let Some((operator, binds, words)) = self.operator() {
            if binds <= least {
                break;
            }
            // A chain of operators is as deep as it is long.
            self.depth += 1;
            if self.depth > DEPTH_MAX {
                return self.fail("too deep");
            }
            self.at += words;
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
        for (sign, operator) in [("!", Unary::Not), ("~", Unary::Complement), ("-", Unary::Negate)]
        {
            if self.take_sign(sign) {
                let inner = self.deeper(Self::unary)?;
                let kind = ExprKind::Unary(operator, Box::new(inner));
                return Ok(Expr { kind, place });
            }
        }
        let cast = self.is_sign("(")
            && matches!(&self.second().kind, Kind::Name(word) if word == "bit" || word == "bool");
        if cast {
            self.at += 1;
            let to = self.kind()?;
            self.sign(")")?;
            let inner = self.deeper(Self::unary)?;
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
                self.at += 1;
                let high = self.expr()?;
                self.sign(":")?;
                let low = self.expr()?;
                self.sign("]")?;
                ExprKind::Slice(Box::new(inner), Box::new(high), Box::new(low))
            } else if self.is_sign("(") {
                ExprKind::Call(Box::new(inner), Vec::new(), self.arguments()?)
            } else if self.is_sign("<") && is_lookahead(&inner) {
                self.at += 1;
                let kind = self.kind()?;
                self.sign(">")?;
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
                self.at += 1;
                ExprKind::Number(number, width)
            }
            Kind::Name(name) => {
                self.at += 1;
                match name.as_str() {
                    "true" => ExprKind::Bool(true),
                    "false" => ExprKind::Bool(false),
                    _ => ExprKind::Name(name),
                }
            }
            Kind::Sign("(") => {
                self.at += 1;
                let inner = self.expr()?;
                self.sign(")")?;
                return Ok(inner);
            }
            Kind::Sign("{") => {
                self.at += 1;
                let mut list = Vec::new();
                while !self.take_sign("}") {
                    if !list.is_empty() {
                        self.sign(",")?;
                    }
                    list.push(self.expr()?);
                }
                ExprKind::List(list)
            }
            _ => return self.fail(format!("expected an expression, found {}", self.found())),
        };
        Ok(Expr { kind, place })
    }
}

fn is_lookahead(callee: &Expr) -> bool {
    matches!(&callee.kind, ExprKind::Member(_, name) if name.text == "lookahead")
}
