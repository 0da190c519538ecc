//! Tests the recorded run of `quorate sim --page` in a browser: playback, single steps and layout.

use std::path::Path;

use quorate_testbed::process::command_of;

use super::{LAYOUT_SCRIPT, cluster::WINDOW_SIZES};
use crate::{
    browser::{Appearance, Browser},
    shell::Failed,
};

/// Writes the page into this folder and tests it.
pub(super) fn run(program: &Path, browser: &str, pictures: &Path) -> Result<(), Failed> {
    let file = pictures.join("replay.html");
    let written = command_of(program).args(["sim", "--page"]).arg(&file).output()?;
    if !written.status.success() {
        let why = String::from_utf8_lossy(&written.stderr);
        return Err(Failed(format!("sim --page: {why}")));
    }
    let mut browser = Browser::start(browser, pictures)?;
    let address = format!("file://{}", file.display());
    browser.open(&address)?;
    let tried = try_all(&mut browser, pictures);
    tried.map_err(|Failed(why)| Failed(format!("replay: {why}")))?;
    browser.eval("true")?;
    if !browser.page_errors.is_empty() {
        let complaints = &browser.page_errors;
        return Err(Failed(format!("replay: it complains: {complaints:#?}")));
    }
    let elsewhere = |url: &&String| **url != address && !url.starts_with("data:");
    if let Some(url) = browser.fetched_addresses.iter().find(elsewhere) {
        return Err(Failed(format!("replay: fetched from elsewhere: {url}")));
    }
    println!("done: the recorded run");
    Ok(())
}

fn try_all(browser: &mut Browser, pictures: &Path) -> Result<(), Failed> {
    browser.wait_until(
        "a recorded run",
        "document.querySelectorAll('#lines li').length > 40 && document.querySelectorAll('#stage .node[data-is=leader]').length === 1",
    )?;
    check_layout(browser, pictures, "begin")?;
    browser.set_appearance(Appearance { width: 1024, height: 768, is_dark: false })?;
    // Step by keyboard.
    for (key, at) in [("ArrowRight", 1), ("ArrowRight", 2), ("ArrowLeft", 1)] {
        browser.key(key)?;
        browser.wait_until(
            "the event that was stepped to",
            &format!("document.getElementById('at').value === '{at}'"),
        )?;
    }
    browser.eval("document.getElementById('speed').value = '4'")?;
    browser.key("Space")?;
    browser.wait_until(
        "messages in flight",
        "document.querySelectorAll('#stage .message').length > 0",
    )?;
    browser.wait_until(
        "a dead leader, with its links cut",
        "document.querySelectorAll('#stage .node[data-is=dead]').length === 1 && document.querySelectorAll('#stage .link.cut').length === 2",
    )?;
    browser.save_screenshot(&pictures.join("replay-dead.png"))?;
    browser.wait_until(
        "an election",
        "document.querySelectorAll('#stage .node[data-is=candidate]').length === 1",
    )?;
    browser.wait_until(
        "another leader while the first one is dead",
        "document.querySelectorAll('#stage .node[data-is=dead]').length === 1 && document.querySelectorAll('#stage .node[data-is=leader]').length === 1",
    )?;
    browser.wait_until(
        "the end: all follow one leader, and hold the same",
        "document.getElementById('play').textContent === 'Play' && document.getElementById('at').value === document.getElementById('at').max && \
         document.querySelectorAll('#stage .node[data-is=leader]').length === 1 && document.querySelectorAll('#stage .node[data-is=follower]').length === 2 && \
         new Set([...document.querySelectorAll('#table tr')].map(tr => tr.cells[3].textContent + ' ' + tr.cells[4].textContent)).size === 1",
    )?;
    check_layout(browser, pictures, "end")
}

fn check_layout(browser: &mut Browser, pictures: &Path, when: &str) -> Result<(), Failed> {
    for (name, width, height) in WINDOW_SIZES {
        for (scheme, dark) in [("light", false), ("dark", true)] {
            browser.set_appearance(Appearance { width, height, is_dark: dark })?;
            let faults = browser.eval(LAYOUT_SCRIPT)?;
            if faults.as_array().is_none_or(|faults| !faults.is_empty()) {
                return Err(Failed(format!("{when}, {name}, {scheme}: {faults:#}")));
            }
            let picture = format!("replay-{when}-{name}-{scheme}.png");
            browser.save_screenshot(&pictures.join(picture))?;
        }
    }
    Ok(())
}
