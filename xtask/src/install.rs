//! Installing what the tests need and the machine lacks.

use crate::run::{step, works};
use skep_testkit::programs::{Needed, find};
use std::collections::BTreeSet;
use std::process::Command;

/// A package manager: how to call it, and how it names a package.
struct Manager {
    program: &'static str,
    refresh: Option<&'static [&'static str]>,
    install: &'static [&'static str],
    package: fn(&Needed) -> &'static str,
}

const MANAGERS: &[Manager] = &[
    Manager {
        program: "apt-get",
        refresh: Some(&["update", "-q"]),
        install: &["install", "-q", "-y", "--no-install-recommends"],
        package: |needed| needed.apt,
    },
    Manager {
        program: "dnf",
        refresh: None,
        install: &["install", "-y"],
        package: |needed| needed.dnf,
    },
    Manager {
        program: "pacman",
        refresh: None,
        install: &["-Sy", "--noconfirm"],
        package: |needed| needed.pacman,
    },
    Manager { program: "apk", refresh: None, install: &["add"], package: |needed| needed.apk },
];

/// Makes sure that every program of a table is there.
pub fn install_missing(table: &[Needed]) -> Result<(), String> {
    let missing: Vec<&Needed> =
        table.iter().filter(|needed| find(needed.program).is_none()).collect();
    if missing.is_empty() {
        println!("── nothing to install: all {} programs that are needed are there", table.len());
        return Ok(());
    }
    for needed in &missing {
        println!("── missing: {} ({})", needed.program, needed.purpose);
    }
    let manager = MANAGERS.iter().find(|manager| find(manager.program).is_some());
    let Some(manager) = manager else {
        let programs: Vec<&str> = missing.iter().map(|needed| needed.program).collect();
        return Err(format!(
            "no known package manager is here; install these by hand: {}",
            programs.join(", ")
        ));
    };
    let packages: BTreeSet<&str> = missing.iter().map(|needed| (manager.package)(needed)).collect();
    let Some(prefix) = privilege() else {
        return Err(format!(
            "this user may not install packages; run:\n  {}",
            by_hand(manager, &packages)
        ));
    };
    if let Some(refresh) = manager.refresh {
        step("refresh the list of packages", &mut call(prefix, manager, refresh))?;
    }
    step("install packages", call(prefix, manager, manager.install).args(&packages))?;
    match missing.iter().find(|needed| find(needed.program).is_none()) {
        Some(needed) => Err(format!("{} is still missing after the install", needed.program)),
        None => Ok(()),
    }
}

/// What goes before a command that needs root: nothing for root, `sudo` where it asks nothing.
fn privilege() -> Option<&'static [&'static str]> {
    if works(Command::new("sh").args(["-c", "[ \"$(id -u)\" = 0 ]"])) {
        Some(&[])
    } else if works(Command::new("sudo").args(["-n", "true"])) {
        // The services that come with the packages need not run.
        Some(&["sudo", "-n", "--preserve-env=RUNLEVEL,DEBIAN_FRONTEND"])
    } else {
        None
    }
}

fn call(prefix: &[&str], manager: &Manager, arguments: &[&str]) -> Command {
    let mut words =
        prefix.iter().copied().chain([manager.program]).chain(arguments.iter().copied());
    let mut command = Command::new(words.next().unwrap_or(manager.program));
    command.args(words);
    // Debian starts the service of a fresh package, unless it believes to be in single-user mode.
    command.env("RUNLEVEL", "1").env("DEBIAN_FRONTEND", "noninteractive");
    command
}

fn by_hand(manager: &Manager, packages: &BTreeSet<&str>) -> String {
    let packages: Vec<&str> = packages.iter().copied().collect();
    format!("sudo {} {} {}", manager.program, manager.install.join(" "), packages.join(" "))
}
