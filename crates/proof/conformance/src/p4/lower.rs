//! Lowers a syntax tree: resolves names to slots, determines the type of each expression, and
//! inlines controls and actions.

mod call;
mod control;
mod expr;
pub(crate) use expr::{NO_MATCH, PACKET_TOO_SHORT};
mod parser;
mod scope;
mod variable;

use crate::p4::{
    Error, Place,
    ast::{Block, BlockBody, Constant, Declaration, ExprKind, Field, Name},
    ir::{Program, Register, SlotInfo, StandardMetadata, Table},
    token::error,
};
use scope::{Scope, ScopeEntry, Struct, Ty};

/// Maximum number of operations after inlining.
const OPS_MAX: usize = 200_000;
/// Maximum number of elements, over all registers.
const REGISTER_ELEMENTS_MAX: usize = 1 << 24;
const SLOTS_MAX: usize = 1 << 16;

/// Fields of `standard_metadata_t` in v1model, with their widths. 0 stands for the type `error`.
const STANDARD_METADATA_FIELDS: [(&str, u32); 16] = [
    ("ingress_port", 9),
    ("egress_spec", 9),
    ("egress_port", 9),
    ("instance_type", 32),
    ("packet_length", 32),
    ("enq_timestamp", 32),
    ("enq_qdepth", 19),
    ("deq_timedelta", 32),
    ("deq_qdepth", 19),
    ("ingress_global_timestamp", 48),
    ("egress_global_timestamp", 48),
    ("mcast_grp", 16),
    ("egress_rid", 16),
    ("checksum_error", 1),
    ("parser_error", 0),
    ("priority", 3),
];

/// Lowers the package that is instantiated as `main`.
pub(crate) fn lower(declarations: &[Declaration]) -> Result<Program, Error> {
    let mut lower = Lowering::default();
    lower.declare_standard_metadata()?;
    let mut main = None;
    for declaration in declarations {
        match declaration {
            Declaration::Constant(constant) => lower.declare_constant(constant)?,
            Declaration::Alias(kind, name) => {
                let ty = lower.resolve_type(kind)?;
                lower.declare(name, ScopeEntry::Type(ty))?;
            }
            Declaration::Header(name, fields) => lower.declare_structure(name, fields, true)?,
            Declaration::Struct(name, fields) => lower.declare_structure(name, fields, false)?,
            Declaration::Block(block) => lower.declare(&block.name, ScopeEntry::Block(block))?,
            Declaration::Package(kind, arguments, name) => {
                if kind.text != "V1Switch" || name.text != "main" {
                    return Err(error(&kind.place, "only V1Switch(…) main is in the subset"));
                }
                let mut blocks = Vec::new();
                for argument in arguments {
                    let name = match &argument.kind {
                        ExprKind::Call(callee, _, arguments) if arguments.is_empty() => {
                            match &callee.kind {
                                ExprKind::Name(name) => Some(name),
                                _ => None,
                            }
                        }
                        _ => None,
                    };
                    let name = name.ok_or_else(|| {
                        error(&argument.place, "expected the name of a block, and ()")
                    })?;
                    blocks.push(lower.find_block(name, &argument.place)?);
                }
                main = Some((blocks, kind.place.clone()));
            }
        }
    }
    let Some((blocks, place)) = main else {
        let place = Place { file: "".into(), line: 1, column: 1 };
        return Err(error(&place, "there is no main"));
    };
    let Ok([parser, verify, ingress, egress, compute, deparser]) = <[&Block; 6]>::try_from(blocks)
    else {
        return Err(error(&place, "V1Switch has six blocks"));
    };
    lower.lower_pipeline(parser, [verify, ingress, egress, compute, deparser], &place)
}

#[derive(Default)]
struct Lowering<'a> {
    scope: Scope<'a>,
    structs: Vec<Struct>,
    slots: Vec<SlotInfo>,
    headers: Vec<crate::p4::ir::Header>,
    tables: Vec<Table>,
    registers: Vec<Register>,
    element_count: usize,
    op_count: usize,
    /// Number of outer scopes that are visible inside an action.
    control_depth: usize,
    /// Names of the blocks and actions that are being inlined.
    open: Vec<String>,
}

impl<'a> Lowering<'a> {
    fn declare_standard_metadata(&mut self) -> Result<(), Error> {
        let place = Place { file: "v1model.p4".into(), line: 1, column: 1 };
        let field = |(name, width): (&str, u32)| {
            let ty = if width == 0 { Ty::Error } else { Ty::Bits(width) };
            (name.to_owned(), ty)
        };
        self.structs.push(Struct {
            is_header: false,
            fields: STANDARD_METADATA_FIELDS.into_iter().map(field).collect(),
        });
        let name = |text: &str| Name { text: text.to_owned(), place: place.clone() };
        self.declare(&name("standard_metadata_t"), ScopeEntry::Type(Ty::Struct(0)))?;
        self.declare(&name("packet_in"), ScopeEntry::Type(Ty::PacketIn))?;
        self.declare(&name("packet_out"), ScopeEntry::Type(Ty::PacketOut))
    }

    fn declare(&mut self, name: &Name, entry: ScopeEntry<'a>) -> Result<(), Error> {
        if self.scope.declare(&name.text, entry) {
            return Ok(());
        }
        Err(error(&name.place, format!("{} is declared twice", name.text)))
    }

    fn declare_constant(&mut self, constant: &Constant) -> Result<(), Error> {
        let ty = self.resolve_type(&constant.kind)?;
        let value = self.lower_expr(&constant.value)?;
        let value = self.convert_value(value, &ty, &constant.value.place)?;
        let fixed = value.constant_value();
        let fixed = fixed.ok_or_else(|| error(&constant.value.place, "not a constant"))?;
        self.declare(&constant.name, ScopeEntry::Constant(ty, fixed))
    }

    fn declare_structure(
        &mut self,
        name: &Name,
        fields: &[Field],
        is_header: bool,
    ) -> Result<(), Error> {
        let mut list: Vec<(String, Ty)> = Vec::new();
        for field in fields {
            let ty = self.resolve_type(&field.kind)?;
            let fits = match &ty {
                Ty::Bits(_) => true,
                Ty::Bool | Ty::Header(_) | Ty::Struct(_) => !is_header,
                _ => false,
            };
            if !fits {
                return Err(error(&field.name.place, "a field cannot have this type"));
            }
            if list.iter().any(|(known, _)| *known == field.name.text) {
                let why = format!("{} is a field already", field.name.text);
                return Err(error(&field.name.place, why));
            }
            list.push((field.name.text.clone(), ty));
        }
        let index = self.structs.len();
        self.structs.push(Struct { is_header, fields: list });
        let ty = if is_header { Ty::Header(index) } else { Ty::Struct(index) };
        self.declare(name, ScopeEntry::Type(ty))
    }

    fn find_block(&self, name: &str, place: &Place) -> Result<&'a Block, Error> {
        match self.scope.find(name) {
            Some(ScopeEntry::Block(block)) => Ok(block),
            _ => Err(error(place, format!("there is no parser or control {name}"))),
        }
    }

    /// Lowers the parser and the controls. All of them share headers, metadata and standard
    /// metadata.
    fn lower_pipeline(
        mut self,
        parser: &'a Block,
        controls: [&'a Block; 5],
        place: &Place,
    ) -> Result<Program, Error> {
        let shape = |block: &Block, count: usize| {
            if block.parameters.len() == count {
                return Ok(());
            }
            let why = format!("v1model wants {count} parameters here");
            Err(error(&block.name.place, why))
        };
        shape(parser, 4)?;
        let headers = self.resolve_type(&parser.parameters[1].kind)?;
        let metadata = self.resolve_type(&parser.parameters[2].kind)?;
        let headers = self.allocate_variable("hdr", &headers, false, place)?;
        let metadata = self.allocate_variable("meta", &metadata, true, place)?;
        let standard = self.allocate_variable("standard_metadata", &Ty::Struct(0), true, place)?;
        let packet_in = ScopeEntry::Variable(scope::Variable::packet(Ty::PacketIn));
        let packet_out = ScopeEntry::Variable(scope::Variable::packet(Ty::PacketOut));
        let (h, m, s) = (
            ScopeEntry::Variable(headers),
            ScopeEntry::Variable(metadata),
            ScopeEntry::Variable(standard.clone()),
        );
        let (states, start) =
            self.lower_parser(parser, &[packet_in, h.clone(), m.clone(), s.clone()])?;
        let mut bodies: [Vec<crate::p4::ir::Op>; 5] = Default::default();
        for (number, block) in controls.into_iter().enumerate() {
            let BlockBody::Control(_) = block.body else {
                return Err(error(&block.name.place, "expected a control"));
            };
            let arguments: Vec<ScopeEntry<'a>> = match number {
                0 | 3 => vec![h.clone(), m.clone()],
                1 | 2 => vec![h.clone(), m.clone(), s.clone()],
                _ => vec![packet_out.clone(), h.clone()],
            };
            shape(block, arguments.len())?;
            bodies[number] = self.lower_control(block, &arguments)?;
        }
        let field = |name: &str| {
            let at = STANDARD_METADATA_FIELDS.iter().position(|(field, _)| *field == name);
            standard.slot + at.expect("a field of the table above")
        };
        let standard = StandardMetadata {
            ingress_port: field("ingress_port"),
            egress_spec: field("egress_spec"),
            egress_port: field("egress_port"),
            packet_length: field("packet_length"),
            multicast_group: field("mcast_grp"),
            copy_number: field("egress_rid"),
            checksum_error: field("checksum_error"),
            parser_error: field("parser_error"),
        };
        Ok(Program {
            slots: self.slots,
            standard_metadata: standard,
            parser_states: states,
            controls: bodies,
            tables: self.tables,
            registers: self.registers,
            start,
            headers: self.headers,
        })
    }
}
