//! WebAssembly's binary format, as far as [`super::regions`] reads and writes it.

/// Section ids.
pub(super) const TYPE_SECTION: u8 = 1;
pub(super) const IMPORT_SECTION: u8 = 2;
pub(super) const FUNCTION_SECTION: u8 = 3;
pub(super) const CODE_SECTION: u8 = 10;

/// A reader of bytes in order. Reading past the end is an error.
pub(super) struct ByteReader<'a> {
    bytes: &'a [u8],
    position: usize,
}

pub(super) type Result<T> = std::result::Result<T, String>;

impl<'a> ByteReader<'a> {
    pub(super) const fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, position: 0 }
    }

    pub(super) const fn position(&self) -> usize {
        self.position
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.position >= self.bytes.len()
    }

    pub(super) fn take_bytes(&mut self, length: usize) -> Result<&'a [u8]> {
        let taken = self.bytes.get(self.position..self.position + length);
        self.position += length;
        taken.ok_or_else(|| "the module ends too early".to_owned())
    }

    pub(super) fn read_byte(&mut self) -> Result<u8> {
        Ok(self.take_bytes(1)?[0])
    }

    /// Reads a LEB128 number of at most 64 bits and ignores its sign.
    pub(super) fn read_leb128(&mut self) -> Result<u64> {
        let (mut value, mut shift) = (0, 0);
        loop {
            let byte = self.read_byte()?;
            value |= u64::from(byte & 0x7f).checked_shl(shift).unwrap_or(0);
            shift += 7;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
    }

    pub(super) fn index(&mut self) -> Result<usize> {
        usize::try_from(self.read_leb128()?).map_err(|error| error.to_string())
    }

    pub(super) fn text(&mut self) -> Result<&'a [u8]> {
        let length = self.index()?;
        self.take_bytes(length)
    }

    /// Returns the bytes read since the position `at`.
    pub(super) fn bytes_since(&self, at: usize) -> &'a [u8] {
        self.bytes.get(at..self.position).unwrap_or_default()
    }
}

/// Appends a number as unsigned LEB128.
pub(super) fn write_number(mut value: usize, out: &mut Vec<u8>) {
    loop {
        let low = u8::try_from(value & 0x7f).unwrap_or(0);
        value >>= 7;
        out.push(if value == 0 { low } else { low | 0x80 });
        if value == 0 {
            return;
        }
    }
}

/// Numbers of parameters and of results of a function.
pub(super) type Signature = (usize, usize);

/// Block type without a result.
pub(super) const NO_RESULT_BLOCK: u8 = 0x40;

/// Type of a function, with the block type for its result.
#[derive(Clone, Copy)]
pub(super) struct FunctionType {
    pub(super) signature: Signature,
    pub(super) kind: u8,
}

/// Types of a module's functions. Imported functions come first.
#[derive(Default)]
pub(super) struct Signatures {
    pub(super) types: Vec<FunctionType>,
    pub(super) functions: Vec<FunctionType>,
    pub(super) imported_count: usize,
}

impl Signatures {
    /// Records the types and functions in a section. Ignores other sections.
    pub(super) fn record_section(&mut self, section: u8, from: &mut ByteReader<'_>) -> Result<()> {
        if ![TYPE_SECTION, IMPORT_SECTION, FUNCTION_SECTION].contains(&section) {
            return Ok(());
        }
        for _ in 0..from.index()? {
            match section {
                TYPE_SECTION => self.record_type(from)?,
                IMPORT_SECTION => self.record_import(from)?,
                _ => self.record_function(from)?,
            }
        }
        Ok(())
    }

    fn record_type(&mut self, from: &mut ByteReader<'_>) -> Result<()> {
        if from.read_byte()? != 0x60 {
            return Err("a type that is no function's".to_owned());
        }
        let (parameters, results) = (from.text()?.len(), from.text()?);
        let kind = match results {
            [] => NO_RESULT_BLOCK,
            [kind] => *kind,
            _ => return Err("a function with several results".to_owned()),
        };
        self.types.push(FunctionType { signature: (parameters, results.len()), kind });
        Ok(())
    }

    fn record_import(&mut self, from: &mut ByteReader<'_>) -> Result<()> {
        from.text()?;
        from.text()?;
        if from.read_byte()? != 0 {
            return Err("an import that is no function".to_owned());
        }
        self.imported_count += 1;
        self.record_function(from)
    }

    fn record_function(&mut self, from: &mut ByteReader<'_>) -> Result<()> {
        let index = from.index()?;
        self.functions.push(*self.types.get(index).ok_or("a type that is not there")?);
        Ok(())
    }
}
