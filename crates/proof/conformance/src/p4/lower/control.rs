//! Lowering of controls: local declarations, statements, and inlined calls.

use std::collections::BTreeMap;

use super::Lowering;
use crate::p4::{
    Error, Place,
    ast::{
        self, Action, Block, BlockBody, Direction, ExprKind, LocalDeclaration, Name, Parameter,
        Statement,
    },
    ir::{AssignmentTarget, Mask, Op, Register, Table, low_bits_mask},
    lower::scope::{ScopeEntry, Ty, Variable},
    token::error,
};

impl<'a> Lowering<'a> {
    /// Lowers a control of the pipeline.
    pub(super) fn lower_control(
        &mut self,
        block: &'a Block,
        arguments: &[ScopeEntry<'a>],
    ) -> Result<Vec<Op>, Error> {
        let registers = self.create_registers(block, 0)?;
        self.apply_block(block, arguments, &registers)
    }

    /// Creates the registers of a block that is being instantiated. Returns their numbers by name.
    fn create_registers(
        &mut self,
        block: &'a Block,
        depth: usize,
    ) -> Result<BTreeMap<String, usize>, Error> {
        let mut registers = BTreeMap::new();
        for local in &block.locals {
            match local {
                LocalDeclaration::Register(_, size, name) => {
                    let size = self.whole_number(size)?;
                    let size = self.count_elements(size, &name.place)?;
                    registers.insert(name.text.clone(), self.registers.len());
                    self.registers.push(Register { name: name.text.clone(), size });
                }
                LocalDeclaration::Control(_, name) if depth > 0 => {
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
        arguments: &[ScopeEntry<'a>],
        registers: &BTreeMap<String, usize>,
    ) -> Result<Vec<Op>, Error> {
        let BlockBody::Control(body) = &block.body else {
            return Err(error(&block.name.place, "expected a control"));
        };
        self.enter_without_recursion(&block.name)?;
        let inner = self.scope.hide_inner(1);
        let before = core::mem::replace(&mut self.control_depth, 2);
        self.scope.open();
        let mut ops = Vec::new();
        for (parameter, argument) in block.parameters.iter().zip(arguments) {
            self.bind_parameter(parameter, argument)?;
        }
        for local in &block.locals {
            self.lower_local(local, registers, &mut ops)?;
        }
        self.scope.open();
        self.lower_statements(body, &mut ops)?;
        self.scope.close();
        self.scope.close();
        self.control_depth = before;
        self.scope.restore_inner(inner);
        self.open.pop();
        Ok(vec![Op::Body(ops)])
    }

    /// Enters a block or an action. Fails if it is already entered, because recursion is not
    /// allowed.
    fn enter_without_recursion(&mut self, name: &Name) -> Result<(), Error> {
        if self.open.contains(&name.text) {
            let why = format!("{} contains itself", name.text);
            return Err(error(&name.place, why));
        }
        self.open.push(name.text.clone());
        Ok(())
    }

    /// Binds a parameter of a block to its argument.
    pub(super) fn bind_parameter(
        &mut self,
        parameter: &Parameter,
        argument: &ScopeEntry<'a>,
    ) -> Result<(), Error> {
        let ty = self.resolve_type(&parameter.kind)?;
        let ScopeEntry::Variable(variable) = argument else {
            return Err(error(&parameter.name.place, "expected a variable"));
        };
        if variable.ty != ty {
            let why = format!("expected {}, found {}", variable.ty.name(), ty.name());
            return Err(error(&parameter.name.place, why));
        }
        let writes = matches!(parameter.direction, Direction::Out | Direction::InOut);
        let bound = Variable { is_writable: variable.is_writable && writes, ..variable.clone() };
        self.declare(&parameter.name, ScopeEntry::Variable(bound))
    }

    pub(super) fn lower_local(
        &mut self,
        local: &'a LocalDeclaration,
        registers: &BTreeMap<String, usize>,
        ops: &mut Vec<Op>,
    ) -> Result<(), Error> {
        match local {
            LocalDeclaration::Action(action) => {
                self.declare(&action.name, ScopeEntry::Action(action))
            }
            LocalDeclaration::Constant(constant) => self.declare_constant(constant),
            LocalDeclaration::Variable(kind, name, value) => {
                self.declare_variable(kind, name, value, ops)
            }
            LocalDeclaration::Register(kind, _, name) => {
                let Ty::Bits(width) = self.resolve_type(kind)? else {
                    return Err(error(&name.place, "a register holds bit strings"));
                };
                let index = registers.get(&name.text).copied();
                let index = index.ok_or_else(|| error(&name.place, "not in a parser"))?;
                self.declare(name, ScopeEntry::Register(index, width))
            }
            LocalDeclaration::Control(control, name) => {
                let block = self.find_block(&control.text, &control.place)?;
                let registers = self.create_registers(block, self.open.len())?;
                self.declare(name, ScopeEntry::Instance(block, registers))
            }
            LocalDeclaration::Table(table) => self.lower_table(table),
        }
    }

    fn declare_variable(
        &mut self,
        kind: &ast::Type,
        name: &Name,
        value: &Option<ast::Expr>,
        ops: &mut Vec<Op>,
    ) -> Result<(), Error> {
        let ty = self.resolve_type(kind)?;
        if !matches!(ty, Ty::Bits(_) | Ty::Bool) {
            return Err(error(&name.place, "a variable of the subset is a bit string or bool"));
        }
        let value = match value {
            Some(value) => Some(self.lower_typed(value, &ty)?),
            None => None,
        };
        let variable = self.allocate_variable(&name.text, &ty, false, &name.place)?;
        ops.push(match value {
            Some(value) => {
                Op::Assign(assignment_target(&variable), value.expr, Box::new(name.place.clone()))
            }
            None => Op::Undefine(variable.slot),
        });
        self.declare(name, ScopeEntry::Variable(variable))
    }

    fn lower_table(&mut self, table: &'a ast::Table) -> Result<(), Error> {
        let mut keys = Vec::new();
        let mut widths = Vec::new();
        for (key, kind) in &table.keys {
            if !["exact", "ternary"].contains(&kind.text.as_str()) {
                return Err(error(&kind.place, "a key of the subset is exact or ternary"));
            }
            let value = self.lower_expr(key)?;
            let Ty::Bits(width) = value.ty else {
                return Err(error(&key.place, "a key is a bit string"));
            };
            keys.push(value.expr);
            widths.push((width, kind.text == "ternary"));
        }
        let mut entries = Vec::new();
        for (sets, action) in &table.entries {
            let masks = self.lower_masks(sets, &widths, &action.place)?;
            entries.push((masks, self.lower_table_action(table, action)?));
        }
        let default = match &table.default {
            Some(action) => self.lower_table_action(table, action)?,
            None => Vec::new(),
        };
        let index = self.tables.len();
        self.tables.push(Table { keys, entries, default });
        self.declare(&table.name, ScopeEntry::Table(index))
    }

    /// Lowers the sets of a table entry or of a `select` case. `widths` contains the width of each
    /// key, and whether the key allows masks.
    pub(super) fn lower_masks(
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
                let value = this.lower_typed(expr, &ty)?.constant_value();
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
                _ => (fixed(self, set)?, low_bits_mask(*width)),
            });
        }
        Ok(masks)
    }

    /// Lowers a table's `action(…)`. Fails if the table does not list the action.
    fn lower_table_action(
        &mut self,
        table: &ast::Table,
        expr: &ast::Expr,
    ) -> Result<Vec<Op>, Error> {
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
            Some(ScopeEntry::Action(action)) => self.inline_action(action, arguments, &expr.place),
            _ => Err(error(&expr.place, format!("there is no action {name}"))),
        }
    }

    /// Inlines the body of an action. Copies the arguments of `in` parameters, and binds `out` and
    /// `inout` parameters to the caller's variables.
    pub(super) fn inline_action(
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
        self.enter_without_recursion(&action.name)?;
        let mut ops = Vec::new();
        let mut bound = Vec::new();
        for (parameter, argument) in action.parameters.iter().zip(arguments) {
            let ty = self.resolve_type(&parameter.kind)?;
            let name = &parameter.name;
            if matches!(parameter.direction, Direction::Out | Direction::InOut) {
                let variable = self.assigned_variable(argument)?;
                if variable.ty != ty {
                    return Err(error(&argument.place, format!("expected {}", ty.name())));
                }
                bound.push((name, variable));
                continue;
            }
            let value = self.lower_typed(argument, &ty)?;
            let variable = self.allocate_variable(&name.text, &ty, false, &name.place)?;
            ops.push(Op::Assign(
                assignment_target(&variable),
                value.expr,
                Box::new(argument.place.clone()),
            ));
            bound.push((name, Variable { is_writable: false, ..variable }));
        }
        // An action sees the names of its control, and none of its caller's.
        let inner = self.scope.hide_inner(self.control_depth);
        self.scope.open();
        for (name, variable) in bound {
            self.declare(name, ScopeEntry::Variable(variable))?;
        }
        self.lower_statements(&action.body, &mut ops)?;
        self.scope.close();
        self.scope.restore_inner(inner);
        self.open.pop();
        Ok(vec![Op::Body(ops)])
    }

    fn lower_branch(&mut self, statement: &'a Statement) -> Result<Vec<Op>, Error> {
        let mut ops = Vec::new();
        self.scope.open();
        self.lower_statements(std::slice::from_ref(statement), &mut ops)?;
        self.scope.close();
        Ok(ops)
    }

    pub(super) fn lower_statements(
        &mut self,
        statements: &'a [Statement],
        ops: &mut Vec<Op>,
    ) -> Result<(), Error> {
        for statement in statements {
            match statement {
                Statement::Empty => {}
                Statement::Block(inner) => {
                    self.scope.open();
                    self.lower_statements(inner, ops)?;
                    self.scope.close();
                }
                Statement::Assign(to, value) => {
                    let variable = self.assigned_variable(to)?;
                    let value = self.lower_typed(value, &variable.ty)?;
                    let place = Box::new(to.place.clone());
                    ops.push(Op::Assign(assignment_target(&variable), value.expr, place));
                }
                Statement::If(condition, then, otherwise) => {
                    let condition = self.lower_typed(condition, &Ty::Bool)?;
                    let then = self.lower_branch(then)?;
                    let otherwise = match otherwise {
                        Some(otherwise) => self.lower_branch(otherwise)?,
                        None => Vec::new(),
                    };
                    ops.push(Op::If(condition.expr, then, otherwise));
                }
                Statement::Variable(kind, name, value) => {
                    self.declare_variable(kind, name, value, ops)?;
                }
                Statement::Constant(constant) => self.declare_constant(constant)?,
                Statement::Return(place) => {
                    self.count_op(place)?;
                    ops.push(Op::Return);
                }
                Statement::Exit(place) => {
                    self.count_op(place)?;
                    ops.push(Op::Exit);
                }
                Statement::Call(call) => self.lower_call(call, ops)?,
            }
        }
        Ok(())
    }

    /// Returns the variable that an assignment writes to.
    pub(super) fn assigned_variable(&mut self, expr: &ast::Expr) -> Result<Variable, Error> {
        let variable = self.resolve_variable(expr)?;
        let variable = variable.ok_or_else(|| error(&expr.place, "this is no variable"))?;
        if !variable.is_writable {
            return Err(error(&expr.place, "this must not be written to"));
        }
        if !matches!(variable.ty, Ty::Bits(_) | Ty::Bool | Ty::Error) {
            let why = format!("{} as a whole is not in the subset", variable.ty.name());
            return Err(error(&expr.place, why));
        }
        Ok(variable)
    }
}

pub(super) fn assignment_target(variable: &Variable) -> AssignmentTarget {
    AssignmentTarget { slot: variable.slot, validity: variable.validity, slice: variable.slice }
}
