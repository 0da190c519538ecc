//! Rewrites a WebAssembly module so that the interpreter charges only for executed instructions.
//!
//! On entry to a function or a loop, wasmi charges for all of its instructions, including nested
//! blocks. LLVM compiles every branch to an exit from a block, so a whole `switch` would be charged
//! for each of its cases. Here the code after the end of a block becomes a `loop` that is never
//! repeated: a region that is charged for separately.

use super::module::{CODE, NO_RESULT, Reader, Result, Signature, Signatures, write_number};

const BLOCK: u8 = 0x02;
const LOOP: u8 = 0x03;
const IF: u8 = 0x04;
const ELSE: u8 = 0x05;
const END: u8 = 0x0b;

/// Rewrites all functions of a module.
pub(super) fn separate(module: &[u8]) -> Result<Vec<u8>> {
    let mut from = Reader::new(module);
    let mut out = from.take_bytes(8)?.to_vec();
    let mut signatures = Signatures::default();
    while !from.is_empty() {
        let (section, content) = (from.byte()?, from.text()?);
        let mut inner = Reader::new(content);
        let changed = if section == CODE {
            code(&mut inner, &signatures)?
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

fn code(from: &mut Reader<'_>, signatures: &Signatures) -> Result<Vec<u8>> {
    let (count, mut out) = (from.index()?, Vec::new());
    write_number(count, &mut out);
    for index in 0..count {
        let own =
            signatures.functions.get(signatures.imported + index).ok_or("no such function")?;
        let body = Function::new(signatures, own.kind).rewrite(from.text()?)?;
        write_number(body.len(), &mut out);
        out.extend(body);
    }
    Ok(out)
}

/// A block, a loop, a branch of an `if`, or one of our regions, around the current instruction.
struct Frame {
    opcode: u8,
    /// Block type: no result, or the type of one result.
    kind: u8,
    /// Number of values on the stack at the start of the frame.
    height: usize,
    ours: bool,
}

struct Function<'a> {
    signatures: &'a Signatures,
    frames: Vec<Frame>,
    /// Number of values on the stack.
    height: usize,
    /// Set if the rest of the frame is unreachable.
    is_unreachable: bool,
    out: Vec<u8>,
}

impl<'a> Function<'a> {
    fn new(signatures: &'a Signatures, kind: u8) -> Self {
        let frames = vec![Frame { opcode: BLOCK, kind, height: 0, ours: false }];
        Self { signatures, frames, height: 0, is_unreachable: false, out: Vec::new() }
    }

    fn rewrite(mut self, body: &[u8]) -> Result<Vec<u8>> {
        let mut from = Reader::new(body);
        for _ in 0..from.index()? {
            from.number()?;
            from.byte()?;
        }
        self.out.extend(from.since(0));
        while !from.is_empty() {
            let start = from.at();
            let opcode = from.byte()?;
            match opcode {
                BLOCK | LOOP | IF => self.enter_block(opcode, from.byte()?)?,
                ELSE => self.otherwise()?,
                END => {
                    self.leave_block()?;
                    if !from.is_empty() {
                        self.begin_region();
                    }
                }
                0x0c..=0x0e => self.branch(opcode, &mut from)?,
                _ => {
                    self.read_plain(opcode, &mut from)?;
                    self.out.extend(from.since(start));
                }
            }
        }
        Ok(self.out)
    }

    fn enter_block(&mut self, opcode: u8, kind: u8) -> Result<()> {
        if kind != NO_RESULT && !(0x7c..=0x7f).contains(&kind) {
            return Err("a block with parameters".to_owned());
        }
        if opcode == IF {
            self.pop(1)?;
        }
        self.frames.push(Frame { opcode, kind, height: self.height, ours: false });
        self.out.extend([opcode, kind]);
        Ok(())
    }

    /// Ends the innermost regions, up to the next frame of the source.
    fn end_regions(&mut self) {
        while self.frames.pop_if(|frame| frame.ours).is_some() {
            self.out.push(END);
        }
    }

    fn otherwise(&mut self) -> Result<()> {
        self.end_regions();
        let frame = self.frames.last().filter(|frame| frame.opcode == IF).ok_or("no if")?;
        (self.height, self.is_unreachable) = (frame.height, false);
        self.out.push(ELSE);
        Ok(())
    }

    fn leave_block(&mut self) -> Result<()> {
        self.end_regions();
        let frame = self.frames.pop().ok_or("an end too many")?;
        self.height = frame.height + usize::from(frame.kind != NO_RESULT);
        self.is_unreachable = false;
        self.out.push(END);
        Ok(())
    }

    /// Begins a region, unless the enclosing frame has values on the stack, which the region would
    /// hide.
    fn begin_region(&mut self) {
        let Some(around) = self.frames.last().filter(|frame| frame.height == self.height) else {
            return;
        };
        let frame = Frame { opcode: LOOP, kind: around.kind, height: self.height, ours: true };
        self.out.extend([LOOP, frame.kind]);
        self.frames.push(frame);
    }

    /// Returns the depth of a label of the source, including our regions.
    fn depth(&self, label: usize) -> Result<usize> {
        let theirs = self.frames.iter().rev().enumerate().filter(|(_, frame)| !frame.ours);
        theirs.map(|(depth, _)| depth).nth(label).ok_or_else(|| "an unknown label".to_owned())
    }

    fn branch(&mut self, opcode: u8, from: &mut Reader<'_>) -> Result<()> {
        self.out.push(opcode);
        let others = if opcode == 0x0e { from.index()? } else { 0 };
        if opcode == 0x0e {
            write_number(others, &mut self.out);
        }
        for _ in 0..=others {
            let depth = self.depth(from.index()?)?;
            write_number(depth, &mut self.out);
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
        self.height = self.height.checked_sub(count).ok_or("an empty stack")?;
        Ok(())
    }

    fn change(&mut self, (parameters, results): Signature) -> Result<()> {
        self.pop(parameters)?;
        self.height += if self.is_unreachable { 0 } else { results };
        Ok(())
    }

    /// Reads the operands of an instruction that is copied unchanged, and updates the stack height.
    fn read_plain(&mut self, opcode: u8, from: &mut Reader<'_>) -> Result<()> {
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
                from.number()?;
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
            0xfc => bulk(from)?,
            _ => simple(opcode, from)?,
        };
        self.change(effect)
    }
}

/// Reads `memory.copy` or `memory.fill`.
fn bulk(from: &mut Reader<'_>) -> Result<Signature> {
    let zeros = match from.number()? {
        10 => 2,
        11 => 1,
        other => return Err(format!("unknown instruction 0xfc {other}")),
    };
    from.take_bytes(zeros)?;
    Ok((3, 0))
}

/// Reads an instruction with at most two LEB128 operands.
fn simple(opcode: u8, from: &mut Reader<'_>) -> Result<Signature> {
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
        from.number()?;
    }
    Ok(effect)
}
