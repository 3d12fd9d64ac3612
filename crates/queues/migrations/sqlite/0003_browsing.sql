-- Messages can be looked at and taken out, and a group's beginning can be changed.

-- Where what was cut off a segment stands among the others: the number that the segment has, or
-- had. NULL is at its own number. Numbers rise with time, and whoever looks at messages by their
-- age goes by them.
ALTER TABLE skep_queue_segments ADD COLUMN place INTEGER;

CREATE INDEX skep_queue_segments_places ON skep_queue_segments (place, first)
    WHERE place IS NOT NULL;

-- Whether it is one message that somebody took out, rather than messages that were too old: who
-- still works on one that was too old may say so, but this one is not there for anybody.
ALTER TABLE skep_queue_husks ADD COLUMN deleted INTEGER NOT NULL DEFAULT 0;

-- Of a group whose beginning was changed: messages pushed before this time were counted as settled
-- when it was made. NULL is as its beginning says.
ALTER TABLE skep_queue_groups ADD COLUMN counted INTEGER;

-- Where a group begins in queues that it has never been to, whatever its first pop says.
CREATE TABLE skep_queue_starts (
    grp TEXT PRIMARY KEY,
    -- NULL is with everything.
    start INTEGER
) STRICT, WITHOUT ROWID;
