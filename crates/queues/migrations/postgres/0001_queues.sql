-- Queues, their messages, and how far groups are. Times are microseconds since 1970, by the clock
-- of this database.

CREATE TABLE skep_queues (
    id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name TEXT NOT NULL,
    namespace TEXT NOT NULL,
    task TEXT NOT NULL,
    -- JSON.
    options TEXT NOT NULL,
    -- Of the options: higher is served first, where a pop names no queue.
    priority INTEGER NOT NULL,
    -- Of the options: whether messages are ever deleted for their age.
    ages BOOLEAN NOT NULL,
    created_at BIGINT NOT NULL,
    -- A deleted queue has lost its name; its rows are removed little by little.
    deleted BOOLEAN NOT NULL DEFAULT FALSE
);

CREATE UNIQUE INDEX skep_queues_name ON skep_queues (name) WHERE NOT deleted;
CREATE INDEX skep_queues_kind ON skep_queues (namespace, task) WHERE NOT deleted;
CREATE INDEX skep_queues_ages ON skep_queues (id) WHERE ages AND NOT deleted;
CREATE INDEX skep_queues_deleted ON skep_queues (id) WHERE deleted;

-- Sums over a queue. Whoever adds to one takes any of a few rows, because all who push to a queue
-- would wait for each other at one; whoever wants to know adds them up.
CREATE TABLE skep_queue_counts (
    queue BIGINT NOT NULL,
    slot SMALLINT NOT NULL,
    pushed BIGINT NOT NULL DEFAULT 0,
    -- Messages whose bytes were deleted.
    removed BIGINT NOT NULL DEFAULT 0,
    partitions BIGINT NOT NULL DEFAULT 0,
    dead BIGINT NOT NULL DEFAULT 0,
    PRIMARY KEY (queue, slot)
)
-- Updated with every push and never in an index: room for many versions on the same page.
WITH (fillfactor = 20, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0);

CREATE TABLE skep_queue_partitions (
    -- Drawn while the queue's row is locked, so that those of a queue become visible in their
    -- order. Must not be given out in advance, hence no cache.
    id BIGINT GENERATED ALWAYS AS IDENTITY (CACHE 1) PRIMARY KEY,
    queue BIGINT NOT NULL,
    name TEXT NOT NULL,
    -- The last number that was given to a message.
    tail BIGINT NOT NULL,
    last_push BIGINT NOT NULL,
    created_at BIGINT NOT NULL
)
-- tail and last_push are in no index: with room on the page an update touches nothing else. Dead
-- versions are pruned when the page is next used, so vacuum may wait for a share of the rows.
WITH (fillfactor = 75, autovacuum_vacuum_scale_factor = 0.1);

CREATE UNIQUE INDEX skep_queue_partitions_name ON skep_queue_partitions (queue, name);
CREATE INDEX skep_queue_partitions_age ON skep_queue_partitions (queue, id);

-- Messages that were pushed together to one partition. Never a row for one message.
CREATE TABLE skep_queue_segments (
    partition BIGINT NOT NULL,
    -- The first message's number; the others follow.
    first BIGINT NOT NULL,
    count INTEGER NOT NULL,
    at BIGINT NOT NULL,
    queue BIGINT NOT NULL,
    -- Eight bytes for each message's transaction id.
    prints BYTEA NOT NULL,
    -- The messages; nothing once they are too old, while their transaction ids are still known.
    body BYTEA,
    PRIMARY KEY (partition, first)
)
-- Rows are written once and deleted in the order in which they came, so whole pages become free.
-- Vacuum has to come for what is inserted too, so that pages are frozen before they are many.
WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_insert_scale_factor = 0.1);

-- Payloads are compressed by those who care, or encrypted; trying again costs more than it saves.
ALTER TABLE skep_queue_segments ALTER COLUMN body SET STORAGE EXTERNAL;
-- Hashes: there is nothing to compress.
ALTER TABLE skep_queue_segments ALTER COLUMN prints SET STORAGE EXTERNAL;

-- What is old, in order; the rows that only know transaction ids are apart, because they were
-- looked at already.
CREATE INDEX skep_queue_segments_age ON skep_queue_segments (queue, at, partition, first)
    WHERE body IS NOT NULL;
CREATE INDEX skep_queue_segments_husks ON skep_queue_segments (queue, at) WHERE body IS NULL;

CREATE TABLE skep_queue_groups (
    id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    queue BIGINT NOT NULL,
    name TEXT NOT NULL,
    -- Messages pushed before are not for this group; nothing if all are.
    start BIGINT,
    -- Partitions up to this number have lanes.
    frontier BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    -- One that was deleted, or moved as a whole; its lanes are removed little by little.
    deleted BOOLEAN NOT NULL DEFAULT FALSE
)
WITH (fillfactor = 75);

CREATE UNIQUE INDEX skep_queue_groups_name ON skep_queue_groups (queue, name) WHERE NOT deleted;
CREATE INDEX skep_queue_groups_alone ON skep_queue_groups (name) WHERE NOT deleted;
CREATE INDEX skep_queue_groups_deleted ON skep_queue_groups (id) WHERE deleted;

-- How many messages a group's cursors have passed: see skep_queue_counts.
CREATE TABLE skep_queue_group_counts (
    grp BIGINT NOT NULL,
    slot SMALLINT NOT NULL,
    settled BIGINT NOT NULL DEFAULT 0,
    PRIMARY KEY (grp, slot)
)
WITH (fillfactor = 20, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0);

-- How far one group is in one partition.
CREATE TABLE skep_queue_lanes (
    partition BIGINT NOT NULL,
    grp BIGINT NOT NULL,
    cursor BIGINT NOT NULL,
    -- When it can next be claimed; nothing if it is drained.
    ready_at BIGINT,
    lease UUID,
    lease_until BIGINT,
    lease_through BIGINT,
    ended UUID,
    failures BIGINT NOT NULL DEFAULT 0,
    failed_through BIGINT NOT NULL DEFAULT 0,
    not_before BIGINT NOT NULL DEFAULT 0,
    PRIMARY KEY (partition, grp)
)
-- Every claim and every settlement leaves a dead version and dead entries at the front of the index
-- that claims read from: vacuum early, however many lanes there are, and without pauses.
WITH (fillfactor = 70, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_scale_factor = 0.02,
      autovacuum_vacuum_cost_delay = 0, autovacuum_analyze_threshold = 5000);

-- Claims take the first of it. Drained lanes are in it too, so that the lanes of a deleted group
-- are found.
CREATE INDEX skep_queue_lanes_ready ON skep_queue_lanes (grp, ready_at);
CREATE INDEX skep_queue_lanes_lease ON skep_queue_lanes (lease) WHERE lease IS NOT NULL;

CREATE TABLE skep_queue_dead (
    id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    queue BIGINT NOT NULL,
    partition BIGINT NOT NULL,
    grp TEXT NOT NULL,
    -- A copy, because the message's segment is not kept for it.
    record BYTEA NOT NULL,
    created_at BIGINT NOT NULL,
    failed_at BIGINT NOT NULL,
    failures BIGINT NOT NULL,
    error TEXT
);

CREATE INDEX skep_queue_dead_queue ON skep_queue_dead (queue, id);
