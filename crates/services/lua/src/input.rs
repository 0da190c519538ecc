//! Encoding of a run's input for its machine.

use crate::{INPUT_BYTES_MAX, Run, TEXT_BYTES_MAX, header};

pub(crate) const TEXT_TOO_LONG: &str = "a script may have 256 KiB";
const INPUT_TOO_LONG: &str = "the keys and arguments of a script may have 16 MiB together";

/// Returns the text to compile, and the encoded seed, keys and arguments.
pub(crate) fn encode_input<'a>(run: &Run<'a>) -> Result<(&'a [u8], Vec<u8>), String> {
    let failed = |why: &str| format!("ERR {why}");
    if run.text.len() > TEXT_BYTES_MAX {
        return Err(failed(TEXT_TOO_LONG));
    }
    let (_, body) = header::split_header(run.text).map_err(|why| failed(&why))?;
    let lists = [run.keys, run.arguments];
    let bytes: usize = lists.iter().flat_map(|list| list.iter()).map(|item| 4 + item.len()).sum();
    if bytes > INPUT_BYTES_MAX {
        return Err(failed(INPUT_TOO_LONG));
    }
    let mut input = Vec::with_capacity(bytes + 12);
    #[expect(clippy::cast_possible_truncation, reason = "Redis' generator has a seed of 32 bits")]
    input.extend(((run.seed ^ (run.seed >> 32)) as u32).to_le_bytes());
    for list in lists {
        append_number(list.len(), &mut input);
        for item in list {
            append_number(item.len(), &mut input);
            input.extend(*item);
        }
    }
    Ok((body, input))
}

/// Appends a number that is at most the size limit of the input.
fn append_number(number: usize, input: &mut Vec<u8>) {
    input.extend(u32::try_from(number).unwrap_or(u32::MAX).to_le_bytes());
}
