-- Messages can be looked at and taken out, and a group's beginning can be changed.

-- Of a row without a body: whether it is one message that somebody took out, rather than messages
-- that were too old. Who still works on one that was too old may say so, but this one is not there
-- for anybody.
ALTER TABLE skep_queue_segments ADD COLUMN deleted BOOLEAN NOT NULL DEFAULT FALSE;

-- Partitions by how their names begin, whatever the language of the database.
CREATE INDEX skep_queue_partitions_letters
    ON skep_queue_partitions (queue, (name COLLATE "C"));

-- Where a group begins in queues that it has never been to, whatever its first pop says.
CREATE TABLE skep_queue_starts (
    grp TEXT PRIMARY KEY,
    -- Nothing is with everything.
    start BIGINT
);
