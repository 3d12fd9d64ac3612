-- Queues, their messages, and how far each group is. Times are microseconds since 1970 by the
-- store's clock. Numbers of queues, partitions and groups come from one counter and are never given
-- twice; they are given in memory and written at the end of a batch, so AUTOINCREMENT is no help.
-- No foreign keys: one thread writes all of this, and each check would cost a look-up per push.

-- One row, changed with every batch that changes anything.
CREATE TABLE skep_queue_clock (
    only_row INTEGER PRIMARY KEY CHECK (only_row = 1),
    -- The last time that was given to anything: the clock never goes back behind it.
    now INTEGER NOT NULL,
    -- Grows by one with every batch. What is kept in memory belongs to one version; if a commit is
    -- lost, the two differ and the memory is forgotten.
    version INTEGER NOT NULL,
    -- The last number that a queue, partition or group got.
    last_id INTEGER NOT NULL
) STRICT;

INSERT INTO skep_queue_clock (only_row, now, version, last_id) VALUES (1, 0, 0, 0);

CREATE TABLE skep_queues (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL,
    namespace TEXT NOT NULL,
    task TEXT NOT NULL,
    -- JSON.
    options TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    -- Messages that ever came, and those whose bytes were deleted.
    pushed INTEGER NOT NULL,
    removed INTEGER NOT NULL,
    partitions INTEGER NOT NULL,
    dead INTEGER NOT NULL,
    -- Nobody sees it any more; its rows are removed little by little.
    deleted INTEGER NOT NULL
) STRICT;

CREATE UNIQUE INDEX skep_queues_name ON skep_queues (name) WHERE deleted = 0;
CREATE INDEX skep_queues_namespace ON skep_queues (namespace, task) WHERE deleted = 0;
CREATE INDEX skep_queues_task ON skep_queues (task) WHERE deleted = 0;
CREATE INDEX skep_queues_deleted ON skep_queues (id) WHERE deleted = 1;

CREATE TABLE skep_queue_partitions (
    -- Within a queue they rise in the order in which partitions become visible.
    id INTEGER PRIMARY KEY,
    queue INTEGER NOT NULL,
    name TEXT NOT NULL,
    -- The last number that a message got.
    tail INTEGER NOT NULL,
    last_push INTEGER NOT NULL,
    created_at INTEGER NOT NULL
) STRICT;

CREATE UNIQUE INDEX skep_queue_partitions_name ON skep_queue_partitions (queue, name);
CREATE INDEX skep_queue_partitions_queue ON skep_queue_partitions (queue, id);

-- Messages pushed together. New rows go to the end of the table whatever their partition, so that a
-- commit writes few pages. The body is last: whoever wants only what stands before does not read
-- its pages.
CREATE TABLE skep_queue_segments (
    id INTEGER PRIMARY KEY,
    partition INTEGER NOT NULL,
    first INTEGER NOT NULL,
    count INTEGER NOT NULL,
    at INTEGER NOT NULL,
    -- Eight bytes for each transaction id.
    prints BLOB NOT NULL,
    body BLOB NOT NULL
) STRICT;

-- Has all that a claim asks for before it wants bodies. At most 256 messages are in a segment, so
-- the one that holds number n has first > n - 256.
CREATE UNIQUE INDEX skep_queue_segments_runs
    ON skep_queue_segments (partition, first, count, at);

-- What is left of segments that were removed while their transaction ids may still come again. A
-- table of its own, so that the index above leads to nothing that cannot be handed out.
CREATE TABLE skep_queue_husks (
    partition INTEGER NOT NULL,
    first INTEGER NOT NULL,
    count INTEGER NOT NULL,
    at INTEGER NOT NULL,
    expires INTEGER NOT NULL,
    prints BLOB NOT NULL,
    PRIMARY KEY (partition, first)
) STRICT, WITHOUT ROWID;

CREATE INDEX skep_queue_husks_expires ON skep_queue_husks (expires);

CREATE TABLE skep_queue_groups (
    id INTEGER PRIMARY KEY,
    queue INTEGER NOT NULL,
    name TEXT NOT NULL,
    -- It reads what was pushed at this time or later; NULL is everything.
    start INTEGER,
    -- Partitions with greater numbers have no lane yet. Of a deleted group: those with greater
    -- numbers have none any more.
    frontier INTEGER NOT NULL,
    -- Messages of the queue that it is past.
    settled INTEGER NOT NULL,
    lanes INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    deleted INTEGER NOT NULL
) STRICT;

CREATE UNIQUE INDEX skep_queue_groups_name ON skep_queue_groups (queue, name) WHERE deleted = 0;
CREATE INDEX skep_queue_groups_by_name ON skep_queue_groups (name) WHERE deleted = 0;
CREATE INDEX skep_queue_groups_deleted ON skep_queue_groups (id) WHERE deleted = 1;

CREATE TABLE skep_queue_lanes (
    partition INTEGER NOT NULL,
    grp INTEGER NOT NULL,
    cursor INTEGER NOT NULL,
    -- When it can next be claimed; NULL is not before the next push.
    ready_at INTEGER,
    lease BLOB,
    lease_until INTEGER,
    lease_through INTEGER,
    ended BLOB,
    failures INTEGER NOT NULL,
    failed_through INTEGER NOT NULL,
    not_before INTEGER NOT NULL,
    PRIMARY KEY (partition, grp)
) STRICT, WITHOUT ROWID;

CREATE INDEX skep_queue_lanes_ready ON skep_queue_lanes (grp, ready_at, partition)
    WHERE ready_at IS NOT NULL;
CREATE INDEX skep_queue_lanes_lease ON skep_queue_lanes (lease) WHERE lease IS NOT NULL;

-- The group by its name: a group that is moved gets another number and keeps its dead letters.
CREATE TABLE skep_queue_dead (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    queue INTEGER NOT NULL,
    partition INTEGER NOT NULL,
    grp TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    failed_at INTEGER NOT NULL,
    failures INTEGER NOT NULL,
    error TEXT,
    -- A copy, which outlives the message.
    record BLOB NOT NULL
) STRICT;

CREATE INDEX skep_queue_dead_queue ON skep_queue_dead (queue, id);
