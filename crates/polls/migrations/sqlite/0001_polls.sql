-- Endpoints that are polled, and what came of it. Times are milliseconds since 1970.

-- One row. Whoever changes an endpoint changes this first, so that changes come one after another.
CREATE TABLE skep_polls (
    only_row INTEGER PRIMARY KEY CHECK (only_row = 1),
    -- Grows with every change of an endpoint.
    version INTEGER NOT NULL,
    -- Deletions up to this version are forgotten.
    floor INTEGER NOT NULL,
    -- Endpoints that are not deleted.
    live INTEGER NOT NULL,
    -- The number that the last new endpoint got.
    last_number INTEGER NOT NULL,
    -- Grows by one whenever ownership begins anew.
    epoch INTEGER NOT NULL
) STRICT;

INSERT INTO skep_polls (only_row, version, floor, live, last_number, epoch)
VALUES (1, 0, 0, 0, 0, 0);

CREATE TABLE skep_poll_endpoints (
    id TEXT PRIMARY KEY,
    -- Short for the id in the tables below. One that is created again gets another.
    number INTEGER NOT NULL UNIQUE,
    -- The version that created it. One that is created again has another.
    born INTEGER NOT NULL,
    -- The version that last changed it.
    version INTEGER NOT NULL UNIQUE,
    -- JSON, empty once deleted.
    spec TEXT NOT NULL,
    paused INTEGER NOT NULL,
    -- Kept for a while, so that nodes learn of it by its version.
    deleted INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    -- When somebody last asked for a poll out of turn; 0 if never.
    asked_at INTEGER NOT NULL
) STRICT;

CREATE INDEX skep_poll_endpoints_paused ON skep_poll_endpoints (number) WHERE paused;
CREATE INDEX skep_poll_endpoints_deleted ON skep_poll_endpoints (updated_at) WHERE deleted;

-- One row for each endpoint that is not deleted, written with every result.
CREATE TABLE skep_poll_state (
    number INTEGER PRIMARY KEY,
    born INTEGER NOT NULL,
    -- The newest token that was announced, or came with a result; older ones are refused.
    token_epoch INTEGER NOT NULL,
    token_counter INTEGER NOT NULL,
    -- Results and moves so far, those that were overwritten too.
    results INTEGER NOT NULL,
    moves INTEGER NOT NULL,
    -- Failed results in a row up to now.
    failures INTEGER NOT NULL,
    -- The last result, nothing before the first.
    last_epoch INTEGER,
    last_counter INTEGER,
    last_slot INTEGER,
    last_at INTEGER,
    last_ok INTEGER,
    last_verdict TEXT,
    last_latency_us INTEGER,
    -- When the results turned from good to bad or back.
    changed_at INTEGER
) STRICT;

-- The last results of each endpoint: a ring, so that nothing need be deleted.
CREATE TABLE skep_poll_results (
    number INTEGER NOT NULL,
    place INTEGER NOT NULL,
    -- How many results the endpoint had before this one.
    ordinal INTEGER NOT NULL,
    at INTEGER NOT NULL,
    slot INTEGER NOT NULL,
    ok INTEGER NOT NULL,
    verdict TEXT NOT NULL,
    status INTEGER,
    latency_us INTEGER,
    late_us INTEGER NOT NULL,
    detail TEXT,
    node TEXT NOT NULL,
    token_epoch INTEGER NOT NULL,
    token_counter INTEGER NOT NULL,
    PRIMARY KEY (number, place)
) STRICT, WITHOUT ROWID;

-- The last owners of each endpoint: a ring too.
CREATE TABLE skep_poll_moves (
    number INTEGER NOT NULL,
    place INTEGER NOT NULL,
    -- How many moves the endpoint had before this one.
    ordinal INTEGER NOT NULL,
    at INTEGER NOT NULL,
    node TEXT NOT NULL,
    from_node TEXT,
    -- JSON.
    reason TEXT NOT NULL,
    token_epoch INTEGER NOT NULL,
    token_counter INTEGER NOT NULL,
    PRIMARY KEY (number, place)
) STRICT, WITHOUT ROWID;
