//! Commands of a documentation page: the lines of its `sh` blocks, in order.
//!
//! A comment that begins with `<!-- test` contains further lines, which only tests execute.

/// A command of a documentation page. A line that ends with a backslash continues on the next line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageCommand {
    /// Number of the command's last line in the page.
    pub line: usize,
    /// Heading above the command. Empty at the top of the page.
    pub heading: String,
    pub text: String,
}

/// Converts a step for the shell: drops the `run` of tests, makes interactive programs quit.
#[must_use]
pub fn to_shell(text: &str) -> String {
    match text.strip_prefix("run ") {
        Some(command) => command.to_owned(),
        None if text.starts_with("quorate top") => {
            format!("printf q | TERM=xterm script -qec '{text}' /dev/null")
        }
        None => text.to_owned(),
    }
}

/// Returns all commands of a page.
///
/// # Panics
///
/// Panics if a block or a line is not terminated.
#[must_use]
pub fn page_commands(page: &str) -> Vec<PageCommand> {
    let (mut steps, mut ends_with, mut begun) = (Vec::new(), None, String::new());
    let mut heading = String::new();
    for (line, text) in (1..).zip(page.lines()) {
        match ends_with {
            None if text.starts_with("```sh") => ends_with = Some("```"),
            None if text.starts_with("```") => ends_with = Some("``` "),
            None if text == "<!-- test" => ends_with = Some("-->"),
            None if text.starts_with('#') => {
                text.trim_start_matches('#').trim().clone_into(&mut heading);
            }
            None => {}
            Some(end) if text == end.trim_end() => ends_with = None,
            // The block contains the output of a command, or a file.
            Some("``` ") => {}
            Some(_) if text.is_empty() || text.starts_with('#') => {}
            Some(_) => {
                begun.push_str(text.trim_start());
                match begun.strip_suffix('\\') {
                    Some(half) => begun = half.to_owned(),
                    None => steps.push(PageCommand {
                        line,
                        heading: heading.clone(),
                        text: std::mem::take(&mut begun),
                    }),
                }
            }
        }
    }
    assert_eq!((ends_with, &*begun), (None, ""), "a block has no end");
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_sh_blocks_and_test_comments() {
        let page = "# One\n```sh\n# said\na \\\n  b\n\nc\n```\n```\nd\n```\n## Two\n<!-- test\nkill n1\n-->\n<!-- e -->\n";
        let expected = [(5, "One", "a b"), (7, "One", "c"), (14, "Two", "kill n1")];
        let expected = expected.map(|(line, heading, text)| PageCommand {
            line,
            heading: heading.to_owned(),
            text: text.to_owned(),
        });
        assert_eq!(page_commands(page), expected);
        assert_eq!(to_shell("run a b"), "a b");
        let top = to_shell("quorate top --every 2");
        assert_eq!(top, "printf q | TERM=xterm script -qec 'quorate top --every 2' /dev/null");
    }
}
