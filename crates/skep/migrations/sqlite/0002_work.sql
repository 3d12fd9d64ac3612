-- What a node's own work leaves behind. Times are milliseconds since 1970.

-- Tasks that could not be done.
CREATE TABLE skep_dead_letters (
    id TEXT PRIMARY KEY,
    node TEXT NOT NULL,
    tier TEXT NOT NULL,
    kind TEXT NOT NULL,
    cause TEXT NOT NULL,
    attempts INTEGER NOT NULL,
    -- A JSON array of texts, the first attempt first.
    errors TEXT NOT NULL,
    submitted_at INTEGER NOT NULL,
    died_at INTEGER NOT NULL,
    -- What the task can be built anew from.
    payload BLOB,
    -- Somebody tries it again, and has so long to say how it went.
    retrying_until INTEGER NOT NULL DEFAULT 0
) STRICT;

CREATE INDEX skep_dead_letters_by_time ON skep_dead_letters (died_at, id);

-- Requests that were answered.
CREATE TABLE skep_access (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    at INTEGER NOT NULL,
    node TEXT NOT NULL,
    method TEXT NOT NULL,
    path TEXT NOT NULL,
    status INTEGER NOT NULL,
    duration_us INTEGER NOT NULL,
    address TEXT NOT NULL,
    actor TEXT NOT NULL,
    request_id TEXT NOT NULL
) STRICT;

CREATE INDEX skep_access_by_time ON skep_access (at);
