-- Endpoints that are polled, and what came of it. Times are milliseconds since 1970.

-- One row. Whoever changes an endpoint changes this first, so that changes come one after another.
CREATE TABLE skep_polls (
    only_row INTEGER PRIMARY KEY CHECK (only_row = 1),
    -- Grows with every change of an endpoint.
    version BIGINT NOT NULL,
    -- Deletions up to this version are forgotten.
    floor BIGINT NOT NULL,
    -- Endpoints that are not deleted.
    live BIGINT NOT NULL,
    -- The number that the last new endpoint got.
    last_number BIGINT NOT NULL,
    -- Grows by one whenever ownership begins anew.
    epoch BIGINT NOT NULL
);

INSERT INTO skep_polls (only_row, version, floor, live, last_number, epoch)
VALUES (1, 0, 0, 0, 0, 0);

CREATE TABLE skep_poll_endpoints (
    id TEXT PRIMARY KEY,
    -- Short for the id in the tables below. One that is created again gets another.
    number BIGINT NOT NULL UNIQUE,
    -- The version that created it. One that is created again has another.
    born BIGINT NOT NULL,
    -- The version that last changed it.
    version BIGINT NOT NULL UNIQUE,
    -- JSON, empty once deleted.
    spec TEXT NOT NULL,
    paused BOOLEAN NOT NULL,
    -- Kept for a while, so that nodes learn of it by its version.
    deleted BOOLEAN NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    -- When somebody last asked for a poll out of turn; 0 if never.
    asked_at BIGINT NOT NULL
);

CREATE INDEX skep_poll_endpoints_paused ON skep_poll_endpoints (number) WHERE paused;
CREATE INDEX skep_poll_endpoints_deleted ON skep_poll_endpoints (updated_at) WHERE deleted;

-- One row for each endpoint that is not deleted, written with every result.
CREATE TABLE skep_poll_state (
    number BIGINT PRIMARY KEY,
    born BIGINT NOT NULL,
    -- The newest token that was announced, or came with a result; older ones are refused.
    token_epoch BIGINT NOT NULL,
    token_counter BIGINT NOT NULL,
    -- Results and moves so far, those that were overwritten too.
    results BIGINT NOT NULL,
    moves BIGINT NOT NULL,
    -- Failed results in a row up to now.
    failures BIGINT NOT NULL,
    -- The last result, nothing before the first.
    last_epoch BIGINT,
    last_counter BIGINT,
    last_slot BIGINT,
    last_at BIGINT,
    last_ok BOOLEAN,
    last_verdict TEXT,
    last_latency_us BIGINT,
    -- When the results turned from good to bad or back.
    changed_at BIGINT
)
-- Room for updates in place, which leave the index alone.
WITH (fillfactor = 60);

-- The last results of each endpoint: a ring, so that nothing need be deleted.
CREATE TABLE skep_poll_results (
    number BIGINT NOT NULL,
    place BIGINT NOT NULL,
    -- How many results the endpoint had before this one.
    ordinal BIGINT NOT NULL,
    at BIGINT NOT NULL,
    slot BIGINT NOT NULL,
    ok BOOLEAN NOT NULL,
    verdict TEXT NOT NULL,
    status BIGINT,
    latency_us BIGINT,
    late_us BIGINT NOT NULL,
    detail TEXT,
    node TEXT NOT NULL,
    token_epoch BIGINT NOT NULL,
    token_counter BIGINT NOT NULL,
    PRIMARY KEY (number, place)
)
WITH (fillfactor = 85);

-- The last owners of each endpoint: a ring too.
CREATE TABLE skep_poll_moves (
    number BIGINT NOT NULL,
    place BIGINT NOT NULL,
    -- How many moves the endpoint had before this one.
    ordinal BIGINT NOT NULL,
    at BIGINT NOT NULL,
    node TEXT NOT NULL,
    from_node TEXT,
    -- JSON.
    reason TEXT NOT NULL,
    token_epoch BIGINT NOT NULL,
    token_counter BIGINT NOT NULL,
    PRIMARY KEY (number, place)
)
WITH (fillfactor = 85);
