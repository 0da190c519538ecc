//! Converts simulator traces to a module that TLC reads together with `Trace.tla`.
//!
//! Slots are renumbered: all slots between two neighbouring ends of ranges were always voted for
//! together, and become one slot.

use std::{collections::BTreeSet, fmt::Write as _};

use serde_json::Value as Json;

use crate::shell::Failed;

/// A trace that can be checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CheckableTrace {
    /// The trace as a record of the module.
    pub(super) text: String,
    pub(super) step_count: u64,
}

/// Parses the lines written by the simulator. The inner error gives the reason why the module does
/// not cover the trace.
pub(super) fn parse_trace(lines: &str) -> Result<Result<CheckableTrace, &'static str>, Failed> {
    let mut steps = Vec::new();
    for (number, line) in (1..).zip(lines.lines()) {
        let step: Json = serde_json::from_str(line)
            .map_err(|error| Failed(format!("line {number} of the trace: {error}")))?;
        steps.push(step);
    }
    let Some((founds, steps)) = steps.split_first() else {
        return Err(Failed("a trace without a line".to_owned()));
    };
    if founds["do"] != "founds" {
        return Err(Failed("the first line of a trace founds the group".to_owned()));
    }
    if founds["durable"] != true {
        return Ok(Err("the group is volatile"));
    }
    let slots = SlotRanges::from_steps(steps);
    let mut text = format!(
        "[slots |-> {}, founding |-> {},\n steps |-> <<\n",
        slots.slot_count(),
        founding_record(founds)?
    );
    for (number, step) in steps.iter().enumerate() {
        let comma = if number == 0 { "" } else { ",\n" };
        let written = step_record(step, &slots)
            .ok_or_else(|| Failed(format!("line {} of the trace is no step", number + 2)))?;
        let _ = write!(text, "{comma}  {written}");
    }
    text.push_str(">>]");
    let steps = steps.len() as u64;
    Ok(Ok(CheckableTrace { text, step_count: steps }))
}

/// Returns a module that contains `traces`.
pub(super) fn render_module(traces: &[&CheckableTrace]) -> String {
    let all: Vec<&str> = traces.iter().map(|trace| trace.text.as_str()).collect();
    let all = all.join(",\n");
    format!(
        "---- MODULE Recorded ----\n(* Written by cargo xtask tla. *)\nEXTENDS Naturals, TLC\nTraces == <<\n{all}>>\n====\n"
    )
}

/// Sorted ends of ranges.
struct SlotRanges(Vec<u64>);

impl SlotRanges {
    fn from_steps(steps: &[Json]) -> Self {
        let mut ends = BTreeSet::from([1]);
        let mut note = |step: &Json| {
            let slots = ["from", "to", "floor"].iter().filter_map(|name| step[name].as_u64());
            ends.extend(slots);
        };
        for step in steps {
            note(step);
            step["extents"].as_array().into_iter().flatten().for_each(&mut note);
        }
        Self(ends.into_iter().collect())
    }

    fn range_index(&self, slot: u64) -> usize {
        self.0.partition_point(|end| *end <= slot)
    }

    /// Returns the number of slots. The last end is the end of the last slot.
    fn slot_count(&self) -> usize {
        (self.0.len() - 1).max(1)
    }
}

fn founding_record(founds: &Json) -> Result<String, Failed> {
    let members = founds["members"].as_array().into_iter().flatten();
    let (mut weights, mut auxiliaries, mut past) = (Vec::new(), Vec::new(), Vec::new());
    for member in members {
        let number = |at: usize| member[at].as_u64().unwrap_or_default();
        let who = format!("<<{}, {}>>", number(0), number(1));
        weights.push(format!("{who} :> {}", number(2)));
        past.push(format!("{} :> {}", number(0), number(1)));
        if member[3] == true {
            auxiliaries.push(who);
        }
    }
    let rule = quorum_rule(&founds["rule"])
        .ok_or_else(|| Failed("a quorum rule that no trace has".to_owned()))?;
    Ok(format!(
        "[weight |-> {}, auxiliary |-> {{{}}}, rule |-> {rule}, spent |-> {{}}, past |-> {}]",
        weights.join(" @@ "),
        auxiliaries.join(", "),
        past.join(" @@ ")
    ))
}

fn quorum_rule(rule: &Json) -> Option<String> {
    match rule {
        Json::String(name) if name == "majority" => Some("<<>>".to_owned()),
        Json::Array(_) => tla_tuple(rule),
        _ => None,
    }
}

fn tla_tuple(numbers: &Json) -> Option<String> {
    let numbers: Option<Vec<String>> =
        numbers.as_array()?.iter().map(|n| Some(n.as_u64()?.to_string())).collect();
    Some(format!("<<{}>>", numbers?.join(", ")))
}

/// Converts a step to a record, field by field.
fn step_record(step: &Json, slots: &SlotRanges) -> Option<String> {
    let mut fields = Vec::new();
    for (name, value) in step.as_object()? {
        let written = match name.as_str() {
            "from" | "to" | "floor" => slots.range_index(value.as_u64()?).to_string(),
            "extents" => {
                let extents: Option<Vec<String>> =
                    value.as_array()?.iter().map(|extent| step_record(extent, slots)).collect();
                format!("<<{}>>", extents?.join(", "))
            }
            "value" => match value {
                Json::String(text) => format!("[name |-> {text:?}]"),
                _ => step_record(value, slots)?,
            },
            "rule" => quorum_rule(value)?,
            _ => tla_value(value)?,
        };
        fields.push(format!("{name} |-> {written}"));
    }
    Some(format!("[{}]", fields.join(", ")))
}

fn tla_value(value: &Json) -> Option<String> {
    match value {
        Json::String(text) => Some(format!("{text:?}")),
        Json::Number(number) => Some(number.to_string()),
        Json::Bool(yes) => Some(if *yes { "TRUE" } else { "FALSE" }.to_owned()),
        Json::Array(_) => tla_tuple(value),
        Json::Null | Json::Object(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FOUNDS: &str = r#"{"do":"founds","durable":true,"rule":"majority","members":[[1,0,2,false],[2,0,1,true]]}"#;

    #[test]
    fn slots_used_together_become_one() {
        let lines = format!(
            "{FOUNDS}\n{}\n{}\n{}",
            r#"{"do":"vote","by":[1,0],"ballot":[0,1,1],"from":1,"to":901,"value":"content 1/1/1+1"}"#,
            r#"{"do":"vote","by":[2,0],"ballot":[0,1,1],"from":1,"to":401,"value":"content 1/1/1+1"}"#,
            r#"{"do":"asks","by":[2,0],"ballot":[0,2,2],"from":401}"#
        );
        let trace = parse_trace(&lines).unwrap().unwrap();
        assert_eq!(trace.step_count, 3);
        let expected = "[slots |-> 2, founding |-> [weight |-> <<1, 0>> :> 2 @@ <<2, 0>> :> 1, auxiliary |-> {<<2, 0>>}, \
                        rule |-> <<>>, spent |-> {}, past |-> 1 :> 0 @@ 2 :> 0],\n steps |-> <<\n";
        assert!(trace.text.starts_with(expected), "{}", trace.text);
        let ends = [("from |-> 1", "to |-> 3"), ("from |-> 1", "to |-> 2"), ("from |-> 2", "")];
        for (line, (from, to)) in trace.text.lines().skip(2).zip(ends) {
            assert!(line.contains(from) && line.contains(to), "{line}");
        }
    }

    #[test]
    fn values_of_both_kinds_are_written() {
        let change = r#"{"era":0,"change":"up","who":[3,0]}"#;
        let step =
            serde_json::from_str(&format!(r#"{{"do":"learned","value":{change}}}"#)).unwrap();
        let slots = SlotRanges(vec![1]);
        let written = step_record(&step, &slots).unwrap();
        assert!(
            written.contains("value |-> [change |-> \"up\", era |-> 0, who |-> <<3, 0>>]"),
            "{written}"
        );
    }

    #[test]
    fn malformed_traces_are_refused() {
        let volatile = FOUNDS.replace("true,\"rule", "false,\"rule");
        assert_eq!(parse_trace(&volatile).unwrap(), Err("the group is volatile"));
        for (lines, why) in [
            ("", "a trace without a line"),
            ("{}", "the first line of a trace founds the group"),
            ("words", "line 1 of the trace: expected value at line 1 column 1"),
        ] {
            assert_eq!(parse_trace(lines).unwrap_err().to_string(), why);
        }
        let said = parse_trace(&format!("{FOUNDS}\n{{\"do\":null}}")).unwrap_err();
        assert_eq!(said.to_string(), "line 2 of the trace is no step");
    }
}
