//! Just enough JSON to write a report.

use std::fmt::Write as _;

/// An object whose members come in the order given.
#[derive(Debug, Default)]
pub(super) struct Object(String);

impl Object {
    /// A member that is a text.
    pub(super) fn text(self, name: &str, value: &str) -> Self {
        let mut quoted = String::from("\"");
        for c in value.chars() {
            match c {
                '"' | '\\' => quoted.extend(['\\', c]),
                c if c.is_control() => {
                    let _ = write!(quoted, "\\u{:04x}", u32::from(c));
                }
                c => quoted.push(c),
            }
        }
        quoted.push('"');
        self.raw(name, &quoted)
    }

    /// A member that is a number; one that is none is written as null.
    pub(super) fn number(self, name: &str, value: f64) -> Self {
        let text = if value.is_finite() {
            format!("{value}")
        } else {
            "null".to_owned()
        };
        self.raw(name, &text)
    }

    /// A member that is an array of objects.
    pub(super) fn array(self, name: &str, items: Vec<Self>) -> Self {
        let items: Vec<String> = items.into_iter().map(Self::end).collect();
        self.raw(name, &format!("[{}]", items.join(",")))
    }

    /// The object as text.
    pub(super) fn end(self) -> String {
        format!("{{{}}}", self.0)
    }

    fn raw(mut self, name: &str, value: &str) -> Self {
        let comma = if self.0.is_empty() { "" } else { "," };
        let _ = write!(self.0, "{comma}\"{name}\":{value}");
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_json() {
        let row = Object::default().number("a", 1.5).number("b", f64::NAN);
        let all = Object::default()
            .text("t", "say \"x\"\n")
            .array("rows", vec![row]);
        assert_eq!(
            all.end(),
            r#"{"t":"say \"x\"\u000a","rows":[{"a":1.5,"b":null}]}"#
        );
    }
}
