//! Client wire format for simulated nodes, limited to the required part of RESP2.

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// `+…`
    Simple(String),
    /// `-…`
    Error(String),
    /// `:…`
    Integer(i64),
    /// `$…`
    Bulk(Option<Vec<u8>>),
    /// `*…`
    Array(Option<Vec<Self>>),
}

/// Appends an encoded request.
pub fn encode_request(words: &[&[u8]], out: &mut Vec<u8>) {
    out.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
    for word in words {
        out.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        out.extend_from_slice(word);
        out.extend_from_slice(b"\r\n");
    }
}

/// Decodes the first reply in `bytes` and returns it with its length; `None` if it is incomplete.
pub fn decode_reply(bytes: &[u8]) -> Result<Option<(Reply, usize)>, String> {
    let Some(end) = bytes.windows(2).position(|two| two == b"\r\n") else {
        return Ok(None);
    };
    let text = String::from_utf8_lossy(&bytes[1..end]).into_owned();
    let number = || text.parse::<i64>().map_err(|_| format!("no number: {text}"));
    let used = end + 2;
    let reply = match bytes[0] {
        b'+' => Reply::Simple(text),
        b'-' => Reply::Error(text),
        b':' => Reply::Integer(number()?),
        b'$' => {
            let Ok(length) = usize::try_from(number()?) else {
                return Ok(Some((Reply::Bulk(None), used)));
            };
            let Some(body) = bytes.get(used..used + length) else {
                return Ok(None);
            };
            if bytes.len() < used + length + 2 {
                return Ok(None);
            }
            return Ok(Some((Reply::Bulk(Some(body.to_vec())), used + length + 2)));
        }
        b'*' => {
            let Ok(count) = usize::try_from(number()?) else {
                return Ok(Some((Reply::Array(None), used)));
            };
            let (mut list, mut used) = (Vec::new(), used);
            for _ in 0..count {
                let Some((one, more)) = decode_reply(&bytes[used..])? else {
                    return Ok(None);
                };
                list.push(one);
                used += more;
            }
            return Ok(Some((Reply::Array(Some(list)), used)));
        }
        other => return Err(format!("no reply starts with {other:#x}")),
    };
    Ok(Some((reply, used)))
}
