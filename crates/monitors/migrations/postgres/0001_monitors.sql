-- Monitors, the servers they watch, and what is between them. Times are milliseconds since 1970.

-- One row. Whoever changes an account, a monitor or a server takes this first, so that changes come
-- one after another; whoever applies a plan shares it, so that nothing changes meanwhile.
CREATE TABLE skep_monitors (
    only_row INTEGER PRIMARY KEY CHECK (only_row = 1),
    -- Grows with every change of an account or a monitor.
    version BIGINT NOT NULL,
    -- Grows with every change of a server too.
    changes BIGINT NOT NULL,
    -- The number that the last new account, monitor or server got.
    last_number BIGINT NOT NULL,
    accounts BIGINT NOT NULL,
    -- Those that are not deleted.
    monitors BIGINT NOT NULL,
    servers BIGINT NOT NULL
);

INSERT INTO skep_monitors (only_row, version, changes, last_number, accounts, monitors, servers)
VALUES (1, 0, 0, 0, 0, 0, 0);

CREATE TABLE skep_monitor_accounts (
    id TEXT COLLATE "C" PRIMARY KEY,
    number BIGINT NOT NULL UNIQUE,
    name TEXT COLLATE "C",
    -- JSON.
    flags TEXT NOT NULL,
    -- Monitors that are not deleted.
    monitors BIGINT NOT NULL,
    servers BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL
);

CREATE TABLE skep_monitor_monitors (
    id TEXT COLLATE "C" PRIMARY KEY,
    -- Short for the id in the tables below. One that is created again gets another.
    number BIGINT NOT NULL UNIQUE,
    account TEXT COLLATE "C",
    ip TEXT COLLATE "C" NOT NULL,
    -- 4 or 6.
    family BIGINT NOT NULL,
    -- pending, testing, active, paused or deleted.
    status TEXT COLLATE "C" NOT NULL,
    -- JSON.
    labels TEXT COLLATE "C" NOT NULL,
    key_id TEXT UNIQUE,
    -- Grows with every change of its assignments and of their servers.
    check_index BIGINT NOT NULL,
    -- How many servers it is what to.
    candidates BIGINT NOT NULL,
    testings BIGINT NOT NULL,
    actives BIGINT NOT NULL,
    pauses BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    seen_at BIGINT,
    agent TEXT
)
-- Room for updates in place, which leave the indexes alone.
WITH (fillfactor = 60);

CREATE INDEX skep_monitor_monitors_account ON skep_monitor_monitors (account, id);
CREATE INDEX skep_monitor_monitors_status ON skep_monitor_monitors (status, id);

CREATE TABLE skep_monitor_servers (
    id TEXT COLLATE "C" PRIMARY KEY,
    number BIGINT NOT NULL UNIQUE,
    account TEXT COLLATE "C",
    ip TEXT COLLATE "C" NOT NULL,
    family BIGINT NOT NULL,
    -- ntp, http or tcp.
    probe_kind TEXT NOT NULL,
    probe_target TEXT COLLATE "C" NOT NULL,
    probe_timeout_ms BIGINT NOT NULL,
    probe_status BIGINT,
    paused BOOLEAN NOT NULL,
    -- Grows with every change of the server and of the statuses of its monitors.
    check_index BIGINT NOT NULL,
    candidates BIGINT NOT NULL,
    testings BIGINT NOT NULL,
    actives BIGINT NOT NULL,
    pauses BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    reviewed_at BIGINT,
    next_review_at BIGINT NOT NULL,
    -- The last review that changed something.
    changed_at BIGINT,
    -- Grows with every claim; what was claimed under an older one is refused.
    token BIGINT NOT NULL,
    claimed_by TEXT,
    claimed_until BIGINT NOT NULL
)
WITH (fillfactor = 60);

CREATE INDEX skep_monitor_servers_account ON skep_monitor_servers (account, id);
CREATE INDEX skep_monitor_servers_due ON skep_monitor_servers (next_review_at, number)
    WHERE NOT paused;
CREATE INDEX skep_monitor_servers_actives ON skep_monitor_servers (actives) WHERE NOT paused;

CREATE TABLE skep_monitor_assignments (
    server BIGINT NOT NULL,
    monitor BIGINT NOT NULL,
    -- candidate, testing, active or paused.
    status TEXT COLLATE "C" NOT NULL,
    status_since BIGINT NOT NULL,
    -- What remains of the steps of its samples.
    score DOUBLE PRECISION NOT NULL,
    -- network, account, limit or diversity.
    violation TEXT,
    violation_since BIGINT,
    pause_reason TEXT,
    -- When a paused one was last looked at.
    last_check BIGINT,
    -- The monitor that it is about to replace, and at how many reviews in a row.
    challenge BIGINT,
    challenge_reviews BIGINT,
    last_sample BIGINT,
    PRIMARY KEY (server, monitor)
)
WITH (fillfactor = 80);

CREATE INDEX skep_monitor_assignments_monitor ON skep_monitor_assignments (monitor, server);
CREATE INDEX skep_monitor_assignments_service ON skep_monitor_assignments (server, monitor)
    WHERE status IN ('testing', 'active');

CREATE TABLE skep_monitor_samples (
    server BIGINT NOT NULL,
    monitor BIGINT NOT NULL,
    at BIGINT NOT NULL,
    rtt_us BIGINT,
    offset_us BIGINT,
    -- In millionths, so that sums do not depend on their order.
    step BIGINT NOT NULL,
    -- Nothing for a good answer.
    error TEXT,
    PRIMARY KEY (server, monitor, at)
);

CREATE INDEX skep_monitor_samples_at ON skep_monitor_samples (server, at);

-- Servers that were deleted while there were samples of them.
CREATE TABLE skep_monitor_gone (
    server BIGINT PRIMARY KEY
);

-- Changes of assignments. They outlive server and monitor, hence the names.
CREATE TABLE skep_monitor_history (
    id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at BIGINT NOT NULL,
    server BIGINT NOT NULL,
    monitor BIGINT NOT NULL,
    server_id TEXT NOT NULL,
    monitor_id TEXT NOT NULL,
    from_status TEXT NOT NULL,
    to_status TEXT NOT NULL,
    rule TEXT NOT NULL,
    reason TEXT NOT NULL
);

CREATE INDEX skep_monitor_history_server ON skep_monitor_history (server, id);
CREATE INDEX skep_monitor_history_monitor ON skep_monitor_history (monitor, id);
CREATE INDEX skep_monitor_history_at ON skep_monitor_history (at, id);
