//! Tests the page at the admin address in a browser: three nodes, which are inspected, sent
//! requests, killed and paused.

use std::{
    fs,
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use quorate_testbed::{
    nodes::{NodeCluster, START_TIMEOUT},
    usage::ResourceUsage,
    wait,
    writers::Writers,
};
use serde_json::json;

use super::LAYOUT_SCRIPT;
use crate::{
    browser::{Appearance, Browser},
    shell::Failed,
};

const FOLDER_PREFIX: &str = "quorate-page-";
/// Flags that each node is started with. All links are probed, so that round-trip times are known.
const NODE_FLAGS: [&str; 2] = ["--plane", "auto"];
/// Window sizes of a phone, a desktop and a wall display.
pub(super) const WINDOW_SIZES: [(&str, u32, u32); 3] =
    [("phone", 360, 800), ("desk", 1024, 768), ("wall", 2560, 1440)];
/// Time over which the nodes' resource usage is measured, with and without a viewer.
const MEASURED_DURATION: Duration = Duration::from_secs(10);

/// Runs all tests, with screenshots in this folder.
pub(super) fn run(program: &Path, browser: &str, pictures: &Path) -> Result<(), Failed> {
    let mut nodes = NodeCluster::start_on_loopback(program, FOLDER_PREFIX, 3, &NODE_FLAGS)?;
    nodes.wait_until_all_serve()?;
    measure_viewer_cost(&nodes, browser, pictures)?;
    let writers = Writers::start_unretried(1, &nodes.client_addresses());
    let mut browser = Browser::start(browser, pictures)?;
    let address = format!("http://{}/", nodes.admin_addresses()[0]);
    browser.open(&address)?;
    let mut page = ClusterPage { browser, nodes, address, screenshot_folder: pictures.to_owned() };
    page.try_all()?;
    let written = writers.end()?;
    println!("  writes went on meanwhile; pictures: {}", pictures.display());
    drop(written);
    Ok(())
}

/// Measures the cost that a viewer of the first node's page causes on each node of an idle cluster.
/// The cost is reported but not evaluated.
fn measure_viewer_cost(nodes: &NodeCluster, browser: &str, pictures: &Path) -> Result<(), Failed> {
    let used = || -> Vec<f64> {
        let all = nodes.process_ids().into_iter();
        all.filter_map(ResourceUsage::precise_cpu_s).collect()
    };
    let percent = |before: &[f64]| -> Vec<f64> {
        let spent = used();
        let parts = spent.iter().zip(before);
        parts
            .map(|(now, before)| (now - before) / MEASURED_DURATION.as_secs_f64() * 100.0)
            .collect()
    };
    let before = used();
    thread::sleep(MEASURED_DURATION);
    let alone = percent(&before);
    let mut watching = Browser::start(browser, pictures)?;
    watching.open(&format!("http://{}/", nodes.admin_addresses()[0]))?;
    watching.wait_until(
        "a page that is live",
        "document.querySelectorAll('#t-members tbody tr').length === 3",
    )?;
    let before = used();
    thread::sleep(MEASURED_DURATION);
    let watched = percent(&before);
    for (node, (alone, watched)) in (1..).zip(alone.iter().zip(&watched)) {
        println!(
            "  node {node}: {watched:.2} % of a CPU while the page of node 1 is open, {alone:.2} % without: {:+.2}",
            watched - alone
        );
    }
    Ok(())
}

struct ClusterPage {
    browser: Browser,
    nodes: NodeCluster,
    address: String,
    screenshot_folder: PathBuf,
}

impl ClusterPage {
    fn try_all(&mut self) -> Result<(), Failed> {
        self.run_step("live figures", Self::check_figures)?;
        self.run_step("layout at three widths, in both schemes", Self::check_layout)?;
        self.run_step("the switch of colours", Self::check_colours)?;
        self.run_step("what was before the page was opened", Self::check_history)?;
        self.run_step("keys", Self::check_keyboard)?;
        self.run_step("leadership", Self::check_leadership)?;
        self.run_step("drain", Self::check_drain)?;
        self.run_step("snapshot and backup", Self::check_snapshot)?;
        self.run_step("a node that is added", Self::check_add)?;
        self.run_step("a removal that is only looked at", Self::check_removal_preview)?;
        self.check_no_errors(&[])?;
        self.run_step("a node that is killed", Self::check_leader_kill)?;
        self.run_step("no quorum", Self::check_no_quorum)?;
        self.run_step("a page whose node is paused, and killed", Self::check_stale)?;
        self.run_step("a node that is removed", Self::remove)?;
        // Ignore errors from expected refusals and from requests to a dead node.
        self.check_no_errors(&["409", "502", "503", "net::ERR_"])
    }

    fn run_step(
        &mut self,
        name: &str,
        step: fn(&mut Self) -> Result<(), Failed>,
    ) -> Result<(), Failed> {
        step(self).map_err(|Failed(why)| {
            let shown = self.save_screenshot("failed").is_ok();
            let shown = if shown { "; see cluster-failed.png" } else { "" };
            Failed(format!("page of a node: {name}{shown}: {why}"))
        })?;
        println!("done: {name}");
        Ok(())
    }

    fn save_screenshot(&mut self, name: &str) -> Result<(), Failed> {
        let path = self.screenshot_folder.join(format!("cluster-{name}.png"));
        self.browser.save_screenshot(&path)
    }

    fn set_appearance(&mut self, width: u32, height: u32, dark: bool) -> Result<(), Failed> {
        self.browser.set_appearance(Appearance { width, height, is_dark: dark })
    }

    fn wait_status(&mut self, words: &str) -> Result<(), Failed> {
        let words = json!(words);
        self.browser.wait_until(
            "the status next to the title",
            &format!("document.getElementById('status')?.textContent === {words}"),
        )
    }

    /// Waits until the banner `key` shows `words`.
    fn wait_banner(&mut self, key: &str, words: &str) -> Result<(), Failed> {
        let words = json!(words);
        self.browser.wait_until(
            &format!("the banner {key}"),
            &format!(
                "document.querySelector('#banners [data-key=\"{key}\"]')?.textContent.includes({words}) === true"
            ),
        )
    }

    /// Checks that no element is cut off, overlapping or unreadable.
    fn check_no_layout_errors(&mut self, looks: &str) -> Result<(), Failed> {
        let faults = self.browser.eval(LAYOUT_SCRIPT)?;
        match faults.as_array() {
            Some(faults) if faults.is_empty() => Ok(()),
            _ => Err(Failed(format!("{looks}: {faults:#}"))),
        }
    }

    fn check_figures(&mut self) -> Result<(), Failed> {
        self.wait_status("serves")?;
        let decided =
            "Number(document.getElementById('f-decided').textContent.replaceAll(',', ''))";
        let before = self.browser.eval(decided)?;
        self.browser.wait_until(
            "slots that are decided while the page is open",
            &format!("{decided} > {before} + 10"),
        )?;
        self.browser.wait_until(
            "a rate, a latency, and all round trips",
            "Number(document.getElementById('f-rate').textContent.replaceAll(',', '')) > 0 && \
             / (µs|ms|s)$/.test(document.getElementById('f-latency').textContent) && \
             document.querySelectorAll('#t-links td[data-is=good]').length === 6 && \
             [...document.querySelectorAll('#t-links td[data-is=good] span:first-child')].every(it => / (µs|ms)$/.test(it.textContent)) && \
             document.querySelectorAll('#c-rate .main, #c-latency .main').length >= 2 && \
             document.querySelectorAll('#t-positions .picture').length === 3 && \
             document.querySelectorAll('#reigns li').length > 0 && \
             document.querySelectorAll('#c-reigns rect').length > 0 && \
             document.getElementById('f-voters').textContent === '3 of 3' && \
             document.getElementById('tuning').textContent.includes('×')",
        )
    }

    fn check_layout(&mut self) -> Result<(), Failed> {
        for (name, width, height) in WINDOW_SIZES {
            for (scheme, dark) in [("light", false), ("dark", true)] {
                self.set_appearance(width, height, dark)?;
                self.check_no_layout_errors(&format!("{name}, {scheme}"))?;
                self.save_screenshot(&format!("{name}-{scheme}"))?;
            }
        }
        self.set_appearance(1024, 768, false)
    }

    fn check_colours(&mut self) -> Result<(), Failed> {
        let back = "getComputedStyle(document.body).backgroundColor";
        let light = self.browser.eval(back)?;
        let switch = |theme: &str| {
            format!(
                "(it => {{ it.value = '{theme}'; it.dispatchEvent(new Event('change')); }})(document.getElementById('theme'))"
            )
        };
        self.browser.eval(&switch("dark"))?;
        let dark = self.browser.eval(back)?;
        if light == dark {
            return Err(Failed(format!("the page is {dark} in both")));
        }
        self.check_no_layout_errors("switched to dark")?;
        let address = self.address.clone();
        self.browser.open(&address)?;
        self.wait_status("serves")?;
        let kept = self.browser.eval(back)?;
        if kept != dark {
            return Err(Failed(format!("it was switched to {dark}, and is {kept} again")));
        }
        self.browser.eval(&switch("")).map(drop)
    }

    /// Checks that nodes provide history from before the page was opened.
    fn check_history(&mut self) -> Result<(), Failed> {
        let address = self.address.clone();
        self.browser.open(&address)?;
        self.wait_status("serves")?;
        self.browser.wait_until(
            "curves that begin before the page was opened",
            "[...document.querySelectorAll('#c-rate .main')].flatMap(it => it.getAttribute('d').split('L').slice(1)).length \
                > performance.now() / 1000 + 5 \
             && document.querySelectorAll('#c-latency .most').length > 0",
        )
    }

    /// Checks that Tab reaches every control with a visible focus, and that a dialog traps and
    /// restores the focus.
    fn check_keyboard(&mut self) -> Result<(), Failed> {
        const ALL: &str = "[...document.querySelectorAll('button, select, .scrolls')].filter(it => it.checkVisibility())";
        self.browser.eval(
            "document.activeElement.blur(); window.tabbed = new Set(); window.unmarked = []; true",
        )?;
        let wanted = self.browser.eval(&format!("{ALL}.length"))?;
        for _ in 0..2 * wanted.as_u64().unwrap_or(0) + 10 {
            self.browser.key("Tab")?;
            self.browser.eval(
                "(() => { const it = document.activeElement;
                    tabbed.add(it);
                    if (it !== document.body && getComputedStyle(it).outlineStyle === 'none') unmarked.push(it.outerHTML.slice(0, 80));
                    return true; })()",
            )?;
        }
        let missed = self.browser.eval(&format!(
            "{ALL}.filter(it => !tabbed.has(it)).map(it => it.id || it.textContent).concat(unmarked)"
        ))?;
        if missed.as_array().is_none_or(|missed| !missed.is_empty()) {
            let why = format!("Tab does not come to, or does not show: {missed}");
            return Err(Failed(why));
        }
        self.browser.eval("document.getElementById('add').focus()")?;
        self.browser.key("Enter")?;
        self.browser.wait_until(
            "a dialog that has the focus",
            "document.getElementById('dialog').open && document.getElementById('dialog').contains(document.activeElement)",
        )?;
        self.check_no_layout_errors("with a dialog")?;
        self.save_screenshot("dialog")?;
        self.browser.key("Escape")?;
        self.browser.wait_until(
            "no dialog, and the focus where it was",
            "!document.getElementById('dialog').open && document.activeElement.id === 'add'",
        )
    }

    /// Opens the dialog of an action once its button is enabled.
    fn open(&mut self, button: &str) -> Result<(), Failed> {
        self.browser.wait_until(
            &format!("a button, {button}"),
            &format!(
                "document.querySelector({})?.getAttribute('aria-disabled') === 'false'",
                json!(button)
            ),
        )?;
        self.browser.click(button)?;
        self.browser.wait_until("its dialog", "document.getElementById('dialog').open")
    }

    /// Confirms the dialog and waits for the result.
    fn confirm_dialog(&mut self, is: &str, words: &str) -> Result<(), Failed> {
        self.browser.wait_until(
            "what will be done, and a button for it",
            "!document.getElementById('d-confirm').disabled && document.getElementById('d-what').textContent.length > 40",
        )?;
        self.browser.click("#d-confirm")?;
        self.wait_result(is, words)
    }

    fn wait_result(&mut self, is: &str, words: &str) -> Result<(), Failed> {
        let words = json!(words);
        self.browser.wait_until(
            "the result",
            &format!(
                "(it => it.dataset.is === '{is}' && it.textContent.includes({words}))(document.getElementById('d-result'))"
            ),
        )
    }

    fn close(&mut self) -> Result<(), Failed> {
        self.browser.click("#d-cancel")?;
        self.browser.wait_until("no dialog", "!document.getElementById('dialog').open")
    }

    fn button_selector(node: u32, act: &str) -> String {
        format!("#t-members tr[data-key=\"{node}\"] button[data-act={act}]")
    }

    fn wait_leader(&mut self, node: u32) -> Result<(), Failed> {
        self.browser.wait_until(
            &format!("a page that says that node {node} leads"),
            &format!("document.getElementById('f-leader').textContent === 'node {node}'"),
        )
    }

    /// Moves leadership to each node, through the page of a leading or of a following node.
    fn check_leadership(&mut self) -> Result<(), Failed> {
        let leader = self.nodes.agreed_leader()?;
        self.wait_leader(leader)?;
        let others = [1, 2, 3].into_iter().filter(|node| *node != leader);
        for node in others.chain([leader]) {
            self.open(&Self::button_selector(node, "lead"))?;
            self.confirm_dialog("good", &format!("Node {node} leads."))?;
            self.close()?;
            self.wait_leader(node)?;
        }
        self.browser.wait_until(
            "changes of leadership that are told",
            "document.querySelectorAll('#reigns li').length >= 4",
        )
    }

    fn check_drain(&mut self) -> Result<(), Failed> {
        let leader = self.nodes.agreed_leader()?;
        self.open(&Self::button_selector(leader, "drain"))?;
        self.browser.wait_until(
            "what it would do",
            "document.querySelectorAll('#d-steps li').length === 2",
        )?;
        self.save_screenshot("drain")?;
        self.confirm_dialog("good", " leads.")?;
        self.close()?;
        self.browser.wait_until(
            "another leader",
            &format!("/^node [123]$/.test(document.getElementById('f-leader').textContent) && document.getElementById('f-leader').textContent !== 'node {leader}'"),
        )
    }

    fn check_snapshot(&mut self) -> Result<(), Failed> {
        self.open(&Self::button_selector(3, "snapshot"))?;
        self.confirm_dialog("good", "Snapshot complete: everything below slot")?;
        let slot = "document.getElementById('d-result').textContent.match(/slot ([0-9,]+)/)[1]";
        let slot = self.browser.eval(&format!("Number({slot}.replaceAll(',', ''))"))?;
        self.close()?;
        // With a store on disk, the next trim of the log drops the snapshot.
        self.browser.wait_until(
            "the snapshot among the positions, or a log that begins behind it",
            &format!(
                "(cells => cells[4].textContent !== 'none' || Number(cells[5].textContent.replaceAll(',', '')) > {slot})\
                 (document.querySelector('#t-positions tr[data-key=\"3\"]').cells)"
            ),
        )?;
        let folder = self.screenshot_folder.join("downloads");
        fs::create_dir_all(&folder)?;
        let told = json!({"behavior": "allow", "downloadPath": folder});
        self.browser.call_method("Page.setDownloadBehavior", &told)?;
        self.open("#backup")?;
        self.confirm_dialog("good", "The download has started.")?;
        self.close()?;
        let file = folder.join("quorate.backup");
        let size = wait::wait_at_most(START_TIMEOUT, "the backup", || {
            let size = fs::metadata(&file).ok()?.len();
            (size > 0).then_some(size)
        })?;
        println!("  a backup of {size} bytes");
        Ok(fs::remove_dir_all(&folder)?)
    }

    fn check_add(&mut self) -> Result<(), Failed> {
        self.open("#add")?;
        self.browser.fill("#d-peer", "127.0.0.1:9")?;
        self.confirm_dialog(
            "good",
            "Id 4. Start it: quorate start --data DIR --node 4 --peer 127.0.0.1:9",
        )?;
        self.check_no_layout_errors("with an id that is kept")?;
        self.close()
    }

    /// Checks that the steps of a removal are shown first, and that nothing happens without a
    /// second confirmation.
    fn check_removal_preview(&mut self) -> Result<(), Failed> {
        self.open(&Self::button_selector(3, "remove"))?;
        self.browser.wait_until(
            "the steps of a removal",
            "document.querySelectorAll('#d-steps li').length > 0",
        )?;
        self.save_screenshot("remove")?;
        self.close()?;
        let members = self.nodes.status(1).map_or(0, |view| view.members.len());
        match members {
            3.. => Ok(()),
            _ => Err(Failed(format!("{members} members are left"))),
        }
    }

    /// Kills the leader, so that leadership changes too. The leader is not the page's own node.
    fn check_leader_kill(&mut self) -> Result<(), Failed> {
        self.open_and_lead(2)?;
        self.nodes.kill(&[2])?;
        self.browser.wait_until(
            "a node that is marked as gone, and old",
            "(tr => tr.classList.contains('stale') && tr.cells[1].textContent.includes('no answer') && /stale, \\d+ s old/.test(tr.cells[1].textContent))\
             (document.querySelector('#t-members tr[data-key=\"2\"]'))",
        )?;
        self.wait_status("no spare")?;
        self.wait_banner("quorum", "One failure away from quorum loss: 2 of 3 voters are up.")?;
        self.wait_banner("quorum", "Restart node 2")?;
        self.browser.wait_until(
            "links that are cut, and what is not known",
            "document.querySelectorAll('#t-links td[data-is=bad]').length === 2 && \
             [...document.querySelectorAll('#t-links tr[data-key=\"2\"] .under')].filter(it => it.textContent === 'stale').length === 2",
        )?;
        for (name, width, height) in WINDOW_SIZES {
            self.set_appearance(width, height, false)?;
            self.check_no_layout_errors(&format!("without a node, {name}"))?;
            self.save_screenshot(&format!("killed-{name}"))?;
        }
        self.set_appearance(1024, 768, false)?;
        // The remaining nodes refuse actions that would lose the quorum, and the page shows the
        // refusal.
        self.open(&Self::button_selector(3, "remove"))?;
        self.wait_result("bad", "Refused: ")?;
        self.save_screenshot("refused")?;
        self.close()
    }

    fn open_and_lead(&mut self, node: u32) -> Result<(), Failed> {
        if self.nodes.agreed_leader()? == node {
            return Ok(());
        }
        self.open(&Self::button_selector(node, "lead"))?;
        self.confirm_dialog("good", &format!("Node {node} leads."))?;
        self.close()?;
        self.wait_leader(node)
    }

    fn check_no_quorum(&mut self) -> Result<(), Failed> {
        self.nodes.kill(&[3])?;
        self.wait_status("no quorum")?;
        self.wait_banner("quorum", "Quorum lost: 1 of 2 needed votes available.")?;
        self.check_no_layout_errors("without a quorum")?;
        self.save_screenshot("no-quorum")?;
        self.nodes.restart(&[2, 3])?;
        self.wait_status("serves")?;
        self.browser.wait_until(
            "no banner, and no node that is old",
            "document.querySelectorAll('#banners > *, tr.stale').length === 0",
        )
    }

    /// Checks that stale state is marked as stale, that no button is enabled, and that the page
    /// recovers by itself.
    fn check_stale(&mut self) -> Result<(), Failed> {
        let gone = "document.body.classList.contains('stale') && \
                    [...document.querySelectorAll('main button')].every(it => it.getAttribute('aria-disabled') === 'true')";
        self.nodes.pause(1)?;
        self.wait_banner("page", "No connection to the node")?;
        self.browser.wait_until("a page that looks old", gone)?;
        self.save_screenshot("stale")?;
        self.nodes.resume(1)?;
        self.wait_status("serves")?;
        self.nodes.kill(&[1])?;
        self.browser.wait_until("a page that looks old", gone)?;
        self.nodes.restart(&[1])?;
        self.wait_status("serves")?;
        self.browser.wait_until(
            "a page that is live again",
            "!document.body.classList.contains('stale') && document.querySelectorAll('#banners > *').length === 0",
        )
    }

    fn remove(&mut self) -> Result<(), Failed> {
        // The request is refused until the restarted node knows all other nodes.
        for _ in 0..30 {
            self.open(&Self::button_selector(3, "remove"))?;
            self.browser.wait_until(
                "the steps of a removal, or why not",
                "document.querySelectorAll('#d-steps li').length > 0 || document.getElementById('d-result').dataset.is === 'bad'",
            )?;
            let steps = "document.querySelectorAll('#d-steps li').length > 0";
            if self.browser.eval(steps)? == json!(true) {
                break;
            }
            self.close()?;
            self.browser.wait_until(
                "another document, and a leader in it",
                "document.getElementById('f-leader').textContent.startsWith('node ')",
            )?;
        }
        self.confirm_dialog("good", "is in progress")?;
        self.close()?;
        self.browser.wait_until(
            "two members, and what that means",
            "document.getElementById('f-voters').textContent === '2 of 2' && document.querySelector('#t-members tr[data-key=\"3\"]') === null",
        )?;
        self.wait_banner("quorum", "These 2 voters tolerate no failure.")?;
        self.check_no_layout_errors("with two members")?;
        self.save_screenshot("two")
    }

    /// Checks that the page reported only known errors and fetched nothing from other hosts.
    fn check_no_errors(&mut self, known: &[&str]) -> Result<(), Failed> {
        // Events sent earlier are read together with this reply.
        self.browser.eval("true")?;
        self.browser.page_errors.retain(|words| !known.iter().any(|known| words.contains(known)));
        let complaints = &self.browser.page_errors;
        if !complaints.is_empty() {
            return Err(Failed(format!("the page complains: {complaints:#?}")));
        }
        let elsewhere = |url: &&String| !url.starts_with(&self.address);
        let elsewhere: Vec<&String> =
            self.browser.fetched_addresses.iter().filter(elsewhere).collect();
        match elsewhere.is_empty() {
            true => Ok(()),
            false => Err(Failed(format!("fetched from elsewhere: {elsewhere:?}"))),
        }
    }
}
