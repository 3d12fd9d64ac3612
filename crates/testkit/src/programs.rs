//! The programs that tests need, where they may be, and the packages that bring them.
//!
//! Whoever adds a test that needs another program adds a line to [`NEEDED`]; the test command
//! installs what is missing.

use std::path::{Path, PathBuf};

/// A program that tests run, and what it is called in each package manager.
pub struct Needed {
    /// The program's file name.
    pub program: &'static str,
    /// What the tests use it for.
    pub purpose: &'static str,
    /// Debian, Ubuntu.
    pub apt: &'static str,
    /// Fedora, RHEL.
    pub dnf: &'static str,
    /// Arch.
    pub pacman: &'static str,
    /// Alpine.
    pub apk: &'static str,
}

/// Everything the tests need beyond the Rust toolchain.
pub const NEEDED: &[Needed] = &[
    Needed {
        program: "redis-server",
        purpose: "coordination between nodes",
        apt: "redis-server",
        dnf: "redis",
        pacman: "redis",
        apk: "redis",
    },
    Needed {
        program: "initdb",
        purpose: "a PostgreSQL server of the tests' own",
        apt: "postgresql",
        dnf: "postgresql-server",
        pacman: "postgresql",
        apk: "postgresql",
    },
    Needed {
        program: "psql",
        purpose: "a database of its own for each test",
        apt: "postgresql-client",
        dnf: "postgresql",
        pacman: "postgresql",
        apk: "postgresql-client",
    },
    Needed {
        program: "script",
        purpose: "a terminal for `skep top`",
        apt: "bsdutils",
        dnf: "util-linux",
        pacman: "util-linux",
        apk: "util-linux-misc",
    },
    Needed {
        program: "chromium",
        purpose: "looking at the dashboard",
        apt: "chromium",
        dnf: "chromium",
        pacman: "chromium",
        apk: "chromium",
    },
    Needed {
        program: "node",
        purpose: "workers and clients that speak Playwright's protocol",
        apt: "nodejs",
        dnf: "nodejs",
        pacman: "nodejs",
        apk: "nodejs",
    },
    Needed {
        program: "npm",
        purpose: "installing Playwright for them",
        apt: "npm",
        dnf: "nodejs-npm",
        pacman: "npm",
        apk: "npm",
    },
    Needed {
        program: "python3",
        purpose: "clients that speak to queues",
        apt: "python3",
        dnf: "python3",
        pacman: "python",
        apk: "python3",
    },
    Needed {
        program: "pip3",
        purpose: "installing Queen's client for them",
        apt: "python3-pip",
        dnf: "python3-pip",
        pacman: "python-pip",
        apk: "py3-pip",
    },
    Needed {
        program: "promtool",
        purpose: "checking the rules for alerts",
        apt: "prometheus",
        dnf: "golang-github-prometheus",
        pacman: "prometheus",
        apk: "prometheus",
    },
    Needed {
        program: "curl",
        purpose: "running the commands of the documentation",
        apt: "curl",
        dnf: "curl",
        pacman: "curl",
        apk: "curl",
    },
    Needed {
        program: "timeout",
        purpose: "ending those that hang",
        apt: "coreutils",
        dnf: "coreutils",
        pacman: "coreutils",
        apk: "coreutils",
    },
    Needed {
        program: "unshare",
        purpose: "a small disk that fills up",
        apt: "util-linux",
        dnf: "util-linux",
        pacman: "util-linux",
        apk: "util-linux",
    },
    Needed {
        program: "setpriv",
        purpose: "servers and nodes that run as another user",
        apt: "util-linux",
        dnf: "util-linux",
        pacman: "util-linux",
        apk: "setpriv",
    },
];

/// What benchmarks measure Skep against, and with.
pub const PEERS: &[Needed] = &[
    Needed {
        program: "nginx",
        purpose: "a peer that answers HTTP",
        apt: "nginx-light",
        dnf: "nginx",
        pacman: "nginx",
        apk: "nginx",
    },
    Needed {
        program: "haproxy",
        purpose: "a peer that carries sessions",
        apt: "haproxy",
        dnf: "haproxy",
        pacman: "haproxy",
        apk: "haproxy",
    },
    Needed {
        program: "wrk",
        purpose: "making load",
        apt: "wrk",
        dnf: "wrk",
        pacman: "wrk",
        apk: "wrk",
    },
];

/// Where distributions put PostgreSQL's programs, outside the search path, a folder a version.
const POSTGRES_FOLDERS: &[&str] =
    &["/usr/lib/postgresql", "/usr/libexec/postgresql", "/usr/local/lib/postgresql"];

/// Finds a program in the search path, or where PostgreSQL's are kept (the newest version).
pub fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let extra = ["/usr/sbin", "/usr/local/bin", "/usr/bin", "/bin"].map(PathBuf::from);
    postgres_folders()
        .into_iter()
        .chain(std::env::split_paths(&path))
        .chain(extra)
        .map(|folder| folder.join(program))
        .find(|candidate| candidate.is_file())
}

/// Finds a program that the test command would have installed.
///
/// # Panics
/// If it is not there; the message says what to do.
pub fn require(program: &str) -> PathBuf {
    find(program).unwrap_or_else(|| {
        panic!("{program} is not installed; `cargo xtask test` installs what tests need")
    })
}

fn postgres_folders() -> Vec<PathBuf> {
    let mut versions: Vec<(u32, PathBuf)> = POSTGRES_FOLDERS
        .iter()
        .filter_map(|folder| std::fs::read_dir(folder).ok())
        .flatten()
        .filter_map(|entry| {
            let folder = entry.ok()?.path();
            Some((version_of(&folder)?, folder.join("bin")))
        })
        .collect();
    versions.sort_by_key(|(version, _)| std::cmp::Reverse(*version));
    versions.into_iter().map(|(_, folder)| folder).collect()
}

fn version_of(folder: &Path) -> Option<u32> {
    folder.file_name()?.to_str()?.parse().ok()
}
