//! Follows the newcomers' page from its first line to its last on a minimal Debian with the
//! package, and measures the duration of each part.

use std::{
    fmt::Write as _,
    fs,
    io::{BufRead as _, BufReader},
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use quorate_shell::{Failed, is_installed, report_skip, workspace_root};
use quorate_testbed::page::{page_commands, to_shell};

const FIRST_HOUR_PAGE: &str = "docs/operate/first-hour.md";
/// Script that creates the minimal root folder.
const FRESH_ROOT_SCRIPT: &str = include_str!("fresh.sh");
const NEEDED_PROGRAMS: [&str; 7] =
    ["apt-cache", "awk", "dpkg-query", "ip", "tar", "timeout", "unshare"];
/// Prefix of an output line that announces the next part of the page.
const PART_PREFIX: &str = "@@ ";
/// Timeout for the whole page, in seconds.
const TIMEOUT_SECONDS: &str = "300";

/// Follows the page with the Debian package `package` and the file of its checksums.
pub(crate) fn follow_page(package: &Path, sums: &Path) -> Result<(), Failed> {
    let what = "the first hour of a newcomer is not tried";
    if let Some(missing) = NEEDED_PROGRAMS.iter().find(|name| !is_installed(name)) {
        return report_skip(what, &format!("there is no {missing}"));
    }
    if !rustix::process::geteuid().is_root() {
        return report_skip(what, "that takes root");
    }
    let (fresh, home) = (tempfile::tempdir()?, tempfile::tempdir()?);
    for file in [package, sums] {
        let name = file.file_name().unwrap_or_default();
        fs::copy(file, home.path().join(name)).map_err(Failed::at_path(file))?;
    }
    let page = workspace_root().join(FIRST_HOUR_PAGE);
    let page = fs::read_to_string(&page).map_err(Failed::at_path(&page))?;
    fs::write(home.path().join("run"), page_script(&page))?;
    let mut child = Command::new("timeout")
        .args(["--kill-after=10", TIMEOUT_SECONDS, "unshare", "--mount"])
        .args(["--net", "--pid", "--fork", "--kill-child"])
        .args(["sh", "-c", FRESH_ROOT_SCRIPT, "sh"])
        .args([fresh.path(), home.path()])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()?;
    let (mut said, mut made, mut parts) = (String::new(), None, Vec::new());
    for line in child.stdout.take().map(BufReader::new).into_iter().flat_map(BufReader::lines) {
        let line = line?;
        match (line.strip_prefix("made of "), line.strip_prefix(PART_PREFIX)) {
            (Some(packages), _) => made = Some(packages.to_owned()),
            (_, Some(part)) => parts.push((part.to_owned(), Instant::now())),
            _ => {}
        }
        said += &line;
        said += "\n";
    }
    let ended = Instant::now();
    let status = child.wait()?;
    let Some(packages) = made else {
        return report_skip(what, said.trim());
    };
    if !status.success() {
        return Err(Failed(format!("{FIRST_HOUR_PAGE} on a fresh machine: {status}\n{said}")));
    }
    println!("  {FIRST_HOUR_PAGE} works on a machine of {packages} without a network:");
    for line in format_durations(&parts, ended) {
        println!("    {line}");
    }
    Ok(())
}

/// Returns the commands that a reader types. The script runs as root already, and drops `sudo`.
fn page_script(page: &str) -> String {
    let mut script = "cd\nsudo() { env PATH=/usr/sbin:/usr/bin:/sbin:/bin \"$@\"; }\n".to_owned();
    let mut part = String::new();
    for step in page_commands(page) {
        if step.heading != part {
            // A program that draws on the terminal may not have ended its last line.
            let _ = writeln!(
                script,
                r"{{ printf '\n%s\n' '{PART_PREFIX}{}'; }} 2>/dev/null",
                step.heading
            );
            part = step.heading;
        }
        script += &to_shell(&step.text);
        script.push('\n');
    }
    script
}

/// Formats the seconds of each part and their total.
fn format_durations(parts: &[(String, Instant)], ended: Instant) -> Vec<String> {
    let row = |time: Duration, part: &str| format!("{:>5.1} s  {part}", time.as_secs_f64());
    let ends = parts.iter().skip(1).map(|(_, begun)| *begun);
    let times = parts.iter().zip(ends.chain([ended]));
    let mut rows: Vec<String> =
        times.map(|((part, begun), ended)| row(ended - *begun, part)).collect();
    if let Some((_, begun)) = parts.first() {
        rows.push(row(ended - *begun, "in all"));
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn script_has_the_commands_of_the_page() {
        let page = "# A\n## One\n```sh\nsudo b c\n```\n## Two\n<!-- test\nrun d\n-->\n";
        let script = page_script(page);
        let lines: Vec<&str> = script.lines().skip(2).collect();
        let part = |name: &str| format!(r"{{ printf '\n%s\n' '@@ {name}'; }} 2>/dev/null");
        assert_eq!(lines, [&part("One"), "sudo b c", &part("Two"), "d"]);
    }

    #[test]
    fn part_duration_lasts_until_the_next_part() {
        let begun = Instant::now();
        let at = |seconds| begun + Duration::from_secs(seconds);
        let parts = [("One".to_owned(), at(0)), ("Two".to_owned(), at(3))];
        assert_eq!(
            format_durations(&parts, at(5)),
            ["  3.0 s  One", "  2.0 s  Two", "  5.0 s  in all"]
        );
    }
}
