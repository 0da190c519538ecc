//! Reader of whole files: header, sections, keys, checksum.

use std::io::Read;

use super::{
    input::Input,
    types::{Key, Kind, ReadError, Visitor},
    values::{self, encoding},
};

/// Newest version of the format that is read.
pub(crate) const VERSION_MAX: u32 = 12;
/// First version with a checksum.
const VERSION_SUMMED: u32 = 5;

/// Codes of sections. All others are types of keys.
mod section {
    pub(super) const SLOT_INFO: u8 = 244;
    pub(super) const FUNCTION: u8 = 245;
    pub(super) const MODULE_AUX: u8 = 247;
    pub(super) const IDLE: u8 = 248;
    pub(super) const FREQUENCY: u8 = 249;
    pub(super) const AUX: u8 = 250;
    pub(super) const SIZES: u8 = 251;
    pub(super) const EXPIRES_MS: u8 = 252;
    pub(super) const EXPIRES_S: u8 = 253;
    pub(super) const DATABASE: u8 = 254;
    pub(super) const END: u8 = 255;
}

/// Type of a module's value that can be skipped.
const MODULE: u8 = 7;

/// Properties of a file that was read to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Summary {
    pub(crate) version: u32,
    pub(crate) bytes: u64,
    /// Set if the file has a checksum, which is right.
    pub(crate) is_checked: bool,
}

/// Reads a file to its end, and passes its contents to `visitor`.
pub(crate) fn read(from: impl Read, visitor: &mut dyn Visitor) -> Result<Summary, ReadError> {
    let mut input = Input::new(from);
    let version = read_version(&mut input)?;
    let mut database = 0;
    let mut expires_ms = None;
    loop {
        match input.byte()? {
            section::END => break,
            section::DATABASE => database = input.length()?,
            section::SIZES => _ = (input.length()?, input.length()?),
            section::SLOT_INFO => _ = (input.length()?, input.length()?, input.length()?),
            section::AUX => {
                let (name, value) = (input.string()?, input.string()?);
                visitor.aux(&name, &value);
            }
            section::FUNCTION => {
                let text = input.string()?;
                visitor.function(&text);
            }
            section::MODULE_AUX => {
                let name = module_name(input.length()?);
                skip_module(&mut input)?;
                visitor.module_data(&name);
            }
            section::EXPIRES_MS => expires_ms = Some(input.moment_ms()?),
            section::EXPIRES_S => {
                let s = i32::from_le_bytes(input.array()?);
                expires_ms = Some(u64::try_from(s).unwrap_or(0) * 1000);
            }
            section::IDLE => _ = input.length()?,
            section::FREQUENCY => _ = input.byte()?,
            code => {
                read_key(code, database, expires_ms.take(), &mut input, visitor)?;
            }
        }
    }
    let is_checked = version >= VERSION_SUMMED && check_sum(&mut input)?;
    let bytes = input.at();
    match input.end() {
        Ok(true) => Ok(Summary { version, bytes, is_checked }),
        Ok(false) => Err(ReadError::Malformed(bytes, "more bytes follow the end")),
        Err(error) => Err(ReadError::Io(error)),
    }
}

fn read_version(input: &mut Input<impl Read>) -> Result<u32, ReadError> {
    let header = input.array::<9>().map_err(|error| match error {
        ReadError::Malformed(..) => ReadError::NotRdb,
        other => other,
    })?;
    let text = header.strip_prefix(b"REDIS").ok_or(ReadError::NotRdb)?;
    let text = String::from_utf8_lossy(text);
    match text.parse() {
        Ok(version) if (1..=VERSION_MAX).contains(&version) => Ok(version),
        _ => Err(ReadError::Version(text.into_owned())),
    }
}

fn read_key<R: Read>(
    code: u8,
    database: u64,
    expires_ms: Option<u64>,
    input: &mut Input<R>,
    visitor: &mut dyn Visitor,
) -> Result<(), ReadError> {
    let at = input.at();
    let known = encoding(code);
    if known.is_none() && code != MODULE {
        return Err(ReadError::Unknown(at - 1, "a type", code));
    }
    let name = input.string()?;
    match known {
        Some((kind, encoding)) => {
            visitor.key(&Key { database, name, kind, expires_ms }, at)?;
            values::read(encoding, input, visitor)?;
        }
        None => {
            let kind = Kind::Module(module_name(input.length()?));
            visitor.key(&Key { database, name, kind, expires_ms }, at)?;
            skip_module(input)?;
        }
    }
    Ok(visitor.key_end()?)
}

/// Returns the name in a module's id: nine characters of six bits, before ten bits of its version.
fn module_name(id: u64) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let letter = |at: u32| {
        let index = usize::try_from(id >> (64 - 6 * (at + 1)) & 0x3f).unwrap_or_default();
        char::from(LETTERS[index])
    };
    (0..9).map(letter).collect()
}

fn skip_module(input: &mut Input<impl Read>) -> Result<(), ReadError> {
    loop {
        match input.length()? {
            0 => return Ok(()),
            1 | 2 => _ = input.length()?,
            3 => _ = input.array::<4>()?,
            4 => _ = input.array::<8>()?,
            5 => _ = input.string()?,
            _ => return Err(input.malformed("the value of a module makes no sense")),
        }
    }
}

/// Returns whether the file has a checksum, or an error if it is wrong.
fn check_sum(input: &mut Input<impl Read>) -> Result<bool, ReadError> {
    let expected = input.checksum();
    match u64::from_le_bytes(input.array()?) {
        0 => Ok(false),
        found if found == expected => Ok(true),
        _ => Err(ReadError::Checksum),
    }
}
