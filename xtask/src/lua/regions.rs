//! Rewrites a WebAssembly module so that the interpreter charges only for executed instructions.
//!
//! On entry to a function or a loop, wasmi charges for all of its instructions, including nested
//! blocks. LLVM compiles every branch to an exit from a block, so a whole `switch` would be charged
//! for each of its cases. Here the code after the end of a block becomes a `loop` that is never
//! repeated: a region that is charged for separately.

use super::module::{
    ByteReader, CODE_SECTION, NO_RESULT_BLOCK, Result, Signature, Signatures, write_number,
};

const BLOCK_OPCODE: u8 = 0x02;
const LOOP_OPCODE: u8 = 0x03;
const IF_OPCODE: u8 = 0x04;
const ELSE_OPCODE: u8 = 0x05;
const END_OPCODE: u8 = 0x0b;

/// Rewrites all functions of a module.
pub(super) fn rewrite_module(module: &[u8]) -> Result<Vec<u8>> {
    let mut from = ByteReader::new(module);
    let mut out = from.take_bytes(8)?.to_vec();
    let mut signatures = Signatures::default();
    while !from.is_empty() {
        let (section, content) = (from.read_byte()?, from.text()?);
        let mut inner = ByteReader::new(content);
        let changed = if section == CODE_SECTION {
            rewrite_code(&mut inner, &signatures)?
        } else {
            signatures.record_section(section, &mut inner)?;
            content.to_vec()
        };
        out.push(section);
        write_number(changed.len(), &mut out);
        out.extend(changed);
    }
    Ok(out)
}

fn rewrite_code(from: &mut ByteReader<'_>, signatures: &Signatures) -> Result<Vec<u8>> {
    let (count, mut out) = (from.index()?, Vec::new());
    write_number(count, &mut out);
    for index in 0..count {
        let own = signatures
            .functions
            .get(signatures.imported_count + index)
            .ok_or("no such function")?;
        let body = FunctionRewriter::new(signatures, own.kind).rewrite(from.text()?)?;
        write_number(body.len(), &mut out);
        out.extend(body);
    }
    Ok(out)
}

/// A block, a loop, a branch of an `if`, or one of our regions, around the current instruction.
struct ControlFrame {
    opcode: u8,
    /// Block type: no result, or the type of one result.
    kind: u8,
    /// Number of values on the stack at the start of the frame.
    start_height: usize,
    is_region: bool,
}

struct FunctionRewriter<'a> {
    signatures: &'a Signatures,
    frames: Vec<ControlFrame>,
    /// Number of values on the stack.
    stack_height: usize,
    /// Set if the rest of the frame is unreachable.
    is_unreachable: bool,
    output: Vec<u8>,
}

impl<'a> FunctionRewriter<'a> {
    fn new(signatures: &'a Signatures, kind: u8) -> Self {
        let frames =
            vec![ControlFrame { opcode: BLOCK_OPCODE, kind, start_height: 0, is_region: false }];
        Self { signatures, frames, stack_height: 0, is_unreachable: false, output: Vec::new() }
    }

    fn rewrite(mut self, body: &[u8]) -> Result<Vec<u8>> {
        let mut from = ByteReader::new(body);
        for _ in 0..from.index()? {
            from.read_leb128()?;
            from.read_byte()?;
        }
        self.output.extend(from.bytes_since(0));
        while !from.is_empty() {
            let start = from.position();
            let opcode = from.read_byte()?;
            match opcode {
                BLOCK_OPCODE | LOOP_OPCODE | IF_OPCODE => {
                    self.enter_block(opcode, from.read_byte()?)?
                }
                ELSE_OPCODE => self.enter_else()?,
                END_OPCODE => {
                    self.leave_block()?;
                    if !from.is_empty() {
                        self.begin_region();
                    }
                }
                0x0c..=0x0e => self.rewrite_branch(opcode, &mut from)?,
                _ => {
                    self.read_plain(opcode, &mut from)?;
                    self.output.extend(from.bytes_since(start));
                }
            }
        }
        Ok(self.output)
    }

    fn enter_block(&mut self, opcode: u8, kind: u8) -> Result<()> {
        if kind != NO_RESULT_BLOCK && !(0x7c..=0x7f).contains(&kind) {
            return Err("a block with parameters".to_owned());
        }
        if opcode == IF_OPCODE {
            self.pop(1)?;
        }
        self.frames.push(ControlFrame {
            opcode,
            kind,
            start_height: self.stack_height,
            is_region: false,
        });
        self.output.extend([opcode, kind]);
        Ok(())
    }

    /// Ends the innermost regions, up to the next frame of the source.
    fn end_regions(&mut self) {
        while self.frames.pop_if(|frame| frame.is_region).is_some() {
            self.output.push(END_OPCODE);
        }
    }

    fn enter_else(&mut self) -> Result<()> {
        self.end_regions();
        let frame = self.frames.last().filter(|frame| frame.opcode == IF_OPCODE).ok_or("no if")?;
        (self.stack_height, self.is_unreachable) = (frame.start_height, false);
        self.output.push(ELSE_OPCODE);
        Ok(())
    }

    fn leave_block(&mut self) -> Result<()> {
        self.end_regions();
        let frame = self.frames.pop().ok_or("an end too many")?;
        self.stack_height = frame.start_height + usize::from(frame.kind != NO_RESULT_BLOCK);
        self.is_unreachable = false;
        self.output.push(END_OPCODE);
        Ok(())
    }

    /// Begins a region, unless the enclosing frame has values on the stack, which the region would
    /// hide.
    fn begin_region(&mut self) {
        let Some(around) =
            self.frames.last().filter(|frame| frame.start_height == self.stack_height)
        else {
            return;
        };
        let frame = ControlFrame {
            opcode: LOOP_OPCODE,
            kind: around.kind,
            start_height: self.stack_height,
            is_region: true,
        };
        self.output.extend([LOOP_OPCODE, frame.kind]);
        self.frames.push(frame);
    }

    /// Returns the depth of a label of the source, including our regions.
    fn label_depth(&self, label: usize) -> Result<usize> {
        let theirs = self.frames.iter().rev().enumerate().filter(|(_, frame)| !frame.is_region);
        theirs.map(|(depth, _)| depth).nth(label).ok_or_else(|| "an unknown label".to_owned())
    }

    fn rewrite_branch(&mut self, opcode: u8, from: &mut ByteReader<'_>) -> Result<()> {
        self.output.push(opcode);
        let others = if opcode == 0x0e { from.index()? } else { 0 };
        if opcode == 0x0e {
            write_number(others, &mut self.output);
        }
        for _ in 0..=others {
            let depth = self.label_depth(from.index()?)?;
            write_number(depth, &mut self.output);
        }
        if opcode != 0x0c {
            self.pop(1)?;
        }
        self.is_unreachable |= opcode != 0x0d;
        Ok(())
    }

    fn pop(&mut self, count: usize) -> Result<()> {
        if self.is_unreachable {
            return Ok(());
        }
        self.stack_height = self.stack_height.checked_sub(count).ok_or("an empty stack")?;
        Ok(())
    }

    fn change_stack(&mut self, (parameters, results): Signature) -> Result<()> {
        self.pop(parameters)?;
        self.stack_height += if self.is_unreachable { 0 } else { results };
        Ok(())
    }

    /// Reads the operands of an instruction that is copied unchanged, and updates the stack height.
    fn read_plain(&mut self, opcode: u8, from: &mut ByteReader<'_>) -> Result<()> {
        let effect = match opcode {
            0x00 | 0x0f => {
                self.is_unreachable = true;
                return Ok(());
            }
            0x10 => {
                let called = self.signatures.functions.get(from.index()?);
                called.ok_or("no such function")?.signature
            }
            0x11 => {
                let kind = self.signatures.types.get(from.index()?).ok_or("no such type")?;
                from.read_leb128()?;
                let (parameters, results) = kind.signature;
                (parameters + 1, results)
            }
            0x44 => {
                from.take_bytes(8)?;
                (0, 1)
            }
            0x43 => {
                from.take_bytes(4)?;
                (0, 1)
            }
            0xfc => read_bulk_operation(from)?,
            _ => read_simple_operation(opcode, from)?,
        };
        self.change_stack(effect)
    }
}

/// Reads `memory.copy` or `memory.fill`.
fn read_bulk_operation(from: &mut ByteReader<'_>) -> Result<Signature> {
    let zeros = match from.read_leb128()? {
        10 => 2,
        11 => 1,
        other => return Err(format!("unknown instruction 0xfc {other}")),
    };
    from.take_bytes(zeros)?;
    Ok((3, 0))
}

/// Reads an instruction with at most two LEB128 operands.
fn read_simple_operation(opcode: u8, from: &mut ByteReader<'_>) -> Result<Signature> {
    let (numbers, effect) = match opcode {
        0x01 => (0, (0, 0)),
        0x1a => (0, (1, 0)),
        0x1b => (0, (3, 1)),
        0x20 | 0x23 => (1, (0, 1)),
        0x21 | 0x24 => (1, (1, 0)),
        0x22 => (1, (1, 1)),
        0x28..=0x35 => (2, (1, 1)),
        0x36..=0x3e => (2, (2, 0)),
        0x3f => (1, (0, 1)),
        0x41 | 0x42 => (1, (0, 1)),
        // Comparisons and arithmetic, unary and binary.
        0x45 | 0x50 | 0x67..=0x69 | 0x79..=0x7b => (0, (1, 1)),
        0x46..=0x4f | 0x51..=0x66 | 0x6a..=0x78 | 0x7c..=0x8a => (0, (2, 1)),
        0x8b..=0x91 | 0x99..=0x9f | 0xa7..=0xc4 => (0, (1, 1)),
        0x92..=0x98 | 0xa0..=0xa6 => (0, (2, 1)),
        _ => return Err(format!("unknown instruction {opcode:#x}")),
    };
    for _ in 0..numbers {
        from.read_leb128()?;
    }
    Ok(effect)
}
