//! JSON error document that all commands and pages use.

use serde::Serialize;

use crate::view::ProgressView;

/// JSON error: `{"error":{"code","message","hint"}}`, with id and progress if a node cannot serve.
#[derive(Debug, Serialize)]
pub struct ErrorDocument<'a> {
    error: ErrorBody<'a>,
    /// Id of the responding node. Set only while the node cannot report a status.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub progress: Option<&'a ProgressView>,
}

#[derive(Debug, Serialize)]
struct ErrorBody<'a> {
    code: &'a str,
    message: &'a str,
    hint: &'a str,
}

impl<'a> ErrorDocument<'a> {
    pub const fn new(code: &'a str, message: &'a str, hint: &'a str) -> Self {
        Self { error: ErrorBody { code, message, hint }, node: None, progress: None }
    }

    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("texts and numbers are always JSON")
    }
}

pub fn error_json(code: &str, message: &str, hint: &str) -> String {
    ErrorDocument::new(code, message, hint).to_json()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_one_json_document_with_three_fields() {
        assert_eq!(
            error_json("port_in_use", "say \"no\"", "other port"),
            r#"{"error":{"code":"port_in_use","message":"say \"no\"","hint":"other port"}}"#
        );
    }
}
