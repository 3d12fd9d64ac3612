-- Messages that wait for their time, partitions in several levels, and limits on what is handed
-- out.

-- Messages that are not to be handed out yet. Each is moved to the end of its partition when its
-- time has come, in one transaction with the removal of its row.
CREATE TABLE skep_queue_later (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    queue INTEGER NOT NULL,
    partition INTEGER NOT NULL,
    due INTEGER NOT NULL,
    -- Of its transaction id.
    print INTEGER NOT NULL,
    record BLOB NOT NULL
) STRICT;

CREATE INDEX skep_queue_later_due ON skep_queue_later (due, id);
CREATE INDEX skep_queue_later_print ON skep_queue_later (partition, print);
CREATE INDEX skep_queue_later_queue ON skep_queue_later (queue, due, id);

-- How many of its messages wait for their time; what was pushed before `cleared_at` is not handed
-- out any more; bit n of `levels` says that it has partitions of level n.
ALTER TABLE skep_queues ADD COLUMN later INTEGER NOT NULL DEFAULT 0;
ALTER TABLE skep_queues ADD COLUMN cleared_at INTEGER NOT NULL DEFAULT 0;
ALTER TABLE skep_queues ADD COLUMN levels INTEGER NOT NULL DEFAULT 0;

-- A partition with priorities is several, of one name: each level is an order of its own.
ALTER TABLE skep_queue_partitions ADD COLUMN level INTEGER NOT NULL DEFAULT 0;
DROP INDEX skep_queue_partitions_name;
CREATE UNIQUE INDEX skep_queue_partitions_name ON skep_queue_partitions (queue, name, level);

-- What was handed out lately to a group, of its queue (the key is empty and `whole` is 1) and of
-- each key of it. Only of queues with a rate.
CREATE TABLE skep_queue_grants (
    grp INTEGER NOT NULL,
    whole INTEGER NOT NULL,
    key TEXT NOT NULL,
    -- Pairs of a time and a number, see skep_policy::queues::Grants; JSON.
    parts TEXT NOT NULL,
    -- When all of it is too old to count.
    expires INTEGER NOT NULL,
    PRIMARY KEY (grp, whole, key)
) STRICT, WITHOUT ROWID;

CREATE INDEX skep_queue_grants_expires ON skep_queue_grants (expires);

-- Of lanes of queues with limits. `leased_key`: it is leased, and counts for this key.
-- `blocked_key`: it has something to give, but its key has as much as it may; it is looked at again
-- when something of the key is settled, and at `ready_at` in any case.
ALTER TABLE skep_queue_lanes ADD COLUMN leased_key TEXT;
ALTER TABLE skep_queue_lanes ADD COLUMN blocked_key TEXT;
CREATE INDEX skep_queue_lanes_leased_key ON skep_queue_lanes (grp, leased_key)
    WHERE leased_key IS NOT NULL;
CREATE INDEX skep_queue_lanes_blocked_key
    ON skep_queue_lanes (grp, blocked_key, ready_at, partition)
    WHERE blocked_key IS NOT NULL;
