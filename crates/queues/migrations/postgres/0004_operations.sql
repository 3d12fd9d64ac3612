-- What operators set up and look at. Times are microseconds since 1970 by the clock of this
-- database. Names that are listed are ordered by their bytes, as everywhere else.

CREATE TABLE skep_queue_schedules (
    -- A schedule that is replaced gets another number, so that whoever is about to fire it as it
    -- was finds it gone.
    id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name TEXT COLLATE "C" NOT NULL,
    -- JSON.
    spec TEXT NOT NULL,
    paused BOOLEAN NOT NULL,
    -- The first slot that has not fired; nothing while it is paused, and when there is none any
    -- more.
    next_at BIGINT,
    -- The slot that fired last, and the message it made.
    last_at BIGINT,
    last_message UUID,
    fired BIGINT NOT NULL DEFAULT 0,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    -- Grows by one whenever somebody changes it; firing does not.
    version BIGINT NOT NULL DEFAULT 1
);

CREATE UNIQUE INDEX skep_queue_schedules_name ON skep_queue_schedules (name);
CREATE INDEX skep_queue_schedules_due ON skep_queue_schedules (next_at) WHERE next_at IS NOT NULL;

-- Dead letters on their way back. Any node goes on with one.
CREATE TABLE skep_queue_redrives (
    id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    queue BIGINT NOT NULL,
    -- The queue may be gone when somebody asks.
    queue_name TEXT NOT NULL,
    -- JSON.
    filter TEXT NOT NULL,
    -- Another queue to push to; nothing is the queue they were in.
    target TEXT,
    -- Letters a second; nothing is as fast as it goes.
    rate BIGINT,
    moved BIGINT NOT NULL DEFAULT 0,
    skipped BIGINT NOT NULL DEFAULT 0,
    state TEXT NOT NULL DEFAULT 'running' CHECK (state IN ('running', 'done', 'stopped')),
    next_at BIGINT NOT NULL,
    -- The last dead letter that was looked at, and the last there was when this began: what dies
    -- again meanwhile has a greater number and is not moved in circles.
    position BIGINT NOT NULL DEFAULT 0,
    upto BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    created_by TEXT NOT NULL,
    ended_at BIGINT
);

CREATE INDEX skep_queue_redrives_due ON skep_queue_redrives (next_at) WHERE state = 'running';
CREATE INDEX skep_queue_redrives_ended ON skep_queue_redrives (ended_at)
    WHERE ended_at IS NOT NULL;

-- What is switched off for maintenance: a handful of rows.
CREATE TABLE skep_queue_switches (
    name TEXT PRIMARY KEY,
    is_on BOOLEAN NOT NULL,
    since BIGINT NOT NULL,
    set_by TEXT NOT NULL
);

-- What happened, by queue and minute since 1970. Queue 0 is all of them. The rows of a minute are
-- added to by every node for a while, and never touched again.
CREATE TABLE skep_queue_stats (
    queue BIGINT NOT NULL,
    minute BIGINT NOT NULL,
    pushed BIGINT NOT NULL,
    bytes BIGINT NOT NULL,
    popped BIGINT NOT NULL,
    acked BIGINT NOT NULL,
    failed BIGINT NOT NULL,
    dead BIGINT NOT NULL,
    expired BIGINT NOT NULL,
    pending_max BIGINT NOT NULL,
    PRIMARY KEY (queue, minute)
)
WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05);

CREATE INDEX skep_queue_stats_minute ON skep_queue_stats (minute);

-- What consumers tell about messages while they work on them.
CREATE TABLE skep_queue_traces (
    id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    partition BIGINT NOT NULL,
    -- Of the transaction id: the index is small and leads to few rows.
    print BIGINT NOT NULL,
    transaction_id TEXT NOT NULL,
    grp TEXT,
    event_type TEXT NOT NULL,
    worker TEXT,
    created_at BIGINT NOT NULL,
    -- JSON.
    data TEXT NOT NULL
)
WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_insert_scale_factor = 0.1);

CREATE INDEX skep_queue_traces_message ON skep_queue_traces (partition, print, id);

CREATE TABLE skep_queue_trace_names (
    name TEXT COLLATE "C" NOT NULL,
    trace BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (name, trace)
)
WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_insert_scale_factor = 0.1);

CREATE INDEX skep_queue_trace_names_trace ON skep_queue_trace_names (trace);
