-- Monitors, the servers they watch, and what is between them. Times are milliseconds since 1970.

-- One row. Whoever changes an account, a monitor or a server takes this first, so that changes come
-- one after another; whoever applies a plan shares it, so that nothing changes meanwhile.
CREATE TABLE skep_monitors (
    only_row INTEGER PRIMARY KEY CHECK (only_row = 1),
    -- Grows with every change of an account or a monitor.
    version INTEGER NOT NULL,
    -- Grows with every change of a server too.
    changes INTEGER NOT NULL,
    -- The number that the last new account, monitor or server got.
    last_number INTEGER NOT NULL,
    accounts INTEGER NOT NULL,
    -- Those that are not deleted.
    monitors INTEGER NOT NULL,
    servers INTEGER NOT NULL
) STRICT;

INSERT INTO skep_monitors (only_row, version, changes, last_number, accounts, monitors, servers)
VALUES (1, 0, 0, 0, 0, 0, 0);

CREATE TABLE skep_monitor_accounts (
    id TEXT PRIMARY KEY,
    number INTEGER NOT NULL UNIQUE,
    name TEXT,
    -- JSON.
    flags TEXT NOT NULL,
    -- Monitors that are not deleted.
    monitors INTEGER NOT NULL,
    servers INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL
) STRICT;

CREATE TABLE skep_monitor_monitors (
    id TEXT PRIMARY KEY,
    -- Short for the id in the tables below. One that is created again gets another.
    number INTEGER NOT NULL UNIQUE,
    account TEXT,
    ip TEXT NOT NULL,
    -- 4 or 6.
    family INTEGER NOT NULL,
    -- pending, testing, active, paused or deleted.
    status TEXT NOT NULL,
    -- JSON.
    labels TEXT NOT NULL,
    key_id TEXT UNIQUE,
    -- Grows with every change of its assignments and of their servers.
    check_index INTEGER NOT NULL,
    -- How many servers it is what to.
    candidates INTEGER NOT NULL,
    testings INTEGER NOT NULL,
    actives INTEGER NOT NULL,
    pauses INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    seen_at INTEGER,
    agent TEXT
) STRICT;

CREATE INDEX skep_monitor_monitors_account ON skep_monitor_monitors (account, id);
CREATE INDEX skep_monitor_monitors_status ON skep_monitor_monitors (status, id);

CREATE TABLE skep_monitor_servers (
    id TEXT PRIMARY KEY,
    number INTEGER NOT NULL UNIQUE,
    account TEXT,
    ip TEXT NOT NULL,
    family INTEGER NOT NULL,
    -- ntp, http or tcp.
    probe_kind TEXT NOT NULL,
    probe_target TEXT NOT NULL,
    probe_timeout_ms INTEGER NOT NULL,
    probe_status INTEGER,
    paused INTEGER NOT NULL,
    -- Grows with every change of the server and of the statuses of its monitors.
    check_index INTEGER NOT NULL,
    candidates INTEGER NOT NULL,
    testings INTEGER NOT NULL,
    actives INTEGER NOT NULL,
    pauses INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    reviewed_at INTEGER,
    next_review_at INTEGER NOT NULL,
    -- The last review that changed something.
    changed_at INTEGER,
    -- Grows with every claim; what was claimed under an older one is refused.
    token INTEGER NOT NULL,
    claimed_by TEXT,
    claimed_until INTEGER NOT NULL
) STRICT;

CREATE INDEX skep_monitor_servers_account ON skep_monitor_servers (account, id);
CREATE INDEX skep_monitor_servers_due ON skep_monitor_servers (next_review_at, number)
    WHERE NOT paused;
CREATE INDEX skep_monitor_servers_actives ON skep_monitor_servers (actives) WHERE NOT paused;

CREATE TABLE skep_monitor_assignments (
    server INTEGER NOT NULL,
    monitor INTEGER NOT NULL,
    -- candidate, testing, active or paused.
    status TEXT NOT NULL,
    status_since INTEGER NOT NULL,
    -- What remains of the steps of its samples.
    score REAL NOT NULL,
    -- network, account, limit or diversity.
    violation TEXT,
    violation_since INTEGER,
    pause_reason TEXT,
    -- When a paused one was last looked at.
    last_check INTEGER,
    -- The monitor that it is about to replace, and at how many reviews in a row.
    challenge INTEGER,
    challenge_reviews INTEGER,
    last_sample INTEGER,
    PRIMARY KEY (server, monitor)
) STRICT, WITHOUT ROWID;

CREATE INDEX skep_monitor_assignments_monitor ON skep_monitor_assignments (monitor, server);
CREATE INDEX skep_monitor_assignments_service ON skep_monitor_assignments (server, monitor)
    WHERE status IN ('testing', 'active');

CREATE TABLE skep_monitor_samples (
    server INTEGER NOT NULL,
    monitor INTEGER NOT NULL,
    at INTEGER NOT NULL,
    rtt_us INTEGER,
    offset_us INTEGER,
    -- In millionths, so that sums do not depend on their order.
    step INTEGER NOT NULL,
    -- Nothing for a good answer.
    error TEXT,
    PRIMARY KEY (server, monitor, at)
) STRICT, WITHOUT ROWID;

CREATE INDEX skep_monitor_samples_at ON skep_monitor_samples (server, at);

-- Servers that were deleted while there were samples of them.
CREATE TABLE skep_monitor_gone (
    server INTEGER PRIMARY KEY
) STRICT;

-- Changes of assignments. They outlive server and monitor, hence the names.
CREATE TABLE skep_monitor_history (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    at INTEGER NOT NULL,
    server INTEGER NOT NULL,
    monitor INTEGER NOT NULL,
    server_id TEXT NOT NULL,
    monitor_id TEXT NOT NULL,
    from_status TEXT NOT NULL,
    to_status TEXT NOT NULL,
    rule TEXT NOT NULL,
    reason TEXT NOT NULL
) STRICT;

CREATE INDEX skep_monitor_history_server ON skep_monitor_history (server, id);
CREATE INDEX skep_monitor_history_monitor ON skep_monitor_history (monitor, id);
CREATE INDEX skep_monitor_history_at ON skep_monitor_history (at, id);
