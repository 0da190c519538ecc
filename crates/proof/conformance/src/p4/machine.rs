//! Executes a program on a packet, in the order of v1model: parser, verification, ingress, copies,
//! egress, checksums, deparser.

mod bytes;

use std::{collections::BTreeMap, fmt};

use crate::p4::{
    Place,
    ast::BinaryOperator,
    ir::{
        self, AssignmentTarget, Expr, NextState, Op, ParserState, Program, VariableIndex,
        low_bits_mask,
    },
    lower::{NO_MATCH, PACKET_TOO_SHORT},
};

/// Egress port that `mark_to_drop` of v1model sets.
const DROP_PORT: u128 = 511;
/// Maximum number of parser states for one packet.
const STATES_MAX: usize = 1000;

/// Error for an operation whose result P4 leaves undefined. A program that causes one is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Place in the source, if known.
    pub place: Option<Place>,
    pub message: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Some(place) => write!(f, "{place}: {}", self.message),
            None => self.message.fmt(f),
        }
    }
}

impl std::error::Error for Fault {}

/// Outcome of executing a list of operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flow {
    Next,
    Return,
    Exit,
}

/// A program with the state that survives between packets.
#[derive(Clone, Debug)]
pub struct Machine {
    program: Program,
    registers: Vec<Vec<u128>>,
    multicast_groups: BTreeMap<u16, Vec<u16>>,
}

/// State of one packet.
struct Packet<'a> {
    program: &'a Program,
    registers: &'a mut [Vec<u128>],
    values: Vec<u128>,
    defined: Vec<bool>,
    bytes: &'a [u8],
    /// Position of the parser.
    parse_offset: usize,
    /// Bytes written by the deparser.
    output: Vec<u8>,
}

impl Machine {
    /// Creates a machine with zeroed registers and no multicast groups.
    pub fn new(program: Program) -> Self {
        let zeros = program.registers.iter().map(|register| vec![0; register.size]);
        let registers = zeros.collect();
        Self { program, registers, multicast_groups: BTreeMap::new() }
    }

    /// Resets the registers, as after a power cycle.
    pub fn reset(&mut self) {
        for register in &mut self.registers {
            register.fill(0);
        }
    }

    /// Sets the ports of a multicast group. Packets for the group are copied to them in order.
    pub fn set_group(&mut self, group: u16, ports: &[u16]) {
        self.multicast_groups.insert(group, ports.to_vec());
    }

    /// Returns a register's value, for tests.
    pub fn register(&self, name: &str, index: usize) -> Option<u128> {
        let found = self.program.registers.iter().position(|register| register.name == name)?;
        self.registers[found].get(index).copied()
    }

    /// Processes a packet that arrives at a port. Returns the packets sent, with their ports.
    pub fn process(&mut self, port: u16, bytes: &[u8]) -> Result<Vec<(u16, Vec<u8>)>, Fault> {
        let program = &self.program;
        let mut packet = Packet {
            program,
            registers: &mut self.registers,
            values: vec![0; program.slots.len()],
            defined: program.slots.iter().map(|slot| slot.zeroed).collect(),
            bytes,
            parse_offset: 0,
            output: Vec::new(),
        };
        let standard = program.standard_metadata;
        packet.values[standard.ingress_port] = port.into();
        packet.values[standard.packet_length] = bytes.len() as u128 & low_bits_mask(32);
        packet.parse()?;
        packet.run_control(0)?;
        packet.run_control(1)?;

        let group = packet.values[standard.multicast_group];
        let spec = packet.values[standard.egress_spec];
        let ports: Vec<u128> = if group != 0 {
            let group =
                u16::try_from(group).ok().and_then(|group| self.multicast_groups.get(&group));
            group.map_or(Vec::new(), |ports| ports.iter().map(|port| u128::from(*port)).collect())
        } else if spec == DROP_PORT {
            Vec::new()
        } else {
            vec![spec]
        };
        let (values, defined) = (packet.values.clone(), packet.defined.clone());
        let mut sent = Vec::new();
        for (copy, port) in (0..).zip(ports) {
            packet.values.clone_from(&values);
            packet.defined.clone_from(&defined);
            packet.values[standard.egress_port] = port;
            packet.values[standard.copy_number] = copy;
            // Egress can also drop the packet by setting this field.
            packet.values[standard.egress_spec] = 0;
            packet.run_control(2)?;
            if packet.values[standard.egress_spec] == DROP_PORT {
                continue;
            }
            packet.run_control(3)?;
            packet.output = Vec::with_capacity(bytes.len());
            packet.run_control(4)?;
            let mut out = core::mem::take(&mut packet.output);
            out.extend_from_slice(&packet.bytes[packet.parse_offset..]);
            let port = u16::try_from(port).expect("9 bits, or a port of a group");
            sent.push((port, out));
        }
        Ok(sent)
    }
}

fn fault(place: &Place, what: impl Into<String>) -> Fault {
    Fault { place: Some(place.clone()), message: what.into() }
}

impl Packet<'_> {
    fn run_control(&mut self, number: usize) -> Result<(), Fault> {
        let program = self.program;
        self.run(&program.controls[number])?;
        Ok(())
    }

    /// Runs the parser. If it fails, the packet stays at the position that it reached, and ingress
    /// sees the error.
    fn parse(&mut self) -> Result<(), Fault> {
        let program = self.program;
        let mut next = NextState::State(program.start);
        for _ in 0..STATES_MAX {
            let state: &ParserState = match next {
                NextState::State(number) => &program.parser_states[number],
                NextState::Accept | NextState::Reject => return Ok(()),
            };
            if self.run(&state.ops)? == Flow::Exit {
                return Ok(());
            }
            let mut keys = Vec::with_capacity(state.keys.len());
            for key in &state.keys {
                keys.push(self.value(key)?);
            }
            let fits = |masks: &[ir::Mask]| {
                let mut pairs = keys.iter().zip(masks);
                pairs.all(|(key, (value, mask))| key & mask == *value)
            };
            match state.cases.iter().find(|(masks, _)| fits(masks)) {
                Some((_, to)) => next = *to,
                None => {
                    self.values[program.standard_metadata.parser_error] = NO_MATCH;
                    return Ok(());
                }
            }
        }
        Err(Fault {
            place: None,
            message: format!("the parser passed {STATES_MAX} states and did not end"),
        })
    }

    fn run(&mut self, ops: &[Op]) -> Result<Flow, Fault> {
        for op in ops {
            let flow = match op {
                Op::Assign(target, expr, place) => {
                    let value = self.value(expr)?;
                    self.set(target, value, place)?;
                    Flow::Next
                }
                Op::If(condition, then, otherwise) => {
                    if self.value(condition)? == 0 {
                        self.run(otherwise)?
                    } else {
                        self.run(then)?
                    }
                }
                Op::Body(ops) => match self.run(ops)? {
                    Flow::Exit => Flow::Exit,
                    Flow::Next | Flow::Return => Flow::Next,
                },
                Op::Return => Flow::Return,
                Op::Exit => Flow::Exit,
                Op::ApplyTable(table) => self.apply_table(*table)?.1,
                Op::ReadRegister(register, target, index, place) => {
                    let index = self.index(*register, index, place)?;
                    let value = self.registers[*register][index];
                    self.set(target, value, place)?;
                    Flow::Next
                }
                Op::WriteRegister(register, index, value, place) => {
                    let index = self.index(*register, index, place)?;
                    self.registers[*register][index] = self.value(value)?;
                    Flow::Next
                }
                Op::Extract(header, place) => {
                    if !self.extract(*header, place)? {
                        self.values[self.program.standard_metadata.parser_error] = PACKET_TOO_SHORT;
                        return Ok(Flow::Exit);
                    }
                    Flow::Next
                }
                Op::Emit(header) => {
                    self.emit(*header)?;
                    Flow::Next
                }
                Op::SetValid(header, valid) => {
                    let slot = self.program.headers[*header].validity;
                    self.values[slot] = u128::from(*valid);
                    Flow::Next
                }
                Op::VerifyChecksum(checksum) => {
                    self.verify(checksum)?;
                    Flow::Next
                }
                Op::UpdateChecksum(checksum, target, place) => {
                    if self.value(&checksum.condition)? != 0 {
                        let sum = self.compute_checksum(checksum)?;
                        self.set(target, sum, place)?;
                    }
                    Flow::Next
                }
                Op::Drop => {
                    let standard = self.program.standard_metadata;
                    self.values[standard.egress_spec] = DROP_PORT;
                    self.values[standard.multicast_group] = 0;
                    Flow::Next
                }
                Op::Undefine(slot) => {
                    self.defined[*slot] = false;
                    Flow::Next
                }
            };
            if flow != Flow::Next {
                return Ok(flow);
            }
        }
        Ok(Flow::Next)
    }

    /// Evaluates an index of a register. Fails if the index is out of range, because P4 does not
    /// define the effect. A published switch crashed on such an index.
    fn index(&mut self, register: usize, index: &Expr, place: &Place) -> Result<usize, Fault> {
        let index = usize::try_from(self.value(index)?).unwrap_or(usize::MAX);
        let size = self.registers[register].len();
        if index < size {
            return Ok(index);
        }
        let name = &self.program.registers[register].name;
        Err(fault(place, format!("index {index} of {name}, which has {size} elements")))
    }

    fn set(&mut self, target: &AssignmentTarget, value: u128, place: &Place) -> Result<(), Fault> {
        if let Some(valid) = target.validity {
            self.check_valid(valid, target.slot, place)?;
        }
        let Some((high, low)) = target.slice else {
            self.values[target.slot] = value;
            self.defined[target.slot] = true;
            return Ok(());
        };
        if !self.defined[target.slot] {
            let name = &self.program.slots[target.slot].name;
            return Err(fault(place, format!("a part of {name}, which has no value")));
        }
        let mask = low_bits_mask(high - low + 1) << low;
        let slot = &mut self.values[target.slot];
        *slot = *slot & !mask | value << low & mask;
        Ok(())
    }

    fn check_valid(
        &self,
        valid: VariableIndex,
        slot: VariableIndex,
        place: &Place,
    ) -> Result<(), Fault> {
        if self.values[valid] == 1 {
            return Ok(());
        }
        let name = &self.program.slots[slot].name;
        Err(fault(place, format!("{name} of a header that is not valid")))
    }

    fn value(&mut self, expr: &Expr) -> Result<u128, Fault> {
        Ok(match expr {
            Expr::Constant(value) => *value,
            Expr::Read { slot, validity: valid, place } => {
                if let Some(valid) = valid {
                    self.check_valid(*valid, *slot, place)?;
                }
                if !self.defined[*slot] {
                    let name = &self.program.slots[*slot].name;
                    return Err(fault(place, format!("{name} has no value")));
                }
                self.values[*slot]
            }
            Expr::IsValid(slot) => self.values[*slot],
            Expr::Slice(inner, high, low) => {
                self.value(inner)? >> low & low_bits_mask(high - low + 1)
            }
            Expr::Not(inner) => u128::from(self.value(inner)? == 0),
            Expr::Complement(inner, width) => !self.value(inner)? & low_bits_mask(*width),
            Expr::Negate(inner, width) => self.value(inner)?.wrapping_neg() & low_bits_mask(*width),
            Expr::Binary(BinaryOperator::Or, left, right, ..) => match self.value(left)? {
                0 => self.value(right)?,
                _ => 1,
            },
            Expr::Binary(BinaryOperator::And, left, right, ..) => match self.value(left)? {
                0 => 0,
                _ => self.value(right)?,
            },
            Expr::Binary(operator, left, right, width, other) => {
                let (left, right) = (self.value(left)?, self.value(right)?);
                ir::apply_binary(*operator, left, right, *width, *other)
            }
            Expr::Conditional(condition, then, otherwise) => {
                if self.value(condition)? == 0 {
                    self.value(otherwise)?
                } else {
                    self.value(then)?
                }
            }
            Expr::Truncate(inner, width) => self.value(inner)? & low_bits_mask(*width),
            Expr::TableHit(table, place) => {
                let (hit, flow) = self.apply_table(*table)?;
                if flow == Flow::Exit {
                    return Err(fault(place, "exit within a condition"));
                }
                u128::from(hit)
            }
        })
    }

    /// Applies a table. Returns whether an entry matched, and the control flow after its action.
    fn apply_table(&mut self, table: usize) -> Result<(bool, Flow), Fault> {
        let table = &self.program.tables[table];
        let mut keys = Vec::with_capacity(table.keys.len());
        for key in &table.keys {
            keys.push(self.value(key)?);
        }
        let found = table.entries.iter().find(|(masks, _)| {
            let mut pairs = keys.iter().zip(masks);
            pairs.all(|(key, (value, mask))| key & mask == *value)
        });
        let (hit, ops) = match found {
            Some((_, ops)) => (true, ops),
            None => (false, &table.default),
        };
        Ok((hit, self.run(ops)?))
    }
}
