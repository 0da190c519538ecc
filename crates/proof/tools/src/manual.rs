//! `quorate completions` and `quorate man`: generate completion scripts and manual pages from the
//! help texts.

use std::{fs, path::PathBuf};

use clap::{Args, Command};
use clap_complete::Shell;
use clap_mangen::Man;
use serde::Serialize;

use quorate_cli::output::{Exit, Output, Problem};

/// Arguments of `quorate completions`.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = "\
bash   quorate completions bash > ~/.local/share/bash-completion/completions/quorate
zsh    quorate completions zsh > ~/.zfunc/_quorate          (~/.zfunc in fpath)
fish   quorate completions fish > ~/.config/fish/completions/quorate.fish")]
pub(crate) struct CompletionsArgs {
    /// Shell to write the script for
    shell: Shell,
}

/// Arguments of `quorate man`.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = "\
quorate man | man -l -                     read the first page now
quorate man --to ~/.local/share/man/man1   then: man quorate, man quorate-start")]
pub(crate) struct ManArgs {
    /// Write a page for each command to this folder; created if missing
    #[arg(long, value_name = "DIR")]
    to: Option<PathBuf>,
}

/// Completion script for a shell.
#[derive(Debug, Serialize)]
struct CompletionScript {
    shell: String,
    script: String,
}

/// Result of `quorate man`: the first manual page, or the paths of the written files.
#[derive(Debug, Serialize)]
struct ManualPages {
    #[serde(skip_serializing_if = "Option::is_none")]
    page: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    files: Vec<PathBuf>,
}

/// Runs `quorate completions`. `command` describes the whole program.
pub(crate) fn print_completions(
    args: &CompletionsArgs,
    mut command: Command,
    output: Output,
) -> Result<Exit, Problem> {
    let name = command.get_name().to_owned();
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, name, &mut script);
    let script = String::from_utf8_lossy(&script).trim_end().to_owned();
    let shell = args.shell.to_string();
    let completions = CompletionScript { shell, script };
    output.print_result(&completions, || completions.script.clone());
    Ok(Exit::Done)
}

/// Runs `quorate man`. `command` describes the whole program.
pub(crate) fn print_manual(
    args: &ManArgs,
    command: Command,
    output: Output,
) -> Result<Exit, Problem> {
    let mut command = command.disable_help_subcommand(true);
    // `build` sets the full names of the subcommands.
    command.build();
    let mut pages = Vec::new();
    collect_pages(&command, &mut pages);
    let Some(folder) = &args.to else {
        let page = pages.swap_remove(0).1;
        let human = page.trim_end().to_owned();
        let pages = ManualPages { page: Some(page), files: Vec::new() };
        output.print_result(&pages, || human);
        return Ok(Exit::Done);
    };
    let failed = |error| Problem::io_error(format_args!("write to {}", folder.display()), &error);
    fs::create_dir_all(folder).map_err(failed)?;
    let mut files = Vec::new();
    for (name, page) in pages {
        let file = folder.join(format!("{name}.1"));
        fs::write(&file, page).map_err(failed)?;
        files.push(file);
    }
    let pages = ManualPages { page: None, files };
    output.print_result(&pages, || {
        let count = pages.files.len();
        format!("{count} pages are in {}", folder.display())
    });
    Ok(Exit::Done)
}

/// Renders the manual pages of a command and of all its visible subcommands. Each page is added
/// with its name.
fn collect_pages(command: &Command, pages: &mut Vec<(String, String)>) {
    let name = command.get_display_name();
    let name = name.unwrap_or_else(|| command.get_name()).to_owned();
    let mut page = Vec::new();
    // Writing to a vector cannot fail.
    let rendered = Man::new(command.clone()).render(&mut page);
    debug_assert!(rendered.is_ok());
    pages.push((name, String::from_utf8_lossy(&page).into_owned()));
    let below = command.get_subcommands();
    for command in below.filter(|below| !below.is_hide_set()) {
        collect_pages(command, pages);
    }
}
