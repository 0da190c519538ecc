//! Lowering of controls: local declarations, statements, and inlined calls.

use std::collections::BTreeMap;

use super::Lower;
use crate::p4::{
    Error, Place,
    ast::{self, Action, Block, Body, Direction, ExprKind, Local, Name, Parameter, Statement},
    ir::{Mask, Op, Register, Table, Target, ones},
    lower::scope::{Entry, Ty, Variable},
    token::error,
};

impl<'a> Lower<'a> {
    /// Lowers a control of the pipeline.
    pub(super) fn control(
        &mut self,
        block: &'a Block,
        arguments: &[Entry<'a>],
    ) -> Result<Vec<Op>, Error> {
        let registers = self.registers_of(block, 0)?;
        self.apply_block(block, arguments, &registers)
    }

    /// Creates the registers of a block that is being instantiated. Returns their numbers by name.
    fn registers_of(
        &mut self,
        block: &'a Block,
        depth: usize,
    ) -> Result<BTreeMap<String, usize>, Error> {
        let mut registers = BTreeMap::new();
        for local in &block.locals {
            match local {
                Local::Register(_, size, name) => {
                    let size = self.whole_number(size)?;
                    let size = self.elements(size, &name.place)?;
                    registers.insert(name.text.clone(), self.registers.len());
                    self.registers.push(Register { name: name.text.clone(), size });
                }
                Local::Control(_, name) if depth > 0 => {
                    let why = "a control within a control within a control is not in the subset";
                    return Err(error(&name.place, why));
                }
                _ => {}
            }
        }
        Ok(registers)
    }

    pub(super) fn apply_block(
        &mut self,
        block: &'a Block,
        arguments: &[Entry<'a>],
        registers: &BTreeMap<String, usize>,
    ) -> Result<Vec<Op>, Error> {
        let Body::Control(body) = &block.body else {
            return Err(error(&block.name.place, "expected a control"));
        };
        self.enter(&block.name)?;
        let inner = self.scope.cut(1);
        let before = core::mem::replace(&mut self.control_depth, 2);
        self.scope.open();
        let mut ops = Vec::new();
        for (parameter, argument) in block.parameters.iter().zip(arguments) {
            self.bind(parameter, argument)?;
        }
        for local in &block.locals {
            self.local(local, registers, &mut ops)?;
        }
        self.scope.open();
        self.statements(body, &mut ops)?;
        self.scope.close();
        self.scope.close();
        self.control_depth = before;
        self.scope.mend(inner);
        self.open.pop();
        Ok(vec![Op::Body(ops)])
    }

    /// Enters a block or an action. Fails if it is already entered, because recursion is not
    /// allowed.
    fn enter(&mut self, name: &Name) -> Result<(), Error> {
        if self.open.contains(&name.text) {
            let why = format!("{} contains itself", name.text);
            return Err(error(&name.place, why));
        }
        self.open.push(name.text.clone());
        Ok(())
    }

    /// Binds a parameter of a block to its argument.
    pub(super) fn bind(
        &mut self,
        parameter: &Parameter,
        argument: &Entry<'a>,
    ) -> Result<(), Error> {
        let ty = self.ty(&parameter.kind)?;
        let Entry::Variable(variable) = argument else {
            return Err(error(&parameter.name.place, "expected a variable"));
        };
        if variable.ty != ty {
            let why = format!("expected {}, found {}", variable.ty.name(), ty.name());
            return Err(error(&parameter.name.place, why));
        }
        let writes = matches!(parameter.direction, Direction::Out | Direction::InOut);
        let bound = Variable { writable: variable.writable && writes, ..variable.clone() };
        self.declare(&parameter.name, Entry::Variable(bound))
    }

    pub(super) fn local(
        &mut self,
        local: &'a Local,
        registers: &BTreeMap<String, usize>,
        ops: &mut Vec<Op>,
    ) -> Result<(), Error> {
        match local {
            Local::Action(action) => self.declare(&action.name, Entry::Action(action)),
            Local::Constant(constant) => self.constant(constant),
            Local::Variable(kind, name, value) => self.declare_variable(kind, name, value, ops),
            Local::Register(kind, _, name) => {
                let Ty::Bits(width) = self.ty(kind)? else {
                    return Err(error(&name.place, "a register holds bit strings"));
                };
                let index = registers.get(&name.text).copied();
                let index = index.ok_or_else(|| error(&name.place, "not in a parser"))?;
                self.declare(name, Entry::Register(index, width))
            }
            Local::Control(control, name) => {
                let block = self.block(&control.text, &control.place)?;
                let registers = self.registers_of(block, self.open.len())?;
                self.declare(name, Entry::Instance(block, registers))
            }
            Local::Table(table) => self.table(table),
        }
    }

    fn declare_variable(
        &mut self,
        kind: &ast::Type,
        name: &Name,
        value: &Option<ast::Expr>,
        ops: &mut Vec<Op>,
    ) -> Result<(), Error> {
        let ty = self.ty(kind)?;
        if !matches!(ty, Ty::Bits(_) | Ty::Bool) {
            return Err(error(&name.place, "a variable of the subset is a bit string or bool"));
        }
        let value = match value {
            Some(value) => Some(self.typed(value, &ty)?),
            None => None,
        };
        let variable = self.instance(&name.text, &ty, false, &name.place)?;
        ops.push(match value {
            Some(value) => Op::Set(target(&variable), value.expr, Box::new(name.place.clone())),
            None => Op::Forget(variable.slot),
        });
        self.declare(name, Entry::Variable(variable))
    }

    fn table(&mut self, table: &'a ast::Table) -> Result<(), Error> {
        let mut keys = Vec::new();
        let mut widths = Vec::new();
        for (key, kind) in &table.keys {
            if !["exact", "ternary"].contains(&kind.text.as_str()) {
                return Err(error(&kind.place, "a key of the subset is exact or ternary"));
            }
            let value = self.expr(key)?;
            let Ty::Bits(width) = value.ty else {
                return Err(error(&key.place, "a key is a bit string"));
            };
            keys.push(value.expr);
            widths.push((width, kind.text == "ternary"));
        }
        let mut entries = Vec::new();
        for (sets, action) in &table.entries {
            let masks = self.masks(sets, &widths, &action.place)?;
            entries.push((masks, self.table_action(table, action)?));
        }
        let default = match &table.default {
            Some(action) => self.table_action(table, action)?,
            None => Vec::new(),
        };
        let index = self.tables.len();
        self.tables.push(Table { keys, entries, default });
        self.declare(&table.name, Entry::Table(index))
    }

    /// Lowers the sets of a table entry or of a `select` case. `widths` contains the width of each
    /// key, and whether the key allows masks.
    pub(super) fn masks(
        &mut self,
        sets: &[ast::Expr],
        widths: &[(u32, bool)],
        place: &Place,
    ) -> Result<Vec<Mask>, Error> {
        if let [one] = sets
            && matches!(one.kind, ExprKind::Any)
        {
            return Ok(vec![(0, 0); widths.len()]);
        }
        if sets.len() != widths.len() {
            let why = format!("expected {} sets, found {}", widths.len(), sets.len());
            return Err(error(place, why));
        }
        let mut masks = Vec::new();
        for (set, (width, masked)) in sets.iter().zip(widths) {
            let ty = Ty::Bits(*width);
            let fixed = |this: &mut Self, expr: &ast::Expr| {
                let value = this.typed(expr, &ty)?.fixed();
                value.ok_or_else(|| error(&expr.place, "expected a constant"))
            };
            masks.push(match &set.kind {
                ExprKind::Any if *masked => (0, 0),
                ExprKind::Mask(value, mask) if *masked => {
                    let (value, mask) = (fixed(self, value)?, fixed(self, mask)?);
                    (value & mask, mask)
                }
                ExprKind::Any | ExprKind::Mask(..) => {
                    return Err(error(&set.place, "an exact key has one value"));
                }
                _ => (fixed(self, set)?, ones(*width)),
            });
        }
        Ok(masks)
    }

    /// Lowers a table's `action(…)`. Fails if the table does not list the action.
    fn table_action(&mut self, table: &ast::Table, expr: &ast::Expr) -> Result<Vec<Op>, Error> {
        let (name, arguments): (_, &[ast::Expr]) = match &expr.kind {
            ExprKind::Name(name) => (name, &[]),
            ExprKind::Call(callee, _, arguments) => match &callee.kind {
                ExprKind::Name(name) => (name, arguments),
                _ => return Err(error(&expr.place, "expected an action")),
            },
            _ => return Err(error(&expr.place, "expected an action")),
        };
        if !table.actions.iter().any(|listed| listed.text == *name) {
            let why = format!("{name} is not in the table's list of actions");
            return Err(error(&expr.place, why));
        }
        if name == "NoAction" {
            return Ok(Vec::new());
        }
        match self.scope.find(name) {
            Some(Entry::Action(action)) => self.action(action, arguments, &expr.place),
            _ => Err(error(&expr.place, format!("there is no action {name}"))),
        }
    }

    /// Inlines the body of an action. Copies the arguments of `in` parameters, and binds `out` and
    /// `inout` parameters to the caller's variables.
    pub(super) fn action(
        &mut self,
        action: &'a Action,
        arguments: &[ast::Expr],
        place: &Place,
    ) -> Result<Vec<Op>, Error> {
        if arguments.len() != action.parameters.len() {
            let (wanted, found) = (action.parameters.len(), arguments.len());
            let why = format!("{} takes {wanted} arguments, not {found}", action.name.text);
            return Err(error(place, why));
        }
        self.enter(&action.name)?;
        let mut ops = Vec::new();
        let mut bound = Vec::new();
        for (parameter, argument) in action.parameters.iter().zip(arguments) {
            let ty = self.ty(&parameter.kind)?;
            let name = &parameter.name;
            if matches!(parameter.direction, Direction::Out | Direction::InOut) {
                let variable = self.target(argument)?;
                if variable.ty != ty {
                    return Err(error(&argument.place, format!("expected {}", ty.name())));
                }
                bound.push((name, variable));
                continue;
            }
            let value = self.typed(argument, &ty)?;
            let variable = self.instance(&name.text, &ty, false, &name.place)?;
            ops.push(Op::Set(target(&variable), value.expr, Box::new(argument.place.clone())));
            bound.push((name, Variable { writable: false, ..variable }));
        }
        // An action sees the names of its control, and none of its caller's.
        let inner = self.scope.cut(self.control_depth);
        self.scope.open();
        for (name, variable) in bound {
            self.declare(name, Entry::Variable(variable))?;
        }
        self.statements(&action.body, &mut ops)?;
        self.scope.close();
        self.scope.mend(inner);
        self.open.pop();
        Ok(vec![Op::Body(ops)])
    }

    fn block_of(&mut self, statement: &'a Statement) -> Result<Vec<Op>, Error> {
        let mut ops = Vec::new();
        self.scope.open();
        self.statements(std::slice::from_ref(statement), &mut ops)?;
        self.scope.close();
        Ok(ops)
    }

    pub(super) fn statements(
        &mut self,
        statements: &'a [Statement],
        ops: &mut Vec<Op>,
    ) -> Result<(), Error> {
        for statement in statements {
            match statement {
                Statement::Empty => {}
                Statement::Block(inner) => {
                    self.scope.open();
                    self.statements(inner, ops)?;
                    self.scope.close();
                }
                Statement::Assign(to, value) => {
                    let variable = self.target(to)?;
                    let value = self.typed(value, &variable.ty)?;
                    let place = Box::new(to.place.clone());
                    ops.push(Op::Set(target(&variable), value.expr, place));
                }
                Statement::If(condition, then, otherwise) => {
                    let condition = self.typed(condition, &Ty::Bool)?;
                    let then = self.block_of(then)?;
                    let otherwise = match otherwise {
                        Some(otherwise) => self.block_of(otherwise)?,
                        None => Vec::new(),
                    };
                    ops.push(Op::If(condition.expr, then, otherwise));
                }
                Statement::Variable(kind, name, value) => {
                    self.declare_variable(kind, name, value, ops)?;
                }
                Statement::Constant(constant) => self.constant(constant)?,
                Statement::Return(place) => {
                    self.count(place)?;
                    ops.push(Op::Return);
                }
                Statement::Exit(place) => {
                    self.count(place)?;
                    ops.push(Op::Exit);
                }
                Statement::Call(call) => self.call(call, ops)?,
            }
        }
        Ok(())
    }

    /// Returns the variable that an assignment writes to.
    pub(super) fn target(&mut self, expr: &ast::Expr) -> Result<Variable, Error> {
        let variable = self.variable(expr)?;
        let variable = variable.ok_or_else(|| error(&expr.place, "this is no variable"))?;
        if !variable.writable {
            return Err(error(&expr.place, "this must not be written to"));
        }
        if !matches!(variable.ty, Ty::Bits(_) | Ty::Bool | Ty::Error) {
            let why = format!("{} as a whole is not in the subset", variable.ty.name());
            return Err(error(&expr.place, why));
        }
        Ok(variable)
    }
}

pub(super) fn target(variable: &Variable) -> Target {
    Target { slot: variable.slot, valid: variable.valid, slice: variable.slice }
}
