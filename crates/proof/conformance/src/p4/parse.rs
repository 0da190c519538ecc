//! Parser: turns tokens into declarations, statements and expressions.

mod expr;
mod statement;

use crate::p4::{
    Error, Place,
    ast::*,
    token::{Kind, Token, error},
};

/// Maximum nesting depth of expressions and statements.
const DEPTH_MAX: usize = 120;

/// Parses all declarations of a program.
pub fn parse(tokens: Vec<Token>) -> Result<Vec<Declaration>, Error> {
    let mut parser = Parser { tokens, token_index: 0, depth: 0 };
    let mut declarations = Vec::new();
    while parser.peek().kind != Kind::End {
        if let Some(declaration) = parser.declaration()? {
            declarations.push(declaration);
        }
    }
    Ok(declarations)
}

struct Parser {
    tokens: Vec<Token>,
    token_index: usize,
    depth: usize,
}

/// Keywords of declarations that the subset does not support.
const UNSUPPORTED_KEYWORDS: [&str; 7] =
    ["extern", "enum", "error", "match_kind", "header_union", "type", "package"];

impl Parser {
    fn peek(&self) -> &Token {
        &self.tokens[self.token_index.min(self.tokens.len() - 1)]
    }

    fn peek_second(&self) -> &Token {
        &self.tokens[(self.token_index + 1).min(self.tokens.len() - 1)]
    }

    fn place(&self) -> Place {
        self.peek().place.clone()
    }

    fn fail<T>(&self, what: impl Into<String>) -> Result<T, Error> {
        Err(error(&self.peek().place, what))
    }

    fn next(&mut self) -> Token {
        let token = self.peek().clone();
        self.token_index += 1;
        token
    }

    fn is_sign(&self, sign: &str) -> bool {
        matches!(&self.peek().kind, Kind::Sign(found) if *found == sign)
    }

    fn is_word(&self, word: &str) -> bool {
        matches!(&self.peek().kind, Kind::Name(found) if found == word)
    }

    fn take_sign(&mut self, sign: &str) -> bool {
        let is = self.is_sign(sign);
        self.token_index += usize::from(is);
        is
    }

    fn take_word(&mut self, word: &str) -> bool {
        let is = self.is_word(word);
        self.token_index += usize::from(is);
        is
    }

    fn expect_sign(&mut self, sign: &str) -> Result<(), Error> {
        if self.take_sign(sign) {
            return Ok(());
        }
        self.fail(format!("expected {sign:?}, found {}", self.describe_token()))
    }

    fn expect_word(&mut self, word: &str) -> Result<(), Error> {
        if self.take_word(word) {
            return Ok(());
        }
        self.fail(format!("expected {word:?}, found {}", self.describe_token()))
    }

    fn describe_token(&self) -> String {
        match &self.peek().kind {
            Kind::Name(name) => format!("{name:?}"),
            Kind::Number(number, _) => number.to_string(),
            Kind::Text(text) => format!("the text {text:?}"),
            Kind::Sign(sign) => format!("{sign:?}"),
            Kind::End => "the end".to_owned(),
        }
    }

    fn name(&mut self) -> Result<Name, Error> {
        match self.peek().kind.clone() {
            Kind::Name(text) => {
                let place = self.next().place;
                Ok(Name { text, place })
            }
            _ => self.fail(format!("expected a name, found {}", self.describe_token())),
        }
    }

    /// Runs a grammar rule one nesting level deeper.
    fn parse_nested<T>(&mut self, rule: fn(&mut Self) -> Result<T, Error>) -> Result<T, Error> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return self.fail("too deep");
        }
        let result = rule(self);
        self.depth -= 1;
        result
    }

    /// Skips `@name` and `@name(…)`, which are meant for compilers.
    fn skip_annotations(&mut self) -> Result<(), Error> {
        while self.take_sign("@") {
            self.name()?;
            if self.is_sign("(") {
                let mut open = 0_usize;
                loop {
                    match self.next().kind {
                        Kind::Sign("(") => open += 1,
                        Kind::Sign(")") => open -= 1,
                        Kind::End => return self.fail("an annotation without its end"),
                        _ => {}
                    }
                    if open == 0 {
                        break;
                    }
                }
            }
        }
        Ok(())
    }

    fn declaration(&mut self) -> Result<Option<Declaration>, Error> {
        self.skip_annotations()?;
        if self.take_sign(";") {
            return Ok(None);
        }
        let Kind::Name(word) = self.peek().kind.clone() else {
            return self.fail(format!("expected a declaration, found {}", self.describe_token()));
        };
        let declaration = match word.as_str() {
            "const" => Declaration::Constant(self.constant()?),
            "typedef" => {
                self.token_index += 1;
                let (kind, name) = (self.kind()?, self.name()?);
                self.expect_sign(";")?;
                Declaration::Alias(kind, name)
            }
            "header" | "struct" => {
                self.token_index += 1;
                let (name, fields) = (self.name()?, self.fields()?);
                if word == "header" {
                    Declaration::Header(name, fields)
                } else {
                    Declaration::Struct(name, fields)
                }
            }
            "parser" | "control" => Declaration::Block(self.block()?),
            word if UNSUPPORTED_KEYWORDS.contains(&word) => {
                return self.fail(format!("{word} is not in the subset"));
            }
            _ => {
                let kind = self.name()?;
                let arguments = self.arguments()?;
                let name = self.name()?;
                self.expect_sign(";")?;
                Declaration::Package(kind, arguments, name)
            }
        };
        Ok(Some(declaration))
    }

    fn constant(&mut self) -> Result<Constant, Error> {
        self.expect_word("const")?;
        let (kind, name) = (self.kind()?, self.name()?);
        self.expect_sign("=")?;
        let value = self.expr()?;
        self.expect_sign(";")?;
        Ok(Constant { kind, name, value })
    }

    fn kind(&mut self) -> Result<Type, Error> {
        let name = self.name()?;
        match name.text.as_str() {
            "bit" => {
                if !self.take_sign("<") {
                    let width = Expr { kind: ExprKind::Number(1, None), place: name.place.clone() };
                    return Ok(Type::Bits(Box::new(width), name.place));
                }
                let width = if self.take_sign("(") {
                    let width = self.expr()?;
                    self.expect_sign(")")?;
                    width
                } else {
                    self.primary()?
                };
                self.expect_sign(">")?;
                Ok(Type::Bits(Box::new(width), name.place))
            }
            "bool" => Ok(Type::Bool),
            "int" | "varbit" | "string" | "tuple" => {
                Err(error(&name.place, format!("{} is not in the subset", name.text)))
            }
            _ => Ok(Type::Named(name)),
        }
    }

    fn fields(&mut self) -> Result<Vec<Field>, Error> {
        self.expect_sign("{")?;
        let mut fields = Vec::new();
        loop {
            self.skip_annotations()?;
            if self.take_sign("}") {
                return Ok(fields);
            }
            let (kind, name) = (self.kind()?, self.name()?);
            self.expect_sign(";")?;
            fields.push(Field { kind, name });
        }
    }

    fn parameters(&mut self) -> Result<Vec<Parameter>, Error> {
        self.expect_sign("(")?;
        let mut parameters = Vec::new();
        while !self.take_sign(")") {
            if !parameters.is_empty() {
                self.expect_sign(",")?;
            }
            self.skip_annotations()?;
            let direction = if self.take_word("inout") {
                Direction::InOut
            } else if self.take_word("in") {
                Direction::In
            } else if self.take_word("out") {
                Direction::Out
            } else {
                Direction::None
            };
            let (kind, name) = (self.kind()?, self.name()?);
            parameters.push(Parameter { direction, kind, name });
        }
        Ok(parameters)
    }

    fn block(&mut self) -> Result<Block, Error> {
        let is_parser = self.next().kind == Kind::Name("parser".to_owned());
        let name = self.name()?;
        let parameters = self.parameters()?;
        self.expect_sign("{")?;
        let mut locals = Vec::new();
        loop {
            self.skip_annotations()?;
            let ends = if is_parser { "state" } else { "apply" };
            if self.is_word(ends) || self.is_sign("}") {
                break;
            }
            locals.push(self.local()?);
        }
        let body = if is_parser {
            let mut states = Vec::new();
            while !self.is_sign("}") {
                states.push(self.state()?);
                self.skip_annotations()?;
            }
            BlockBody::Parser(states)
        } else {
            self.expect_word("apply")?;
            BlockBody::Control(self.statements()?)
        };
        self.expect_sign("}")?;
        Ok(Block { name, parameters, locals, body })
    }

    fn local(&mut self) -> Result<LocalDeclaration, Error> {
        if self.is_word("const") {
            return Ok(LocalDeclaration::Constant(self.constant()?));
        }
        if self.take_word("action") {
            let (name, parameters) = (self.name()?, self.parameters()?);
            let body = self.statements()?;
            return Ok(LocalDeclaration::Action(Action { name, parameters, body }));
        }
        if self.take_word("table") {
            return Ok(LocalDeclaration::Table(self.table()?));
        }
        if self.is_word("register") {
            self.token_index += 1;
            self.expect_sign("<")?;
            let kind = self.kind()?;
            self.expect_sign(">")?;
            self.expect_sign("(")?;
            let size = self.expr()?;
            self.expect_sign(")")?;
            let name = self.name()?;
            self.expect_sign(";")?;
            return Ok(LocalDeclaration::Register(kind, size, name));
        }
        if matches!(&self.peek_second().kind, Kind::Sign("(")) {
            let control = self.name()?;
            self.expect_sign("(")?;
            self.expect_sign(")")?;
            let name = self.name()?;
            self.expect_sign(";")?;
            return Ok(LocalDeclaration::Control(control, name));
        }
        let (kind, name) = (self.kind()?, self.name()?);
        let value = if self.take_sign("=") { Some(self.expr()?) } else { None };
        self.expect_sign(";")?;
        Ok(LocalDeclaration::Variable(kind, name, value))
    }

    fn state(&mut self) -> Result<State, Error> {
        self.expect_word("state")?;
        let name = self.name()?;
        self.expect_sign("{")?;
        let mut statements = Vec::new();
        while !self.is_word("transition") {
            if self.is_sign("}") {
                return self.fail("a state ends with its transition");
            }
            statements.push(self.parse_nested(Self::statement)?);
        }
        self.token_index += 1;
        let transition = if self.is_word("select") {
            let place = self.next().place;
            let keys = self.arguments()?;
            self.expect_sign("{")?;
            let mut cases = Vec::new();
            while !self.take_sign("}") {
                let set = self.keyset()?;
                self.expect_sign(":")?;
                let to = self.name()?;
                self.expect_sign(";")?;
                cases.push((set, to));
            }
            Transition::Select(keys, cases, place)
        } else {
            let to = self.name()?;
            self.expect_sign(";")?;
            Transition::To(to)
        };
        self.expect_sign("}")?;
        Ok(State { name, statements, transition })
    }

    /// Parses one set for each key.
    fn keyset(&mut self) -> Result<Vec<Expr>, Error> {
        if !self.take_sign("(") {
            return Ok(vec![self.simple_set()?]);
        }
        let mut sets = vec![self.simple_set()?];
        while self.take_sign(",") {
            sets.push(self.simple_set()?);
        }
        self.expect_sign(")")?;
        Ok(sets)
    }

    fn simple_set(&mut self) -> Result<Expr, Error> {
        let place = self.place();
        if self.take_word("default") || self.take_word("_") {
            let kind = ExprKind::Any;
            return Ok(Expr { kind, place });
        }
        let value = self.expr()?;
        if self.is_sign("..") {
            return self.fail("a range is not in the subset: say it with masks");
        }
        if !self.take_sign("&&&") {
            return Ok(value);
        }
        let mask = self.expr()?;
        let kind = ExprKind::Mask(Box::new(value), Box::new(mask));
        Ok(Expr { kind, place })
    }

    fn table(&mut self) -> Result<Table, Error> {
        let mut table = Table {
            name: self.name()?,
            keys: Vec::new(),
            actions: Vec::new(),
            default: None,
            entries: Vec::new(),
        };
        self.expect_sign("{")?;
        while !self.take_sign("}") {
            self.skip_annotations()?;
            self.take_word("const");
            let property = self.name()?;
            self.expect_sign("=")?;
            match property.text.as_str() {
                "key" => {
                    self.expect_sign("{")?;
                    while !self.take_sign("}") {
                        let key = self.expr()?;
                        self.expect_sign(":")?;
                        table.keys.push((key, self.name()?));
                        self.skip_annotations()?;
                        self.expect_sign(";")?;
                    }
                }
                "actions" => {
                    self.expect_sign("{")?;
                    while !self.take_sign("}") {
                        self.skip_annotations()?;
                        table.actions.push(self.name()?);
                        if self.take_sign("(") {
                            self.expect_sign(")")?;
                        }
                        self.expect_sign(";")?;
                    }
                }
                "default_action" => {
                    table.default = Some(self.expr()?);
                    self.expect_sign(";")?;
                }
                "size" => {
                    self.expr()?;
                    self.expect_sign(";")?;
                }
                "entries" => {
                    self.expect_sign("{")?;
                    while !self.take_sign("}") {
                        let set = self.keyset()?;
                        self.expect_sign(":")?;
                        let action = self.expr()?;
                        self.skip_annotations()?;
                        self.expect_sign(";")?;
                        table.entries.push((set, action));
                    }
                }
                other => {
                    return Err(error(
                        &property.place,
                        format!("{other} is no property of a table in the subset"),
                    ));
                }
            }
        }
        Ok(table)
    }
}
