//! LCS: the longest common subsequence of two strings.

mod run;
mod table;

use self::run::Form;
use crate::{
    command::{Doc, READS, Refusal, Request, SYNTAX, Spec},
    commands::family::{Family, Operation},
    encode::Encoder,
    op::Op,
};

pub const FAMILY: Family =
    Family { commands: COMMANDS, operations: &[Operation::read(Op::Lcs, run::lcs)] };

const COMMANDS: &[Spec] = &[Spec::data(
    "lcs",
    -3,
    READS,
    (1, 2, 1),
    encode_lcs,
    Doc::new(
        "string",
        "7.0.0",
        "O(N*M), where N and M are the lengths of the strings",
        "Finds the longest common substring.",
    )
    .with_difference("comparisons that need at most 16 MiB"),
)];

const BOTH: &str = "ERR If you want both the length and indexes, please just use IDX.";

fn encode_lcs(r: &Request<'_>, out: &mut Encoder<'_>) -> Result<(), Refusal> {
    let (mut length, mut ranges, mut measured, mut least) = (false, false, false, 0);
    let mut at = 2;
    while at < r.arguments.len() {
        if r.is(at, "idx") {
            ranges = true;
        } else if r.is(at, "len") {
            length = true;
        } else if r.is(at, "withmatchlen") {
            measured = true;
        } else if r.is(at, "minmatchlen") && at + 1 < r.arguments.len() {
            least = r.integer(at + 1)?.max(0).unsigned_abs();
            at += 1;
        } else {
            return Err(SYNTAX.into());
        }
        at += 1;
    }
    let form = match (length, ranges, measured) {
        (true, true, _) => return Err(BOTH.into()),
        (true, false, _) => Form::Length,
        (false, true, true) => Form::MeasuredRanges,
        (false, true, false) => Form::Ranges,
        (false, false, _) => Form::Text,
    };
    out.byte(Op::Lcs as u8).byte(form as u8).count(least).bytes(r.at(0)).bytes(r.at(1));
    Ok(())
}
