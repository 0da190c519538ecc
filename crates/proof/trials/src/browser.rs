//! A headless Chromium with its own profile, controlled through pipes and killed when dropped.
//!
//! The protocol is that of its developer tools: each message is a JSON document followed by a zero
//! byte. Only a few methods are needed, and a library for the whole protocol would be larger than
//! this program.

use std::{
    collections::BTreeSet,
    fs::{self, File},
    io::{BufRead as _, BufReader, Write as _},
    os::unix::process::CommandExt as _,
    path::Path,
    process::{Child, ChildStdin, Command, Stdio},
    sync::mpsc::{Receiver, channel},
    thread,
    time::{Duration, Instant},
};

use quorate_testbed::{nodes::START_TIMEOUT, run::is_installed};
use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::{Value, json};

use crate::shell::Failed;

/// Names under which Chromium may be installed.
const CHROMIUM_NAMES: [&str; 4] =
    ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];
/// Interval at which a condition on the page is checked.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Script that moves the pipes to file descriptors 3 and 4 of the process.
const PIPE_SCRIPT: &str = r#"exec "$@" 3<&0 4>&1 </dev/null >/dev/null"#;

/// Returns the name of an installed Chromium.
pub(crate) fn installed_chromium() -> Option<&'static str> {
    CHROMIUM_NAMES.into_iter().find(|name| is_installed(name))
}

/// A browser with one page.
pub(crate) struct Browser {
    child: Child,
    stdin: ChildStdin,
    from: Receiver<Value>,
    call_count: u64,
    session_id: Option<String>,
    /// Errors reported by the page.
    pub(crate) page_errors: Vec<String>,
    /// Addresses fetched by the page.
    pub(crate) fetched_addresses: BTreeSet<String>,
    /// Deleted together with the browser.
    _profile: tempfile::TempDir,
}

/// Appearance of a page: its size and colours.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Appearance {
    pub(crate) width: u32,
    pub(crate) height: u32,
    pub(crate) is_dark: bool,
}

impl Browser {
    /// Starts a browser with an empty page. Its profile and its log are in this folder.
    pub(crate) fn start(name: &str, folder: &Path) -> Result<Self, Failed> {
        let mut profile = tempfile::Builder::new();
        let profile = profile.prefix("profile-").tempdir_in(folder)?;
        let mut command = Command::new("sh");
        command
            .args(["-c", PIPE_SCRIPT, "sh", name])
            .args([
                "--headless=new",
                "--remote-debugging-pipe",
                "--disable-gpu",
                "--disable-dev-shm-usage",
                "--disable-background-networking",
                "--disable-component-update",
                "--disable-sync",
                "--no-default-browser-check",
                "--no-first-run",
                "--no-proxy-server",
                "--hide-scrollbars",
            ])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(File::create(folder.join("chromium.log"))?)
            .process_group(0);
        if rustix::process::geteuid().is_root() {
            // As root, Chromium refuses to run with its sandbox. The only page is ours.
            command.arg("--no-sandbox");
        }
        let mut child = command.arg("about:blank").spawn()?;
        let pipes = child.stdin.take().zip(child.stdout.take());
        let (to, out) = pipes.ok_or_else(|| Failed("the browser has no pipes".to_owned()))?;
        let (sender, from) = channel();
        thread::spawn(move || {
            for message in BufReader::new(out).split(0) {
                let message = message.and_then(|bytes| Ok(serde_json::from_slice(&bytes)?));
                let Ok(message) = message else { return };
                if sender.send(message).is_err() {
                    return;
                }
            }
        });
        let mut browser = Self {
            child,
            stdin: to,
            from,
            call_count: 0,
            session_id: None,
            page_errors: Vec::new(),
            fetched_addresses: BTreeSet::new(),
            _profile: profile,
        };
        browser.attach_to_page()?;
        Ok(browser)
    }

    fn attach_to_page(&mut self) -> Result<(), Failed> {
        let made = self.call_method("Target.createTarget", &json!({"url": "about:blank"}))?;
        let target = &made["targetId"];
        let told = json!({"targetId": target, "flatten": true});
        let attached = self.call_method("Target.attachToTarget", &told)?;
        self.session_id = attached["sessionId"].as_str().map(str::to_owned);
        for domain in ["Page", "Runtime", "Log", "Network"] {
            self.call_method(&format!("{domain}.enable"), &json!({}))?;
        }
        Ok(())
    }

    /// Calls a method and returns its result.
    pub(crate) fn call_method(&mut self, method: &str, told: &Value) -> Result<Value, Failed> {
        self.call_count += 1;
        let mut message = json!({"id": self.call_count, "method": method, "params": told});
        if let Some(session) = &self.session_id {
            message["sessionId"] = json!(session);
        }
        let mut bytes = message.to_string().into_bytes();
        bytes.push(0);
        self.stdin.write_all(&bytes)?;
        loop {
            let heard = self.from.recv_timeout(START_TIMEOUT);
            let mut message =
                heard.map_err(|why| Failed(format!("the browser, asked for {method}: {why}")))?;
            if message["id"] != json!(self.call_count) {
                self.record_message(&message);
                continue;
            }
            if !message["error"].is_null() {
                return Err(Failed(format!("{method}: {}", message["error"])));
            }
            return Ok(message["result"].take());
        }
    }

    fn record_message(&mut self, message: &Value) {
        let told = &message["params"];
        match message["method"].as_str().unwrap_or_default() {
            "Runtime.exceptionThrown" => {
                let details = &told["exceptionDetails"];
                self.page_errors
                    .push(format!("{} {}", details["text"], details["exception"]["description"]));
            }
            "Runtime.consoleAPICalled" if told["type"] == "error" || told["type"] == "assert" => {
                self.page_errors.push(told["args"].to_string());
            }
            "Log.entryAdded" if told["entry"]["level"] == "error" => {
                let entry = &told["entry"];
                self.page_errors.push(format!("{} {}", entry["text"], entry["url"]));
            }
            "Network.requestWillBeSent" => {
                let url = told["request"]["url"].as_str().unwrap_or_default();
                self.fetched_addresses.insert(url.to_owned());
            }
            _ => {}
        }
    }

    pub(crate) fn open(&mut self, url: &str) -> Result<(), Failed> {
        self.call_method("Page.navigate", &json!({"url": url})).map(drop)
    }

    /// Evaluates an expression in the page, and awaits a promise.
    pub(crate) fn eval(&mut self, expression: &str) -> Result<Value, Failed> {
        let told = json!({"expression": expression, "returnByValue": true, "awaitPromise": true});
        let mut result = self.call_method("Runtime.evaluate", &told)?;
        let thrown = &result["exceptionDetails"];
        if !thrown.is_null() {
            let why = &thrown["exception"]["description"];
            return Err(Failed(format!("{expression}: {why}")));
        }
        Ok(result["result"]["value"].take())
    }

    /// Waits until an expression is true. Otherwise fails with its last value and the text of the
    /// page.
    pub(crate) fn wait_until(&mut self, what: &str, expression: &str) -> Result<(), Failed> {
        let until = Instant::now() + START_TIMEOUT;
        while self.eval(expression)? != json!(true) {
            if Instant::now() >= until {
                let shown = self.eval("document.body.innerText")?;
                let shown = shown.as_str().unwrap_or_default();
                return Err(Failed(format!(
                    "waited {} s for {what}: {expression}\nthe page:\n{shown}",
                    START_TIMEOUT.as_secs()
                )));
            }
            thread::sleep(POLL_INTERVAL);
        }
        Ok(())
    }

    /// Sets the appearance of the page and waits for its layout.
    pub(crate) fn set_appearance(&mut self, looks: Appearance) -> Result<(), Failed> {
        let told = json!({"width": looks.width, "height": looks.height, "deviceScaleFactor": 1,
                          "mobile": looks.width < 500});
        self.call_method("Emulation.setDeviceMetricsOverride", &told)?;
        let scheme = if looks.is_dark { "dark" } else { "light" };
        let told = json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]});
        self.call_method("Emulation.setEmulatedMedia", &told)?;
        self.eval("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))")
            .map(drop)
    }

    /// Clicks the centre of the element that a selector matches. The element must be visible.
    pub(crate) fn click(&mut self, selector: &str) -> Result<(), Failed> {
        let found = self.eval(&format!(
            "(() => {{ const it = document.querySelector({});
                if (!it) return null;
                it.scrollIntoView({{ block: 'center' }});
                const box = it.getBoundingClientRect();
                const [x, y] = [box.x + box.width / 2, box.y + box.height / 2];
                return it.contains(document.elementFromPoint(x, y)) ? [x, y] : null; }})()",
            json!(selector)
        ))?;
        if !found.is_array() {
            return Err(Failed(format!("{selector} cannot be clicked at")));
        }
        for kind in ["mousePressed", "mouseReleased"] {
            let told = json!({"type": kind, "x": found[0], "y": found[1], "button": "left",
                              "clickCount": 1});
            self.call_method("Input.dispatchMouseEvent", &told)?;
        }
        Ok(())
    }

    /// Presses one of a few supported keys.
    pub(crate) fn key(&mut self, name: &str) -> Result<(), Failed> {
        let code = match name {
            "ArrowLeft" => 37,
            "ArrowRight" => 39,
            "Space" => 32,
            "Tab" => 9,
            "Enter" => 13,
            "Escape" => 27,
            _ => return Err(Failed(format!("no key is called {name}"))),
        };
        let (key, text) = match name {
            "Enter" => (name, "\r"),
            "Space" => (" ", " "),
            _ => (name, ""),
        };
        for kind in ["keyDown", "keyUp"] {
            let told = json!({"type": kind, "key": key, "code": name, "text": text,
                              "windowsVirtualKeyCode": code});
            self.call_method("Input.dispatchKeyEvent", &told)?;
        }
        Ok(())
    }

    /// Types a new value into a field, replacing its content.
    pub(crate) fn fill(&mut self, selector: &str, text: &str) -> Result<(), Failed> {
        self.click(selector)?;
        self.eval(&format!("document.querySelector({}).select()", json!(selector)))?;
        self.call_method("Input.insertText", &json!({"text": text})).map(drop)
    }

    /// Saves a screenshot of the whole page.
    pub(crate) fn save_screenshot(&mut self, to: &Path) -> Result<(), Failed> {
        let told = json!({"format": "png", "captureBeyondViewport": true});
        let shot = self.call_method("Page.captureScreenshot", &told)?;
        let bytes = shot["data"].as_str().and_then(decode_base64);
        let bytes = bytes.ok_or_else(|| Failed("the browser made no picture".to_owned()))?;
        Ok(fs::write(to, bytes)?)
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // All of Chromium's processes are in one group.
        let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
        let _ = self.child.wait();
    }
}

/// Decodes standard base64, as sent by the browser.
fn decode_base64(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    let (mut bits, mut count) = (0_u32, 0);
    for letter in text.trim_end_matches('=').bytes() {
        let six = match letter {
            b'A'..=b'Z' => letter - b'A',
            b'a'..=b'z' => letter - b'a' + 26,
            b'0'..=b'9' => letter - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        bits = bits << 6 | u32::from(six);
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push(u8::try_from(bits >> count & 0xff).ok()?);
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_decoded() {
        for (text, bytes) in [
            ("", &b""[..]),
            ("TQ==", b"M"),
            ("TWE=", b"Ma"),
            ("TWFu", b"Man"),
            ("+/+/", &[0xfb, 0xff, 0xbf]),
        ] {
            assert_eq!(decode_base64(text).as_deref(), Some(bytes), "{text}");
        }
        assert_eq!(decode_base64("T*=="), None);
    }
}
