//! Conversion of replies between the protocol-neutral form and the form used by scripts.

use quorate_lua::Data;

use crate::resp::reply::Reply;

/// Parses the first reply. Returns it with the bytes after it.
fn parse_reply(neutral: &[u8]) -> Option<(Data, &[u8])> {
    let end = neutral.iter().position(|&byte| byte == b'\n')? + 1;
    let (line, rest) = neutral.split_at(end);
    let text = line.get(1..end.checked_sub(2)?)?;
    let number = || std::str::from_utf8(text).ok()?.parse::<i64>().ok();
    let count = || usize::try_from(number()?).ok();
    let list = |count: usize| {
        let (mut items, mut rest) = (Vec::new(), rest);
        for _ in 0..count {
            let (item, behind) = parse_reply(rest)?;
            items.push(item);
            rest = behind;
        }
        Some((items, rest))
    };
    let pairs = |count: usize| {
        let (items, rest) = list(count.checked_mul(2)?)?;
        let mut items = items.into_iter();
        let pairs = std::iter::from_fn(|| Some((items.next()?, items.next()?)));
        Some((pairs.collect::<Vec<_>>(), rest))
    };
    Some(match line[0] {
        b'+' => (Data::Status(text.to_vec()), rest),
        b'-' => (Data::Error(text.to_vec()), rest),
        b':' => (Data::Integer(number()?), rest),
        b'_' | b'N' => (Data::Null, rest),
        b'#' => (Data::Boolean(text == b"t"), rest),
        b',' => (Data::Double(text.to_vec()), rest),
        b'$' => {
            let (body, rest) = rest.split_at_checked(count()?)?;
            (Data::Bulk(body.to_vec()), rest.get(2..)?)
        }
        b'=' => {
            let (body, rest) = rest.split_at_checked(count()?)?;
            (Data::Verbatim(body.get(4..)?.to_vec()), rest.get(2..)?)
        }
        b'*' => list(count()?).map(|(items, rest)| (Data::Array(items), rest))?,
        b'~' => list(count()?).map(|(items, rest)| (Data::Set(items), rest))?,
        b'%' => pairs(count()?).map(|(pairs, rest)| (Data::Map(pairs), rest))?,
        b'M' => pairs(count()?).map(|(pairs, rest)| (Data::NestedMap(pairs), rest))?,
        b'P' => pairs(count()?).map(|(pairs, rest)| (Data::Pairs(pairs), rest))?,
        _ => return None,
    })
}

/// Parses a command's reply.
pub(super) fn parse(neutral: &[u8]) -> Data {
    match parse_reply(neutral) {
        Some((data, b"")) => data,
        _ => Data::Error(b"ERR the command gave no reply".to_vec()),
    }
}

/// Writes a script's reply.
pub(super) fn write(data: &Data, reply: &mut Reply<'_>) {
    match data {
        Data::Null => reply.null(),
        Data::Boolean(value) => {
            reply.0.extend_from_slice(if *value { b"#t\r\n" } else { b"#f\r\n" })
        }
        Data::Integer(value) => reply.integer(*value),
        Data::Double(value) => reply.line(b',', value),
        Data::Bulk(bytes) => reply.bulk(bytes),
        Data::BigNumber(digits) => reply.line(b'(', digits),
        Data::Status(bytes) => reply.line(b'+', bytes),
        Data::Error(bytes) => reply.line(b'-', bytes),
        Data::Verbatim(bytes) => reply.verbatim_bytes(bytes),
        Data::Array(items) => {
            reply.array(items.len());
            items.iter().for_each(|item| write(item, reply));
        }
        Data::Set(items) => {
            reply.set(items.len());
            items.iter().for_each(|item| write(item, reply));
        }
        Data::Map(pairs) | Data::Pairs(pairs) | Data::NestedMap(pairs) => {
            reply.map(pairs.len());
            for (name, value) in pairs {
                write(name, reply);
                write(value, reply);
            }
        }
    }
}
