//! Unmodified Playwright clients in a process of their own, and what became of each attempt.

use serde::Deserialize;
use serde_json::json;
use skep_testkit::{Process, programs};
use std::collections::BTreeSet;
use std::ops::Range;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const AT_ONCE: usize = 3;

/// Several loops that each take the next number, look at its page, and say how that went. An
/// attempt that fails is followed by one at the other gateway, as a client of several would.
const CLIENT: &str = r"
const { chromium } = require('playwright-core');
const { gateways, pages, first, end, hold, atOnce } = JSON.parse(process.argv[2]);
const say = (what, gateway, number, why) =>
    console.log(JSON.stringify({ what, gateway, number, why }));

async function attempt(number, gateway) {
    const browser = await chromium.connect(`ws://${gateway}`);
    try {
        const page = await browser.newPage();
        await page.goto(`${pages}/page/${number}`);
        await page.waitForFunction(() => document.title === 'held');
        say('open', gateway, number);
        await page.waitForTimeout(hold);
        const heading = await page.textContent('h1');
        if (heading !== `page ${number}`) throw new Error(`the page says ${heading}`);
    } finally {
        await browser.close().catch(() => {});
    }
}

let next = first;
async function loop() {
    while (next < end) {
        const number = next++;
        for (let turn = 0; ; turn++) {
            const gateway = gateways[(number + turn) % gateways.length];
            try {
                await attempt(number, gateway);
                say('done', gateway, number);
                break;
            } catch (error) {
                say('failed', gateway, number, String(error.message ?? error).slice(0, 600));
                if (turn === 60) throw error;
                await new Promise((resolve) => setTimeout(resolve, 200));
            }
        }
    }
}
Promise.all(Array.from({ length: atOnce }, loop)).then(() => console.log('all served'));
";

/// Clients at work.
pub struct Clients {
    process: Process,
    numbers: Range<usize>,
}

/// What clients said so far.
pub struct Attempts {
    said: Vec<Said>,
    failed: Vec<Failed>,
}

/// An attempt that came to nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failed {
    pub number: usize,
    pub gateway: String,
    pub why: String,
}

#[derive(Deserialize)]
struct Said {
    what: String,
    gateway: String,
    number: usize,
    #[serde(default)]
    why: String,
}

impl Clients {
    /// Starts them; the home is a folder and where Node finds packages.
    pub fn start(
        (folder, modules): (&Path, &Path),
        gateways: &[&str],
        pages: &str,
        numbers: Range<usize>,
        hold: Duration,
    ) -> Self {
        let script = folder.join("client.js");
        std::fs::write(&script, CLIENT).expect("writes");
        let (first, end) = (numbers.start, numbers.end);
        let hold = u64::try_from(hold.as_millis()).expect("is short");
        let plan = json!({
            "gateways": gateways, "pages": pages, "first": first, "end": end, "hold": hold,
            "atOnce": AT_ONCE,
        });
        let mut command = Command::new(programs::require("node"));
        command.arg(script).arg(plan.to_string()).env("NODE_PATH", modules);
        Clients { process: Process::start("clients", &command, "KILL"), numbers }
    }

    /// Waits until a session is open at this gateway.
    pub fn wait_for_open_at(&self, gateway: &str) {
        self.process.wait_for_line(&format!(r#""what":"open","gateway":"{gateway}""#));
    }

    /// What was said until now.
    pub fn attempts(&self) -> Attempts {
        let log = self.process.log();
        let said: Vec<Said> =
            log.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        let failed = said.iter().filter(|said| said.what == "failed");
        let failed = failed.map(|said| Failed {
            number: said.number,
            gateway: said.gateway.clone(),
            why: said.why.clone(),
        });
        Attempts { failed: failed.collect(), said }
    }

    /// Waits until every session was served, and returns how.
    pub fn wait(self) -> Attempts {
        self.process.wait_for_line("all served");
        assert_eq!(self.process.wait().code, 0);
        let attempts = self.attempts();
        let done: BTreeSet<usize> = attempts.numbers("done").collect();
        assert_eq!(done, self.numbers.collect(), "every session was served");
        attempts
    }
}

impl Attempts {
    pub fn failed(&self) -> &[Failed] {
        &self.failed
    }

    pub fn numbers_that_failed(&self) -> BTreeSet<usize> {
        self.numbers("failed").collect()
    }

    /// Sessions that are open.
    pub fn open(&self) -> BTreeSet<usize> {
        let over: BTreeSet<usize> = self.numbers("done").chain(self.numbers("failed")).collect();
        self.numbers("open").filter(|number| !over.contains(number)).collect()
    }

    fn numbers(&self, what: &'static str) -> impl Iterator<Item = usize> {
        self.said.iter().filter(move |said| said.what == what).map(|said| said.number)
    }
}
