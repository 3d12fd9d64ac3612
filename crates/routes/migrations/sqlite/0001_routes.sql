-- Routes made by the API, and what went over all routes. Times are milliseconds since 1970.

-- One row. Whoever changes a route changes this first, so that changes come one after another.
CREATE TABLE skep_route_registry (
    only_row INTEGER PRIMARY KEY CHECK (only_row = 1),
    -- Grows with every change of a route.
    revision INTEGER NOT NULL
) STRICT;

INSERT INTO skep_route_registry (only_row, revision) VALUES (1, 0);

CREATE TABLE skep_routes (
    name TEXT PRIMARY KEY,
    -- From the spec: no two routes are for one place.
    host TEXT NOT NULL,
    path TEXT NOT NULL,
    -- JSON.
    spec TEXT NOT NULL,
    -- The revision that last changed it.
    version INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    updated_by TEXT NOT NULL,
    UNIQUE (host, path)
) STRICT;

-- What one node saw on one route in one minute. Minutes are counted since 1970.
CREATE TABLE skep_route_minutes (
    route TEXT NOT NULL,
    minute INTEGER NOT NULL,
    node TEXT NOT NULL,
    -- Answers by the first digit of their status.
    status_1xx INTEGER NOT NULL,
    status_2xx INTEGER NOT NULL,
    status_3xx INTEGER NOT NULL,
    status_4xx INTEGER NOT NULL,
    status_5xx INTEGER NOT NULL,
    -- Requests that no upstream was asked for.
    refused INTEGER NOT NULL,
    bytes_in INTEGER NOT NULL,
    bytes_out INTEGER NOT NULL,
    -- How long answers took.
    histogram BLOB NOT NULL,
    PRIMARY KEY (route, minute, node)
) STRICT, WITHOUT ROWID;

CREATE INDEX skep_route_minutes_minute ON skep_route_minutes (minute, route, node);

CREATE TABLE skep_route_events (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    at INTEGER NOT NULL,
    node TEXT NOT NULL,
    -- Given by the node that writes, so that what it writes again is known.
    key INTEGER NOT NULL,
    route TEXT NOT NULL,
    kind TEXT NOT NULL,
    -- Empty if it is about the route as a whole.
    upstream TEXT NOT NULL,
    -- Of an answer, if there was one.
    status INTEGER,
    detail TEXT NOT NULL,
    UNIQUE (node, key)
) STRICT;

CREATE INDEX skep_route_events_route ON skep_route_events (route, id);
CREATE INDEX skep_route_events_at ON skep_route_events (at);
