-- What operators set up and look at. Times are microseconds since 1970 by the store's clock.

CREATE TABLE skep_queue_schedules (
    -- From the counter in skep_queue_clock. A schedule that is replaced gets another number, so
    -- that whoever is about to fire it as it was finds it gone.
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL,
    -- JSON.
    spec TEXT NOT NULL,
    paused INTEGER NOT NULL,
    -- The first slot that has not fired; NULL while it is paused, and when there is none any more.
    next_at INTEGER,
    -- The slot that fired last, and the message it made.
    last_at INTEGER,
    last_message BLOB,
    fired INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    -- Grows by one whenever somebody changes it; firing does not.
    version INTEGER NOT NULL
) STRICT;

CREATE UNIQUE INDEX skep_queue_schedules_name ON skep_queue_schedules (name);
CREATE INDEX skep_queue_schedules_due ON skep_queue_schedules (next_at)
    WHERE next_at IS NOT NULL;

-- Dead letters on their way back. Any node goes on with one.
CREATE TABLE skep_queue_redrives (
    -- From the counter in skep_queue_clock.
    id INTEGER PRIMARY KEY,
    queue INTEGER NOT NULL,
    -- The queue may be gone when somebody asks.
    queue_name TEXT NOT NULL,
    -- JSON.
    filter TEXT NOT NULL,
    -- Another queue to push to; NULL is the queue they were in.
    target TEXT,
    -- Letters a second; NULL is as fast as it goes.
    rate INTEGER,
    moved INTEGER NOT NULL,
    skipped INTEGER NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('running', 'done', 'stopped')),
    next_at INTEGER NOT NULL,
    -- The last dead letter that was looked at, and the last there was when this began: what dies
    -- again meanwhile has a greater number and is not moved in circles.
    position INTEGER NOT NULL,
    upto INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    created_by TEXT NOT NULL,
    ended_at INTEGER
) STRICT;

CREATE INDEX skep_queue_redrives_due ON skep_queue_redrives (next_at) WHERE state = 'running';
CREATE INDEX skep_queue_redrives_ended ON skep_queue_redrives (ended_at)
    WHERE ended_at IS NOT NULL;

-- What is switched off for maintenance: a handful of rows.
CREATE TABLE skep_queue_switches (
    name TEXT PRIMARY KEY,
    is_on INTEGER NOT NULL,
    since INTEGER NOT NULL,
    set_by TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- What happened, by queue and minute since 1970. Queue 0 is all of them.
CREATE TABLE skep_queue_stats (
    queue INTEGER NOT NULL,
    minute INTEGER NOT NULL,
    pushed INTEGER NOT NULL,
    bytes INTEGER NOT NULL,
    popped INTEGER NOT NULL,
    acked INTEGER NOT NULL,
    failed INTEGER NOT NULL,
    dead INTEGER NOT NULL,
    expired INTEGER NOT NULL,
    pending_max INTEGER NOT NULL,
    PRIMARY KEY (queue, minute)
) STRICT, WITHOUT ROWID;

CREATE INDEX skep_queue_stats_minute ON skep_queue_stats (minute);

-- What consumers tell about messages while they work on them.
CREATE TABLE skep_queue_traces (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    partition INTEGER NOT NULL,
    -- Of the transaction id: the index is small and leads to few rows.
    print INTEGER NOT NULL,
    transaction_id TEXT NOT NULL,
    grp TEXT,
    event_type TEXT NOT NULL,
    worker TEXT,
    created_at INTEGER NOT NULL,
    -- JSON.
    data TEXT NOT NULL
) STRICT;

CREATE INDEX skep_queue_traces_message ON skep_queue_traces (partition, print, id);

CREATE TABLE skep_queue_trace_names (
    name TEXT NOT NULL,
    trace INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (name, trace)
) STRICT, WITHOUT ROWID;

CREATE INDEX skep_queue_trace_names_trace ON skep_queue_trace_names (trace);
