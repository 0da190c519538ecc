//! An interpreter of the P4_16 that our programs for switches are written in, so that `cargo test`
//! executes them.
//!
//! It is for v1model, and for a subset: headers, structs and bit strings of at most 128 bits,
//! parsers with `select`, controls with actions, tables with constant entries, registers and other
//! controls, checksums. Grammar, names and meaning are P4_16's: what runs here is meant to compile
//! with p4c. Where P4 leaves a result undefined (a field of an invalid header, a variable without a
//! value, a register's index out of range) it stops with a [`Fault`] instead.
//!
//! Reading order: [`source`] (files and positions), [`token`], [`ast`] and [`parse`], [`lower`]
//! (names and types are resolved, controls and actions put in their place), [`ir`], [`machine`] (a
//! packet goes through).

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
pub use switch::Switch;

/// Reads a program: the file of this name, with what it includes, and names defined from outside.
pub fn compile(sources: &Sources, name: &str, defines: &[(&str, &str)]) -> Result<Program, Error> {
    let tokens = token::tokens(sources, name, defines)?;
    let declarations = parse::parse(tokens)?;
    lower::lower(&declarations)
}
