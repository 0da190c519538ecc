//! Interpreter for P4_16, the language of the switch programs. `cargo test` runs the programs on
//! it, and so do nodes with `--device p4`, through the program `quorate-p4`.
//!
//! It supports v1model and a subset of the language: headers, structs and bit strings of at most
//! 128 bits, parsers with `select`, controls with actions, tables with constant entries, registers
//! and nested controls, checksums. Grammar, names and semantics are those of P4_16, so a program
//! that runs here should also compile with p4c. Where P4 leaves a result undefined, the interpreter
//! stops with a [`Fault`]. Examples are a field of an invalid header, a variable without a value,
//! and a register index out of range.
//!
//! Reading order: [`source`] (files and positions), [`token`], [`ast`] and [`parse`], [`lower`]
//! (resolves names and types, and inlines controls and actions), [`ir`], [`machine`] (executes a
//! program on a packet), [`switch`] (a device under test that runs a committed program).

pub mod ast;
pub mod ir;
pub mod lower;
pub mod machine;
pub mod parse;
pub mod source;
pub mod switch;
pub mod token;

pub use ir::Program;
pub use machine::{Fault, Machine};
pub use source::{Error, Place, Sources};
pub use switch::{Switch, committed_sources};

/// Compiles the file `name` and the files that it includes. `defines` contains additional
/// preprocessor definitions.
pub fn compile(sources: &Sources, name: &str, defines: &[(&str, &str)]) -> Result<Program, Error> {
    let tokens = token::tokens(sources, name, defines)?;
    let declarations = parse::parse(tokens)?;
    lower::lower(&declarations)
}
