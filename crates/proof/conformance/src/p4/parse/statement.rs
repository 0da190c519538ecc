//! Parses P4 statements.

use super::Parser;
use crate::p4::{
    Error,
    ast::{ExprKind, Statement},
    token::Kind,
};

impl Parser {
    pub(super) fn statements(&mut self) -> Result<Vec<Statement>, Error> {
        self.expect_sign("{")?;
        let mut statements = Vec::new();
        while !self.take_sign("}") {
            statements.push(self.parse_nested(Self::statement)?);
        }
        Ok(statements)
    }

    pub(super) fn statement(&mut self) -> Result<Statement, Error> {
        self.skip_annotations()?;
        if self.is_sign("{") {
            return Ok(Statement::Block(self.statements()?));
        }
        if self.take_sign(";") {
            return Ok(Statement::Empty);
        }
        let place = self.place();
        if self.take_word("if") {
            self.expect_sign("(")?;
            let condition = self.expr()?;
            self.expect_sign(")")?;
            let then = Box::new(self.parse_nested(Self::statement)?);
            let otherwise = if self.take_word("else") {
                Some(Box::new(self.parse_nested(Self::statement)?))
            } else {
                None
            };
            return Ok(Statement::If(condition, then, otherwise));
        }
        if self.is_word("const") {
            return Ok(Statement::Constant(self.constant()?));
        }
        for (word, statement) in
            [("return", Statement::Return(place.clone())), ("exit", Statement::Exit(place))]
        {
            if self.take_word(word) {
                self.expect_sign(";")?;
                return Ok(statement);
            }
        }
        if self.is_word("switch") || self.is_word("for") {
            return self.fail(format!("{} is not in the subset", self.describe_token()));
        }
        if self.begins_variable() {
            let (kind, name) = (self.kind()?, self.name()?);
            let value = if self.take_sign("=") { Some(self.expr()?) } else { None };
            self.expect_sign(";")?;
            return Ok(Statement::Variable(kind, name, value));
        }
        let to = self.parse_nested(Self::postfix)?;
        if self.take_sign("=") {
            let value = self.expr()?;
            self.expect_sign(";")?;
            return Ok(Statement::Assign(to, value));
        }
        if !matches!(to.kind, ExprKind::Call(..)) {
            return self.fail(format!("expected \"=\", found {}", self.describe_token()));
        }
        self.expect_sign(";")?;
        Ok(Statement::Call(to))
    }

    /// Returns whether a type and a name follow: `bit<8> x`, `bool x`, `some_t x`.
    pub(super) fn begins_variable(&self) -> bool {
        let second = &self.peek_second().kind;
        match &self.peek().kind {
            Kind::Name(word) if word == "bit" => true,
            Kind::Name(_) => matches!(second, Kind::Name(_)),
            _ => false,
        }
    }
}
