//! A headless Chromium, driven over a pipe.

use crate::{Folder, PATIENCE, programs};
use base64::Engine;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

/// Hands the two ends of the pipe to the numbers where Chromium looks for them.
const WITH_PIPE: &str = r#"exec "$@" 3<&0 4>&1 </dev/null >/dev/null 2>&1"#;

/// Messages that may wait to be looked at.
const WAITING_MAX: usize = 10_000;

/// A browser. It ends with this value, and with the test process, because its pipe closes then.
pub struct Browser {
    child: Child,
    to: ChildStdin,
    from: Receiver<Value>,
    next_id: u64,
    events: Vec<Value>,
    _profile: Folder,
}

/// A page in the browser.
pub struct Page<'browser> {
    browser: &'browser mut Browser,
    session: String,
}

impl Browser {
    /// Starts a browser with an empty profile.
    pub fn start() -> Self {
        let profile = Folder::new("chromium");
        let data = format!("--user-data-dir={}", profile.path().display());
        let mut child = Command::new("sh")
            .args(["-c", WITH_PIPE, "sh"])
            .arg(programs::require("chromium"))
            .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic"])
            .args(["--no-first-run", "--disable-background-networking", "--disable-sync"])
            .args(["--disable-component-update", "--remote-debugging-pipe", &data])
            .arg("about:blank")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("sh can be started");
        let to = child.stdin.take().expect("it was piped");
        let out = child.stdout.take().expect("it was piped");
        let (sender, from) = sync_channel(WAITING_MAX);
        std::thread::spawn(move || {
            let mut reader = BufReader::new(out);
            let mut message = Vec::new();
            while reader.read_until(0, &mut message).is_ok_and(|read| read > 0) {
                message.pop();
                let parsed = serde_json::from_slice(&message).unwrap_or(Value::Null);
                if sender.send(parsed).is_err() {
                    return;
                }
                message.clear();
            }
        });
        Browser { child, to, from, next_id: 0, events: Vec::new(), _profile: profile }
    }

    /// Opens a page of this size and waits until it has loaded.
    pub fn open(&mut self, url: &str, (width, height): (u32, u32)) -> Page<'_> {
        let target = self.call(None, "Target.createTarget", json!({ "url": "about:blank" }));
        let attach = json!({ "targetId": target["targetId"], "flatten": true });
        let attached = self.call(None, "Target.attachToTarget", attach);
        let session = attached["sessionId"].as_str().expect("a session").to_owned();
        let mut page = Page { browser: self, session };
        for domain in ["Page.enable", "Runtime.enable", "Log.enable", "Network.enable"] {
            page.call(domain, json!({}));
        }
        page.resize(width, height);
        page.go(url);
        page
    }

    fn call(&mut self, session: Option<&str>, method: &str, parameters: Value) -> Value {
        self.next_id += 1;
        let id = self.next_id;
        let mut message = json!({ "id": id, "method": method, "params": parameters });
        if let Some(session) = session {
            message["sessionId"] = json!(session);
        }
        let mut bytes = message.to_string().into_bytes();
        bytes.push(0);
        self.to.write_all(&bytes).expect("the browser listens");
        let answer = self.wait(method, |message| (message["id"] == id).then(|| message.clone()));
        let error = &answer["error"];
        assert!(error.is_null(), "{method}: {error}");
        answer["result"].clone()
    }

    /// Waits for a message that `look` finds; the others are kept as events.
    fn wait<T>(&mut self, what: &str, mut look: impl FnMut(&Value) -> Option<T>) -> T {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.from.recv_timeout(left) {
                Ok(message) => match look(&message) {
                    Some(found) => return found,
                    None => self.events.push(message),
                },
                Err(RecvTimeoutError::Timeout) => panic!("the browser: no answer to {what}"),
                Err(RecvTimeoutError::Disconnected) => panic!("the browser has ended at {what}"),
            }
        }
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let close = b"{\"id\":0,\"method\":\"Browser.close\"}\0";
        let _ = self.to.write_all(close);
        let deadline = Instant::now() + Duration::from_secs(10);
        while matches!(self.child.try_wait(), Ok(None)) && Instant::now() < deadline {
            // The reader ends when the browser does.
            if self.from.recv_timeout(Duration::from_millis(50))
                == Err(RecvTimeoutError::Disconnected)
            {
                break;
            }
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Page<'_> {
    fn call(&mut self, method: &str, parameters: Value) -> Value {
        let session = self.session.clone();
        self.browser.call(Some(&session), method, parameters)
    }

    /// Goes to an address and waits until the page has loaded.
    pub fn go(&mut self, url: &str) {
        self.call("Page.navigate", json!({ "url": url }));
        self.wait_for("document.readyState === 'complete'");
    }

    /// Changes the size of the window.
    pub fn resize(&mut self, width: u32, height: u32) {
        let metrics = json!({
            "width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600,
        });
        self.call("Emulation.setDeviceMetricsOverride", metrics);
    }

    /// Lets the page believe that the user likes it dark, or light.
    pub fn prefer(&mut self, scheme: &str) {
        let features = json!([{ "name": "prefers-color-scheme", "value": scheme }]);
        self.call("Emulation.setEmulatedMedia", json!({ "features": features }));
    }

    /// Runs JavaScript in the page and returns its value.
    ///
    /// # Panics
    /// If it throws.
    pub fn eval(&mut self, script: &str) -> Value {
        let parameters =
            json!({ "expression": script, "awaitPromise": true, "returnByValue": true });
        let result = self.call("Runtime.evaluate", parameters);
        let thrown = &result["exceptionDetails"];
        assert!(thrown.is_null(), "{script}: {thrown}");
        result["result"]["value"].clone()
    }

    /// Waits until an expression is true in the page, and returns its value.
    ///
    /// # Panics
    /// If that takes longer than a test may.
    pub fn wait_for(&mut self, expression: &str) -> Value {
        let limit = PATIENCE.as_millis() / 2;
        let script = format!(
            "new Promise((resolve, reject) => {{
                 const start = performance.now();
                 const look = () => {{
                     let found;
                     try {{ found = ({expression}); }} catch {{ found = false; }}
                     if (found) resolve(found);
                     else if (performance.now() - start > {limit}) reject(new Error(
                         'never true; the page shows: ' + document.body.innerText.slice(0, 2000)));
                     else setTimeout(look, 20);
                 }};
                 look();
             }})"
        );
        self.eval(&script)
    }

    /// What went wrong in the page since it was opened: exceptions, logged errors, failed loads.
    pub fn errors(&mut self) -> Vec<String> {
        // What happened before this answer has arrived before it.
        self.eval("0");
        let describe = |event: &Value| match event["method"].as_str() {
            Some("Runtime.exceptionThrown") => {
                Some(event["params"]["exceptionDetails"].to_string())
            }
            Some("Log.entryAdded") if event["params"]["entry"]["level"] == "error" => {
                Some(event["params"]["entry"].to_string())
            }
            Some("Runtime.consoleAPICalled") if event["params"]["type"] == "error" => {
                Some(event["params"]["args"].to_string())
            }
            _ => None,
        };
        let session = &self.session;
        let own = self.browser.events.iter().filter(|event| event["sessionId"] == **session);
        own.filter_map(describe).collect()
    }

    /// Every address that the page has asked for.
    pub fn requests(&mut self) -> Vec<String> {
        self.eval("0");
        let session = &self.session;
        let own = self.browser.events.iter().filter(|event| event["sessionId"] == **session);
        let sent = own.filter(|event| event["method"] == "Network.requestWillBeSent");
        sent.filter_map(|event| event["params"]["request"]["url"].as_str().map(str::to_owned))
            .collect()
    }

    /// Takes a picture of the page.
    pub fn screenshot(&mut self, path: &Path) {
        let shot = self.call("Page.captureScreenshot", json!({ "format": "png" }));
        let data = shot["data"].as_str().expect("a picture");
        let bytes = base64::engine::general_purpose::STANDARD.decode(data).expect("base64");
        std::fs::write(path, bytes).expect("writes");
    }

    /// Presses keys: a character, or a name such as `Tab` and `Enter`.
    pub fn press(&mut self, key: &str) {
        let text = if key == "Enter" { "\r" } else { "" };
        for kind in ["keyDown", "keyUp"] {
            let code = match key {
                "Tab" => 9,
                "Enter" => 13,
                "Escape" => 27,
                _ => 0,
            };
            self.call(
                "Input.dispatchKeyEvent",
                json!({
                    "type": kind, "key": key, "code": key, "windowsVirtualKeyCode": code,
                    "text": if kind == "keyDown" { text } else { "" },
                }),
            );
        }
    }
}
