-- The table of sessions: what it keeps. The one way to ask it is CALL skep_session_step(…), which
-- gives exactly the answers of Fleet::apply in skep_policy::sessions.
--
-- Times are milliseconds. Text that is put in order is in the order of its bytes, as everywhere.
-- Rows that are renewed all the time have room on their page for the next versions.

-- One row, which each step that may change something locks first: steps happen one after the other.
CREATE TABLE skep_session_meta (
    only_row BOOLEAN PRIMARY KEY DEFAULT TRUE CHECK (only_row),
    -- Which server, with which history, said what is in here. The first step fills in a NULL.
    run TEXT,
    -- The latest time ever shown: the server's clock may be put back, the table's may not.
    clock BIGINT NOT NULL,
    incarnations BIGINT NOT NULL,
    -- The highest number given to a worker. Those of forgotten workers are given again first.
    numbers BIGINT NOT NULL
) WITH (fillfactor = 20);

INSERT INTO skep_session_meta (run, clock, incarnations, numbers) VALUES (NULL, 0, 0, 0);

CREATE TABLE skep_session_free_numbers (
    number BIGINT PRIMARY KEY
);

CREATE TABLE skep_session_kinds (
    id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name TEXT COLLATE "C" NOT NULL UNIQUE,
    -- The rules as they were told, and each of them to count with.
    rules JSONB NOT NULL,
    policy TEXT NOT NULL,
    slots_default BIGINT NOT NULL,
    lifetime_max BIGINT NOT NULL,
    budget_count BIGINT,
    budget_percent BIGINT,
    heartbeat_ms BIGINT NOT NULL,
    drain_max_ms BIGINT NOT NULL,
    restart_max_ms BIGINT NOT NULL,
    waiting_max BIGINT NOT NULL,
    -- What skep_session_count adds up from its workers. A permit is out until it is settled.
    standings BIGINT[] NOT NULL,
    live BIGINT NOT NULL DEFAULT 0,
    slots BIGINT NOT NULL DEFAULT 0,
    active BIGINT NOT NULL DEFAULT 0,
    free BIGINT NOT NULL DEFAULT 0,
    held_idle BIGINT NOT NULL DEFAULT 0,
    permits BIGINT NOT NULL DEFAULT 0,
    -- The number of workers for which the due points were computed.
    counted BIGINT NOT NULL DEFAULT 0,
    -- The line: how many wait, the last rank that was served, how many ever came.
    waiting BIGINT NOT NULL DEFAULT 0,
    served BIGINT NOT NULL DEFAULT 0,
    arrivals BIGINT NOT NULL DEFAULT 0,
    started BIGINT NOT NULL DEFAULT 0,
    recycled BIGINT NOT NULL DEFAULT 0,
    out_ms BIGINT NOT NULL DEFAULT 0
) WITH (fillfactor = 20);

-- What workers of a kind are. A shape that nobody has is deleted, so there are never more of them
-- than workers.
CREATE TABLE skep_session_shapes (
    id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    kind BIGINT NOT NULL,
    labels TEXT[] COLLATE "C" NOT NULL,
    -- Empty is no version.
    version TEXT NOT NULL,
    members BIGINT NOT NULL,
    -- Members that belong to the fleet.
    live BIGINT NOT NULL,
    UNIQUE (kind, labels, version)
);

CREATE TABLE skep_session_workers (
    number BIGINT PRIMARY KEY,
    name TEXT COLLATE "C" NOT NULL UNIQUE,
    kind BIGINT NOT NULL,
    shape BIGINT NOT NULL,
    url TEXT NOT NULL,
    start TEXT NOT NULL,
    incarnation BIGINT NOT NULL,
    slots BIGINT NOT NULL,
    lifetime BIGINT NOT NULL,
    -- Sessions now, on this incarnation and on those before.
    active BIGINT NOT NULL,
    leaving BIGINT NOT NULL,
    fresh BOOLEAN NOT NULL,
    successor BOOLEAN NOT NULL,
    -- A permit has a time; without one there is none. Its step is draining, restarting, succeeding
    -- or succeeded; step_at is the end of the first and last, if they have one, and the beginning
    -- of the others.
    permit_since BIGINT,
    step TEXT,
    step_at BIGINT,
    down BOOLEAN NOT NULL,
    drained BOOLEAN NOT NULL,
    removed BOOLEAN NOT NULL,
    parting BOOLEAN NOT NULL,
    lost BOOLEAN NOT NULL,
    hold BOOLEAN NOT NULL,
    due_by TEXT,
    -- A suspect has both, others neither.
    failures BIGINT,
    probe_at BIGINT,
    waiting_since BIGINT,
    since BIGINT NOT NULL,
    heard BIGINT NOT NULL,
    -- What follows from all that: skep_session_place.
    standing TEXT NOT NULL,
    due BOOLEAN NOT NULL,
    rank BIGINT NOT NULL,
    free BIGINT NOT NULL,
    ripe BOOLEAN NOT NULL,
    timer BIGINT NOT NULL,
    duty TEXT NOT NULL
) WITH (fillfactor = 50);

-- The best of a shape is its first entry here, however many there are.
CREATE INDEX skep_session_places ON skep_session_workers (kind, shape, standing, rank, number);
-- Who may have a permit: the most sessions first.
CREATE INDEX skep_session_ripe ON skep_session_workers (kind, lifetime DESC, number) WHERE ripe;
-- When each worker must be looked after.
CREATE INDEX skep_session_timers ON skep_session_workers (timer, number);

CREATE TABLE skep_session_gateways (
    id BIGINT PRIMARY KEY,
    node TEXT NOT NULL,
    link BIGINT NOT NULL,
    ttl BIGINT NOT NULL,
    heard BIGINT NOT NULL,
    steady BIGINT NOT NULL
) WITH (fillfactor = 20);

CREATE TABLE skep_session_sessions (
    gateway BIGINT NOT NULL,
    ticket BIGINT NOT NULL,
    kind BIGINT NOT NULL,
    key TEXT NOT NULL,
    since BIGINT NOT NULL,
    ending TEXT,
    -- Its gateway must know something about it.
    news BOOLEAN NOT NULL,
    -- Seated.
    worker BIGINT,
    incarnation BIGINT,
    due BOOLEAN,
    -- Waiting.
    want BIGINT,
    rank BIGINT,
    arrival BIGINT,
    PRIMARY KEY (gateway, ticket),
    CHECK ((worker IS NULL) <> (want IS NULL))
);

CREATE INDEX skep_session_seated ON skep_session_sessions (worker) WHERE worker IS NOT NULL;
CREATE INDEX skep_session_line ON skep_session_sessions (want, rank, arrival)
    WHERE want IS NOT NULL;
CREATE INDEX skep_session_news ON skep_session_sessions (gateway, ticket) WHERE news;

-- Sessions of each key, seated and waiting.
CREATE TABLE skep_session_keys (
    key TEXT COLLATE "C" PRIMARY KEY,
    sessions BIGINT NOT NULL
) WITH (fillfactor = 20);

-- What those in the line of a kind want, and how many want it.
CREATE TABLE skep_session_wants (
    id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    kind BIGINT NOT NULL,
    labels TEXT[] COLLATE "C" NOT NULL,
    version TEXT NOT NULL,
    waiting BIGINT NOT NULL,
    UNIQUE (kind, labels, version)
) WITH (fillfactor = 20);

-- The last rank given to each key that waits for a kind, and how many of it wait.
CREATE TABLE skep_session_turns (
    kind BIGINT NOT NULL,
    key TEXT COLLATE "C" NOT NULL,
    last BIGINT NOT NULL,
    waiting BIGINT NOT NULL,
    PRIMARY KEY (kind, key)
) WITH (fillfactor = 20);
