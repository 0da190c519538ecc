//! Lowering of parsers: states and their transitions.

use std::collections::BTreeMap;

use super::Lowering;
use crate::p4::{
    Error,
    ast::{Block, BlockBody, Name, Transition},
    ir::{NextState, Op, ParserState},
    lower::scope::{ScopeEntry, Ty},
    token::error,
};

impl<'a> Lowering<'a> {
    /// Lowers all states of a parser. Returns them, and the index of the first state.
    pub(super) fn lower_parser(
        &mut self,
        block: &'a Block,
        arguments: &[ScopeEntry<'a>],
    ) -> Result<(Vec<ParserState>, usize), Error> {
        let BlockBody::Parser(states) = &block.body else {
            return Err(error(&block.name.place, "expected a parser"));
        };
        let mut numbers = BTreeMap::new();
        for (number, state) in states.iter().enumerate() {
            let name = &state.name;
            if numbers.insert(name.text.as_str(), number).is_some() {
                let why = format!("{} is declared twice", name.text);
                return Err(error(&name.place, why));
            }
        }
        let next = |name: &Name| match name.text.as_str() {
            "accept" => Ok(NextState::Accept),
            "reject" => Ok(NextState::Reject),
            text => match numbers.get(text) {
                Some(number) => Ok(NextState::State(*number)),
                None => Err(error(&name.place, format!("there is no state {text}"))),
            },
        };
        self.scope.open();
        self.control_depth = self.scope.depth();
        for (parameter, argument) in block.parameters.iter().zip(arguments) {
            self.bind_parameter(parameter, argument)?;
        }
        let mut begin = Vec::new();
        for local in &block.locals {
            self.lower_local(local, &BTreeMap::new(), &mut begin)?;
        }
        let mut lowered = Vec::new();
        for state in states {
            let mut ops = Vec::new();
            self.scope.open();
            self.lower_statements(&state.statements, &mut ops)?;
            let (keys, cases) = match &state.transition {
                Transition::To(name) => (Vec::new(), vec![(Vec::new(), next(name)?)]),
                Transition::Select(keys, cases, place) => {
                    let mut exprs = Vec::new();
                    let mut widths = Vec::new();
                    for key in keys {
                        let value = self.lower_expr(key)?;
                        let Ty::Bits(width) = value.ty else {
                            return Err(error(&key.place, "expected a bit string"));
                        };
                        exprs.push(value.expr);
                        widths.push((width, true));
                    }
                    let mut lowered = Vec::new();
                    for (sets, name) in cases {
                        lowered.push((self.lower_masks(sets, &widths, place)?, next(name)?));
                    }
                    (exprs, lowered)
                }
            };
            self.scope.close();
            lowered.push(ParserState { ops, keys, cases });
        }
        self.scope.close();
        let start = numbers.get("start").copied();
        let start = start.ok_or_else(|| error(&block.name.place, "there is no state start"))?;
        if !begin.is_empty() {
            // Locals get their values before the first state.
            lowered.push(ParserState {
                ops: vec![Op::Body(begin)],
                keys: Vec::new(),
                cases: vec![(Vec::new(), NextState::State(start))],
            });
            return Ok((lowered, states.len()));
        }
        Ok((lowered, start))
    }
}
