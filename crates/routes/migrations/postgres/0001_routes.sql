-- Routes made by the API, and what went over all routes. Times are milliseconds since 1970. Texts
-- that something is sorted by are compared by their bytes, as SQLite does.

-- One row. Whoever changes a route changes this first, so that changes come one after another.
CREATE TABLE skep_route_registry (
    only_row INTEGER PRIMARY KEY CHECK (only_row = 1),
    -- Grows with every change of a route.
    revision BIGINT NOT NULL
);

INSERT INTO skep_route_registry (only_row, revision) VALUES (1, 0);

CREATE TABLE skep_routes (
    name TEXT COLLATE "C" PRIMARY KEY,
    -- From the spec: no two routes are for one place.
    host TEXT NOT NULL,
    path TEXT NOT NULL,
    -- JSON.
    spec TEXT NOT NULL,
    -- The revision that last changed it.
    version BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    updated_by TEXT NOT NULL,
    UNIQUE (host, path)
);

-- What one node saw on one route in one minute. Minutes are counted since 1970.
CREATE TABLE skep_route_minutes (
    route TEXT COLLATE "C" NOT NULL,
    minute BIGINT NOT NULL,
    node TEXT COLLATE "C" NOT NULL,
    -- Answers by the first digit of their status.
    status_1xx BIGINT NOT NULL,
    status_2xx BIGINT NOT NULL,
    status_3xx BIGINT NOT NULL,
    status_4xx BIGINT NOT NULL,
    status_5xx BIGINT NOT NULL,
    -- Requests that no upstream was asked for.
    refused BIGINT NOT NULL,
    bytes_in BIGINT NOT NULL,
    bytes_out BIGINT NOT NULL,
    -- How long answers took.
    histogram BYTEA NOT NULL,
    PRIMARY KEY (route, minute, node)
);

CREATE INDEX skep_route_minutes_minute ON skep_route_minutes (minute, route, node);

CREATE TABLE skep_route_events (
    id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at BIGINT NOT NULL,
    node TEXT COLLATE "C" NOT NULL,
    -- Given by the node that writes, so that what it writes again is known.
    key BIGINT NOT NULL,
    route TEXT COLLATE "C" NOT NULL,
    kind TEXT NOT NULL,
    -- Empty if it is about the route as a whole.
    upstream TEXT NOT NULL,
    -- Of an answer, if there was one.
    status BIGINT,
    detail TEXT NOT NULL,
    UNIQUE (node, key)
);

CREATE INDEX skep_route_events_route ON skep_route_events (route, id);
CREATE INDEX skep_route_events_at ON skep_route_events (at);
