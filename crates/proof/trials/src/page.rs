//! `cargo xtask page`: tests the web pages and all their buttons in a real browser. They are a
//! recorded run of the simulator ([`replay`]), the page at the admin address ([`cluster`]), and the
//! page of `quorate demo --devices`.

mod cluster;
mod replay;
#[cfg(test)]
mod seconds_tests;

use std::{
    fs,
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::{Child, ExitStatus, Stdio},
    sync::mpsc::{Receiver, channel},
    thread,
};

use quorate_testbed::{nodes::START_TIMEOUT, wait};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::{
    browser::{self, Appearance, Browser},
    nodes,
    shell::{self, Failed, build_folder, report_skip},
};

/// Duration of the demo, longer than this task. The demo exits by itself if it is not stopped.
const DEMO_SECONDS: &str = "300";
/// Prefix of the demo's line with the page's address.
const ADDRESS_LINE_PREFIX: &str = "  open    ";
/// Window sizes of a phone, a tablet and a desktop.
const WINDOW_SIZES: [(&str, u32, u32); 3] =
    [("phone", 390, 844), ("tablet", 820, 1180), ("wide", 1280, 900)];
/// Script that lists layout errors, one sentence each.
const LAYOUT_SCRIPT: &str = include_str!("page/layout.js");

/// Runs the task, with an existing program if one is named.
pub(crate) fn run(program: Option<&str>) -> Result<(), Failed> {
    let Some(name) = browser::installed_chromium() else {
        let why = "not installed; ./setup does it (Debian: chromium)";
        return report_skip("page: chromium", why);
    };
    let program = match program {
        Some(program) => PathBuf::from(program),
        None => {
            shell::build_programs()?;
            nodes::program_path()
        }
    };
    let pictures = build_folder().join("page");
    fs::create_dir_all(&pictures)?;
    replay::run(&program, name, &pictures)?;
    cluster::run(&program, name, &pictures)?;
    let demo = DemoProcess::start(&program, &pictures)?;
    let mut browser = Browser::start(name, &pictures)?;
    browser.open(&demo.address)?;
    let mut page = DemoPage { browser, demo, screenshot_folder: pictures, injected_failures: 0 };
    page.try_all()?;
    page.check_clean_exit()
}

/// A running demo process.
struct DemoProcess {
    child: Child,
    address: String,
    output_lines: Receiver<String>,
    /// Folder in which the demo creates its temporary folder.
    temporary_folder: PathBuf,
}

impl DemoProcess {
    fn start(program: &Path, pictures: &Path) -> Result<Self, Failed> {
        let temporary = pictures.join("temporary");
        fs::create_dir_all(&temporary)?;
        let mut child = quorate_testbed::process::command_of(program)
            .args(["demo", "--devices", "--json", "--seconds", DEMO_SECONDS])
            .env("TMPDIR", &temporary)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let lines = child.stderr.take().map(|from| read_lines(from, true));
        let out = child.stdout.take().map(|from| read_lines(from, false));
        let (lines, out) =
            lines.zip(out).ok_or_else(|| Failed("the demo has no pipes".to_owned()))?;
        let mut demo =
            Self { child, address: String::new(), output_lines: out, temporary_folder: temporary };
        loop {
            let line = lines.recv_timeout(START_TIMEOUT);
            let line = line.map_err(|why| Failed(format!("where the page is: {why}")))?;
            if let Some(address) = line.strip_prefix(ADDRESS_LINE_PREFIX) {
                address.clone_into(&mut demo.address);
                return Ok(demo);
            }
        }
    }

    fn send_signal(&self, signal: Signal) -> Result<(), Failed> {
        kill_process(Pid::from_child(&self.child), signal)
            .map_err(|error| Failed(format!("the demo: {error}")))
    }

    fn wait(&mut self) -> Result<ExitStatus, Failed> {
        let ended = || self.child.try_wait().transpose();
        Ok(wait::wait_at_most(START_TIMEOUT, "the demo to end", ended)??)
    }
}

impl Drop for DemoProcess {
    fn drop(&mut self) {
        // The first signal makes the demo stop its nodes and delete its folder. The second one
        // makes it do so immediately.
        for _ in 0..2 {
            let _ = self.send_signal(Signal::TERM);
        }
        if self.wait().is_err() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// Receives lines from a stream, and prints them if `shown`.
fn read_lines(from: impl std::io::Read + Send + 'static, shown: bool) -> Receiver<String> {
    let (sender, lines) = channel();
    thread::spawn(move || {
        for line in BufReader::new(from).lines().map_while(Result::ok) {
            if shown {
                println!("  | {line}");
            }
            // The receiver may be gone.
            let _ = sender.send(line);
        }
    });
    lines
}

/// The demo's page, and the number of failures injected with its buttons.
struct DemoPage {
    browser: Browser,
    demo: DemoProcess,
    screenshot_folder: PathBuf,
    injected_failures: u64,
}

impl DemoPage {
    fn try_all(&mut self) -> Result<(), Failed> {
        self.browser.wait_until(
            "a page that shows three nodes that work",
            "document.querySelectorAll('.lane[data-is=up]').length === 3 && \
             document.getElementById('status').textContent === 'writes go on' && \
             document.querySelector('#node-1 .crown').checkVisibility()",
        )?;
        self.run_step("live figures", Self::check_figures)?;
        self.run_step("layout at three widths, in both schemes", Self::check_layout)?;
        self.run_step("keys", Self::check_keyboard)?;
        self.run_step("the key-value store", Self::check_store)?;
        self.run_step("the box", Self::check_device_box)?;
        self.run_step("the leader", Self::check_leader_kill)?;
        self.run_step("the interface", Self::check_interface)?;
        self.run_step("leadership", Self::check_leadership)?;
        self.run_step("no majority", Self::check_no_majority)?;
        self.run_step("curves and events", Self::check_curves)?;
        self.check_no_errors()?;
        self.run_step("a demo that does not answer", Self::check_stale)
    }

    fn run_step(
        &mut self,
        name: &str,
        step: fn(&mut Self) -> Result<(), Failed>,
    ) -> Result<(), Failed> {
        step(self).map_err(|Failed(why)| {
            let picture = self.screenshot_folder.join("failed.png");
            let shown = self.browser.save_screenshot(&picture).is_ok();
            let shown = if shown { "; see failed.png" } else { "" };
            Failed(format!("page: {name}{shown}: {why}"))
        })?;
        println!("done: {name}");
        Ok(())
    }

    fn save_screenshot(&mut self, name: &str) -> Result<(), Failed> {
        let path = self.screenshot_folder.join(format!("{name}.png"));
        self.browser.save_screenshot(&path)
    }

    fn shown_number(&mut self, id: &str) -> Result<u64, Failed> {
        let shown = self.browser.eval(&format!("document.getElementById('{id}').textContent"))?;
        let digits = shown.as_str().unwrap_or_default().replace(',', "");
        digits.parse().map_err(|_| Failed(format!("{id} shows {shown}")))
    }

    /// Checks that writes continue to be acknowledged.
    fn check_writes_continue(&mut self) -> Result<(), Failed> {
        let before = self.shown_number("acknowledged")?;
        self.browser.wait_until(
            "fifty writes more, and a status that says so",
            &format!(
                "Number(document.getElementById('acknowledged').textContent.replaceAll(',', '')) > {before} + 50 && \
                 document.getElementById('status').textContent === 'writes go on'"
            ),
        )
    }

    /// Returns the demo's state from its server, bypassing the page.
    fn server_state(&mut self) -> Result<Value, Failed> {
        self.browser.eval("fetch('/state').then(answer => answer.json())")
    }

    fn button_selector(node: u64, part: &str) -> String {
        format!("button[data-node=\"{node}\"][data-part={part}]")
    }

    /// Presses a button once it is enabled and offers this action.
    fn press_button(&mut self, node: u64, part: &str, act: &str) -> Result<(), Failed> {
        let button = Self::button_selector(node, part);
        self.browser.wait_until(
            &format!("the button that would {act} the {part} of node {node}"),
            &format!(
                "(it => it.dataset.act === '{act}' && it.getAttribute('aria-disabled') === 'false')\
                 (document.querySelector('{button}'))"
            ),
        )?;
        self.injected_failures += u64::from(act == "fail");
        self.browser.click(&button)
    }

    fn wait_lane_state(&mut self, node: u64, is: &str) -> Result<(), Failed> {
        self.browser.wait_until(
            &format!("node {node} to be {is}"),
            &format!("document.getElementById('node-{node}').dataset.is === '{is}'"),
        )
    }

    /// Waits until the page shows `node` in role `role` at `place`.
    fn wait_role(&mut self, node: u64, role: u8, place: &str) -> Result<(), Failed> {
        let place = json!(place);
        self.browser.wait_until(
            &format!("role {role} of node {node} {place}"),
            &format!(
                "document.querySelector('#node-{node} .role:nth-child({role}) .place').textContent === {place}"
            ),
        )
    }

    fn check_figures(&mut self) -> Result<(), Failed> {
        self.check_writes_continue()?;
        self.browser.wait_until(
            "figures",
            "['rate', 'p50', 'p99', 'acknowledged', 'checked'].every(id => \
                Number(document.getElementById(id).textContent.replaceAll(',', '')) > 0)",
        )?;
        match (self.shown_number("failures")?, self.shown_number("lost")?) {
            (0, 0) => Ok(()),
            other => Err(Failed(format!("failures and losses at first: {other:?}"))),
        }
    }

    fn check_layout(&mut self) -> Result<(), Failed> {
        for (name, width, height) in WINDOW_SIZES {
            for (scheme, dark) in [("light", false), ("dark", true)] {
                let looks = Appearance { width, height, is_dark: dark };
                self.browser.set_appearance(looks)?;
                self.check_no_layout_errors(&format!("{name}, {scheme}"))?;
                self.save_screenshot(&format!("{name}-{scheme}"))?;
            }
        }
        Ok(())
    }

    /// Checks that no element is cut off, overlapping or unreadable.
    fn check_no_layout_errors(&mut self, looks: &str) -> Result<(), Failed> {
        let faults = self.browser.eval(LAYOUT_SCRIPT)?;
        match faults.as_array() {
            Some(faults) if faults.is_empty() => Ok(()),
            _ => Err(Failed(format!("{looks}: {faults:#}"))),
        }
    }

    /// Checks that Tab reaches every button and field with a visible focus, and that Enter presses.
    fn check_keyboard(&mut self) -> Result<(), Failed> {
        self.browser.eval(
            "document.activeElement.blur(); window.tabbed = new Set(); window.unmarked = []; true",
        )?;
        let wanted = self.browser.eval("document.querySelectorAll('button, input').length")?;
        for _ in 0..2 * wanted.as_u64().unwrap_or(0) + 10 {
            self.browser.key("Tab")?;
            self.browser.eval(
                "(() => { const it = document.activeElement, style = getComputedStyle(it);
                    tabbed.add(it);
                    if (it !== document.body && style.outlineStyle === 'none' && it.tagName !== 'INPUT')
                        unmarked.push(it.textContent);
                    return true; })()",
            )?;
        }
        let missed = self.browser.eval(
            "[...document.querySelectorAll('button, input')].filter(it => !tabbed.has(it))
                .map(it => it.textContent || it.id).concat(unmarked)",
        )?;
        if missed.as_array().is_none_or(|missed| !missed.is_empty()) {
            return Err(Failed(format!("Tab does not come to, or does not show: {missed}")));
        }
        let button = Self::button_selector(3, "node");
        for (act, is) in [("fail", "down"), ("restore", "up")] {
            self.browser.wait_until(
                "a button",
                &format!(
                    "(it => it.dataset.act === '{act}' && it.getAttribute('aria-disabled') === 'false')\
                     (document.querySelector('{button}'))"
                ),
            )?;
            self.browser.eval(&format!("document.querySelector('{button}').focus()"))?;
            self.browser.key("Enter")?;
            self.wait_lane_state(3, is)?;
            self.check_writes_continue()?;
            // The button has changed and still has the focus.
            self.browser
                .wait_until("the focus", &format!("document.activeElement.matches('{button}')"))?;
        }
        self.injected_failures += 1;
        Ok(())
    }

    fn answer(&mut self, words: &str) -> Result<(), Failed> {
        let words = json!(words);
        self.browser.wait_until(
            "an answer of the store",
            &format!(
                "(document.querySelector('#answers li')?.textContent ?? '').includes({words})"
            ),
        )
    }

    fn set(&mut self, key: &str, value: &str) -> Result<(), Failed> {
        self.browser.fill("#key", key)?;
        self.browser.fill("#value", value)?;
        self.browser.click("#set")
    }

    fn check_store(&mut self) -> Result<(), Failed> {
        self.set("town", "Lugano")?;
        self.answer("SET town = Lugano: stored at a majority")?;
        self.browser.click("#get")?;
        self.answer("GET town = Lugano: read")?;
        self.browser.fill("#key", "nowhere")?;
        self.browser.click("#get")?;
        self.answer("GET nowhere: there is no such key")?;
        // User input must not be interpreted as HTML.
        self.set("town", "<b>Lugano</b>")?;
        self.answer("SET town = <b>Lugano</b>: stored")?;
        Ok(())
    }

    fn check_device_box(&mut self) -> Result<(), Failed> {
        self.make_leader(1)?;
        self.wait_role(1, 1, "in hardware")?;
        self.wait_role(1, 2, "in hardware")?;
        self.press_button(1, "device", "fail")?;
        self.wait_role(1, 2, "in the node")?;
        // Any leader may coordinate now.
        self.browser.wait_until(
            "a coordinator that is no hardware",
            "[...document.querySelectorAll('.role:first-child .place')].every(it => it.textContent !== 'in hardware')",
        )?;
        self.check_writes_continue()?;
        let state = self.server_state()?;
        if state["nodes"][0]["works"]["device"] != false {
            return Err(Failed(format!("the box is not down: {state}")));
        }
        self.check_no_layout_errors("without a box")?;
        self.save_screenshot("box-killed")?;
        self.press_button(1, "device", "restore")?;
        self.make_leader(1)?;
        self.wait_role(1, 1, "in hardware")?;
        self.wait_role(1, 2, "in hardware")?;
        self.check_writes_continue()
    }

    /// Makes a node lead, unless it does already. Repeats the request, since any node may become
    /// leader at any time.
    fn make_leader(&mut self, node: u64) -> Result<(), Failed> {
        let button = Self::button_selector(node, "lead");
        self.browser.wait_until(
            &format!("node {node} to lead"),
            &format!(
                "document.querySelector('#node-{node} .crown').checkVisibility() || \
                 (document.querySelector('{button}').click(), false)"
            ),
        )
    }

    fn shown_leader(&mut self) -> Result<u64, Failed> {
        self.browser.wait_until(
            "a leader",
            "[...document.querySelectorAll('.crown')].some(it => it.checkVisibility())",
        )?;
        let leader = self.server_state()?["leader"].as_u64();
        leader.ok_or_else(|| Failed("no leader".to_owned()))
    }

    fn check_leader_kill(&mut self) -> Result<(), Failed> {
        let leader = self.shown_leader()?;
        self.press_button(leader, "node", "fail")?;
        self.wait_lane_state(leader, "down")?;
        self.browser.wait_until(
            "another leader",
            &format!(
                "[...document.querySelectorAll('.lane')].some(lane => lane.id !== 'node-{leader}' && \
                 lane.dataset.is === 'up' && lane.querySelector('.crown').checkVisibility())"
            ),
        )?;
        self.check_writes_continue()?;
        self.set("after", "the kill")?;
        self.answer("SET after = the kill: stored at a majority")?;
        self.browser.wait_until(
            "how long writes stood still",
            "[...document.querySelectorAll('#events li')].some(it => /^writes went on \\d+ ms later$/.test(it.lastChild.textContent))",
        )?;
        self.check_no_layout_errors("without a leader's node")?;
        self.save_screenshot("leader-killed")?;
        let looks = Appearance { width: 390, height: 844, is_dark: false };
        self.browser.set_appearance(looks)?;
        self.check_no_layout_errors("without a leader's node, on a phone")?;
        self.save_screenshot("leader-killed-phone")?;
        self.browser.set_appearance(Appearance { width: 1280, height: 900, is_dark: false })?;
        self.press_button(leader, "node", "restore")?;
        self.wait_lane_state(leader, "up")?;
        self.browser.click("#get")?;
        self.answer("GET after = the kill: read")?;
        self.check_writes_continue()
    }

    fn check_interface(&mut self) -> Result<(), Failed> {
        if self.server_state()?["own_networks"] == false {
            return report_skip("page: the interface", "nodes have no networks of their own here");
        }
        self.press_button(2, "interface", "fail")?;
        self.wait_lane_state(2, "cut")?;
        self.check_writes_continue()?;
        self.check_no_layout_errors("without an interface")?;
        self.save_screenshot("interface-taken")?;
        self.press_button(2, "interface", "restore")?;
        self.wait_lane_state(2, "up")?;
        self.check_writes_continue()
    }

    fn check_leadership(&mut self) -> Result<(), Failed> {
        for node in [3, 1] {
            self.make_leader(node)?;
            self.check_writes_continue()?;
        }
        Ok(())
    }

    fn check_no_majority(&mut self) -> Result<(), Failed> {
        self.press_button(1, "node", "fail")?;
        self.wait_lane_state(1, "down")?;
        self.press_button(2, "node", "fail")?;
        self.browser.wait_until(
            "writes that wait",
            "document.getElementById('status').textContent.startsWith('writes wait') && \
             document.getElementById('how').textContent.includes('no majority')",
        )?;
        self.save_screenshot("no-majority")?;
        // A request that bypasses the page cannot kill a node that is already down.
        let refused = self.browser.eval(
            "fetch('/ask', { method: 'POST', headers: { 'Content-Type': 'application/json' },
                body: JSON.stringify({ ask: 'fail', part: 'node', node: 1 }) }).then(answer => answer.status)",
        )?;
        if refused != 409 {
            return Err(Failed(format!("a node that is down was killed: {refused}")));
        }
        // The browser reports the refusal, as expected.
        self.browser.page_errors.retain(|words| !words.contains("409"));
        for node in [1, 2] {
            self.press_button(node, "node", "restore")?;
            self.wait_lane_state(node, "up")?;
        }
        self.check_writes_continue()
    }

    fn check_curves(&mut self) -> Result<(), Failed> {
        self.browser.wait_until(
            "a point for each failure",
            "document.querySelectorAll('#c-rate .main').length === 1 && \
             document.querySelectorAll('#c-time .main').length === 1 && \
             document.querySelectorAll('#c-rate .fail').length > 0",
        )?;
        let (failures, lost) = (self.shown_number("failures")?, self.shown_number("lost")?);
        if (failures, lost) != (self.injected_failures, 0) {
            let made = self.injected_failures;
            let why = format!("{failures} failures instead of {made}; lost: {lost}");
            return Err(Failed(why));
        }
        self.check_no_layout_errors("at the end")?;
        self.save_screenshot("all-back")
    }

    /// Checks that the page reported no error and fetched nothing from other hosts.
    fn check_no_errors(&mut self) -> Result<(), Failed> {
        // Events sent earlier are read together with this reply.
        self.browser.eval("true")?;
        let complaints = &self.browser.page_errors;
        if !complaints.is_empty() {
            return Err(Failed(format!("the page complains: {complaints:#?}")));
        }
        let own = |url: &&String| url.starts_with(&self.demo.address) || url.starts_with("data:");
        let elsewhere: Vec<&String> =
            self.browser.fetched_addresses.iter().filter(|url| !own(url)).collect();
        let known = self.browser.fetched_addresses.iter().any(|url| url.ends_with("/state"));
        match (elsewhere.is_empty(), known) {
            (true, true) => Ok(()),
            _ => Err(Failed(format!("fetched from elsewhere: {elsewhere:?}"))),
        }
    }

    fn set_offline(&mut self, offline: bool) -> Result<(), Failed> {
        let told = json!({"offline": offline, "latency": 0, "downloadThroughput": -1,
                          "uploadThroughput": -1});
        self.browser.call_method("Network.emulateNetworkConditions", &told).map(drop)
    }

    /// Checks that stale state is marked as stale, and that no button is enabled.
    fn check_stale(&mut self) -> Result<(), Failed> {
        self.set_offline(true)?;
        self.browser.wait_until(
            "a page that says that it is old",
            "document.getElementById('status').textContent.startsWith('no answer from the demo') && \
             document.body.classList.contains('stale') && \
             [...document.querySelectorAll('.lane button')].every(it => it.getAttribute('aria-disabled') === 'true')",
        )?;
        self.save_screenshot("stale")?;
        self.set_offline(false)?;
        self.browser.wait_until(
            "a page that is up to date again",
            "document.getElementById('status').textContent === 'writes go on' && \
             !document.body.classList.contains('stale')",
        )
    }

    /// Checks that a signal stops the demo cleanly. The page must report it, and nothing may be
    /// lost or left over.
    fn check_clean_exit(mut self) -> Result<(), Failed> {
        self.demo.send_signal(Signal::INT)?;
        let ended =
            "document.getElementById('status').textContent === 'the demo has ended; lost: 0'";
        self.browser.wait_until("the end on the page", ended)?;
        self.save_screenshot("ended")?;
        let status = self.demo.wait()?;
        let out: String = self.demo.output_lines.iter().collect();
        let outcome: Value = serde_json::from_str(&out)
            .map_err(|error| Failed(format!("the demo said {out:?}: {error}")))?;
        let made = self.injected_failures;
        if !status.success() || outcome["lost"] != 0 || outcome["failures"] != made {
            return Err(Failed(format!("the demo ended with {status}: {outcome}")));
        }
        if let Some(left) = fs::read_dir(&self.demo.temporary_folder)?.next() {
            return Err(Failed(format!("the demo left {}", left?.path().display())));
        }
        println!("  {outcome}");
        println!("  pictures: {}", self.screenshot_folder.display());
        Ok(())
    }
}
