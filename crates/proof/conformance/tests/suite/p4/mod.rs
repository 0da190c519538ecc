//! Tests of the interpreter of switch programs.

mod committed;
mod hostile;
mod language;
mod program;
