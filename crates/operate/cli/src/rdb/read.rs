//! Reader of whole files: header, sections, keys, checksum.

use std::io::Read;

use super::{
    input::Input,
    types::{Key, Kind, RdbVisitor, ReadError},
    values::{self, parse_encoding},
};

/// Newest version of the format that is read.
pub(crate) const VERSION_MAX: u32 = 12;
/// First version with a checksum.
const CHECKSUM_VERSION_MIN: u32 = 5;

/// Codes of sections. All others are types of keys.
mod section {
    pub(super) const SLOT_INFO_CODE: u8 = 244;
    pub(super) const FUNCTION_CODE: u8 = 245;
    pub(super) const MODULE_AUX_CODE: u8 = 247;
    pub(super) const IDLE_CODE: u8 = 248;
    pub(super) const FREQUENCY_CODE: u8 = 249;
    pub(super) const AUX_CODE: u8 = 250;
    pub(super) const SIZES_CODE: u8 = 251;
    pub(super) const EXPIRES_MS_CODE: u8 = 252;
    pub(super) const EXPIRES_S_CODE: u8 = 253;
    pub(super) const DATABASE_CODE: u8 = 254;
    pub(super) const END_CODE: u8 = 255;
}

/// Type of a module's value that can be skipped.
const MODULE_TYPE: u8 = 7;

/// Properties of a file that was read to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileSummary {
    pub(crate) version: u32,
    pub(crate) bytes: u64,
    /// Set if the file has a checksum, which is right.
    pub(crate) has_checksum: bool,
}

/// Reads a file to its end, and passes its contents to `visitor`.
pub(crate) fn read_file(
    from: impl Read,
    visitor: &mut dyn RdbVisitor,
) -> Result<FileSummary, ReadError> {
    let mut input = Input::new(from);
    let version = read_version(&mut input)?;
    let mut database = 0;
    let mut expires_ms = None;
    loop {
        match input.read_byte()? {
            section::END_CODE => break,
            section::DATABASE_CODE => database = input.read_length()?,
            section::SIZES_CODE => _ = (input.read_length()?, input.read_length()?),
            section::SLOT_INFO_CODE => {
                _ = (input.read_length()?, input.read_length()?, input.read_length()?)
            }
            section::AUX_CODE => {
                let (name, value) = (input.read_string()?, input.read_string()?);
                visitor.visit_aux(&name, &value);
            }
            section::FUNCTION_CODE => {
                let text = input.read_string()?;
                visitor.visit_function(&text);
            }
            section::MODULE_AUX_CODE => {
                let name = module_name(input.read_length()?);
                skip_module(&mut input)?;
                visitor.visit_module_data(&name);
            }
            section::EXPIRES_MS_CODE => expires_ms = Some(input.read_unix_ms()?),
            section::EXPIRES_S_CODE => {
                let s = i32::from_le_bytes(input.read_array()?);
                expires_ms = Some(u64::try_from(s).unwrap_or(0) * 1000);
            }
            section::IDLE_CODE => _ = input.read_length()?,
            section::FREQUENCY_CODE => _ = input.read_byte()?,
            code => {
                read_key(code, database, expires_ms.take(), &mut input, visitor)?;
            }
        }
    }
    let is_checked = version >= CHECKSUM_VERSION_MIN && check_checksum(&mut input)?;
    let bytes = input.position();
    match input.reached_end() {
        Ok(true) => Ok(FileSummary { version, bytes, has_checksum: is_checked }),
        Ok(false) => Err(ReadError::Malformed(bytes, "more bytes follow the end")),
        Err(error) => Err(ReadError::Io(error)),
    }
}

fn read_version(input: &mut Input<impl Read>) -> Result<u32, ReadError> {
    let header = input.read_array::<9>().map_err(|error| match error {
        ReadError::Malformed(..) => ReadError::NotRdb,
        other => other,
    })?;
    let text = header.strip_prefix(b"REDIS").ok_or(ReadError::NotRdb)?;
    let text = String::from_utf8_lossy(text);
    match text.parse() {
        Ok(version) if (1..=VERSION_MAX).contains(&version) => Ok(version),
        _ => Err(ReadError::UnknownVersion(text.into_owned())),
    }
}

fn read_key<R: Read>(
    code: u8,
    database: u64,
    expires_ms: Option<u64>,
    input: &mut Input<R>,
    visitor: &mut dyn RdbVisitor,
) -> Result<(), ReadError> {
    let at = input.position();
    let known = parse_encoding(code);
    if known.is_none() && code != MODULE_TYPE {
        return Err(ReadError::UnknownCode(at - 1, "a type", code));
    }
    let name = input.read_string()?;
    match known {
        Some((kind, encoding)) => {
            visitor.key(&Key { database, name, kind, expires_ms }, at)?;
            values::read_value(encoding, input, visitor)?;
        }
        None => {
            let kind = Kind::Module(module_name(input.read_length()?));
            visitor.key(&Key { database, name, kind, expires_ms }, at)?;
            skip_module(input)?;
        }
    }
    Ok(visitor.end_key()?)
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
        match input.read_length()? {
            0 => return Ok(()),
            1 | 2 => _ = input.read_length()?,
            3 => _ = input.read_array::<4>()?,
            4 => _ = input.read_array::<8>()?,
            5 => _ = input.read_string()?,
            _ => return Err(input.malformed_at_position("the value of a module makes no sense")),
        }
    }
}

/// Returns whether the file has a checksum, or an error if it is wrong.
fn check_checksum(input: &mut Input<impl Read>) -> Result<bool, ReadError> {
    let expected = input.checksum();
    match u64::from_le_bytes(input.read_array()?) {
        0 => Ok(false),
        found if found == expected => Ok(true),
        _ => Err(ReadError::WrongChecksum),
    }
}
