//! The first line of a script: `#!lua name=… flags=…`.

/// Flags in the first line of a script.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "named after Redis' flags")]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
pub struct Flags {
    pub no_writes: bool,
    pub allow_oom: bool,
    pub allow_stale: bool,
    pub no_cluster: bool,
    pub allow_cross_slot_keys: bool,
}

/// Parses the flags in the first line of a script. Returns Redis' error if the line is malformed.
pub fn flags(text: &[u8]) -> Result<Flags, String> {
    split_header(text).map(|(flags, _)| flags)
}

/// Splits a script into its flags and the text to compile. The text starts with the line break, so
/// that lines keep their numbers.
pub(crate) fn split_header(text: &[u8]) -> Result<(Flags, &[u8]), String> {
    let mut flags = Flags::default();
    if !text.starts_with(b"#!") {
        return Ok((flags, text));
    }
    let Some(end) = text.iter().position(|&byte| byte == b'\n') else {
        return Err("Invalid script shebang".to_owned());
    };
    let (line, body) = text.split_at(end);
    let line = String::from_utf8_lossy(line);
    let mut words = line.split_ascii_whitespace();
    match words.next() {
        Some("#!lua") => {}
        Some(engine) => return Err(format!("Unexpected engine in script shebang: {engine}")),
        None => return Err("Invalid engine in script shebang".to_owned()),
    }
    for word in words {
        let Some(list) = word.strip_prefix("flags=") else {
            return Err(format!("Unknown lua shebang option: {word}"));
        };
        for name in list.split(',').filter(|_| !list.is_empty()) {
            flags.set(name)?;
        }
    }
    Ok((flags, body))
}

impl Flags {
    fn set(&mut self, name: &str) -> Result<(), String> {
        let flag = match name {
            "no-writes" => &mut self.no_writes,
            "allow-oom" => &mut self.allow_oom,
            "allow-stale" => &mut self.allow_stale,
            "no-cluster" => &mut self.no_cluster,
            "allow-cross-slot-keys" => &mut self.allow_cross_slot_keys,
            _ => return Err(format!("Unexpected flag in script shebang: {name}")),
        };
        *flag = true;
        Ok(())
    }
}
