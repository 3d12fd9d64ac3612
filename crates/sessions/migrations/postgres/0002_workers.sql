-- The table of sessions: where a worker belongs, and when it may restart. Each function is one of
-- skep_policy::sessions and has its name; that is where the why is written.
--
-- A worker is read once, changed in a variable, and written by skep_session_settle together with
-- what follows. So the row on record is always as it was last settled.

-- Whom a step concerns, in which kinds something changed, and whether that must outlive a crash is
-- collected in settings that end with the transaction: nothing is written for it.
CREATE FUNCTION skep_session_hint(whom TEXT) RETURNS VOID LANGUAGE sql
RETURN set_config('skep_session.hints', current_setting('skep_session.hints') || ' ' || whom, TRUE);

CREATE FUNCTION skep_session_touch(kind BIGINT) RETURNS VOID LANGUAGE sql
RETURN set_config('skep_session.touched', current_setting('skep_session.touched') || ' ' || kind,
    TRUE);

CREATE FUNCTION skep_session_keep() RETURNS VOID LANGUAGE sql
RETURN set_config('skep_session.keep', 'on', TRUE);

-- ── Rules ─────────────────────────────────────────────

CREATE FUNCTION skep_session_window(k skep_session_kinds, workers BIGINT) RETURNS BIGINT
LANGUAGE sql IMMUTABLE
RETURN CASE k.policy WHEN 'lifetime-first'
    THEN greatest(k.lifetime_max / greatest(workers, 1), 1)
    ELSE greatest(least(k.lifetime_max / greatest(workers, 1), k.lifetime_max / 5), 1) END;

CREATE FUNCTION skep_session_due_at(k skep_session_kinds, number BIGINT, fresh BOOLEAN)
RETURNS BIGINT LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    width CONSTANT BIGINT := skep_session_window(k, k.counted);
    edge BIGINT := greatest(k.lifetime_max - width, 0);
    low BIGINT;
BEGIN
    IF k.lifetime_max = 0 OR k.policy = 'least-loaded' THEN
        RETURN NULL;
    END IF;
    IF k.policy = 'lifetime-first' THEN
        RETURN edge;
    END IF;
    edge := greatest(edge, 1);
    IF NOT fresh THEN
        RETURN edge;
    END IF;
    low := least(width, edge);
    RETURN low + (number % 65536) * 40503 % 65536 * (edge - low + 1) / 65536;
END
$$;

CREATE FUNCTION skep_session_budget(k skep_session_kinds) RETURNS BIGINT LANGUAGE sql IMMUTABLE
RETURN greatest(coalesce(k.budget_count, least(k.live * k.budget_percent / 100, 4294967295)), 1);

CREATE FUNCTION skep_session_worn_out(k skep_session_kinds, lifetime BIGINT) RETURNS BOOLEAN
LANGUAGE sql IMMUTABLE
RETURN k.lifetime_max <> 0 AND lifetime >= k.lifetime_max;

-- ── Where a worker belongs ────────────────────────────

-- Everything that follows from a worker's state, its duty included.
CREATE FUNCTION skep_session_place(w skep_session_workers, k skep_session_kinds)
RETURNS skep_session_workers LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    load CONSTANT BIGINT := w.active * 65536 / greatest(w.slots, 1);
    is_open BOOLEAN;
BEGIN
    w.due := coalesce(w.lifetime >= skep_session_due_at(k, w.number, w.fresh), FALSE)
        OR (w.due_by IS NOT NULL AND k.policy = 'budgeted');
    w.standing := CASE
        WHEN w.removed THEN 'removed'
        WHEN w.lost THEN 'lost'
        WHEN w.step IN ('restarting', 'draining') THEN w.step
        WHEN w.down THEN 'down'
        WHEN w.drained THEN 'drained'
        WHEN w.failures IS NOT NULL THEN 'suspect'
        WHEN w.hold OR skep_session_worn_out(k, w.lifetime) THEN 'held'
        WHEN w.active >= w.slots THEN 'full'
        WHEN w.due THEN 'due'
        ELSE 'ready' END;
    is_open := w.standing IN ('ready', 'due');
    w.rank := CASE
        WHEN k.policy = 'lifetime-first' THEN ((4294967295 - w.lifetime) << 20) | w.active
        WHEN k.policy = 'least-loaded' THEN (load << 32) | w.lifetime
        WHEN w.due THEN ((65536 - load) << 32) | w.lifetime
        ELSE (load << 32) | (4294967295 - w.lifetime) END;
    w.free := CASE WHEN NOT is_open THEN 0
        WHEN k.lifetime_max = 0 THEN w.slots - w.active
        ELSE least(w.slots - w.active, k.lifetime_max - w.lifetime) END;
    w.ripe := k.policy = 'budgeted' AND w.permit_since IS NULL
        AND NOT (w.lost OR w.removed OR w.down OR w.drained)
        AND (w.due OR w.hold)
        AND w.failures IS DISTINCT FROM 0
        AND (w.active = 0 OR w.successor);
    -- The least of several leaves out those that are NULL.
    w.timer := CASE WHEN w.lost OR w.removed THEN w.heard + k.heartbeat_ms + 600000
        ELSE least(
            w.heard + k.heartbeat_ms + 1,
            CASE WHEN w.step IN ('draining', 'succeeded') THEN w.step_at
                ELSE w.step_at + k.restart_max_ms END,
            CASE WHEN w.permit_since IS NULL THEN w.waiting_since + k.drain_max_ms END,
            w.probe_at) END;
    w.duty := CASE
        WHEN w.removed THEN 'leave'
        WHEN w.step = 'restarting' AND NOT w.down THEN 'restart'
        WHEN w.step = 'succeeding' THEN 'succeed'
        WHEN w.step = 'succeeded' AND w.leaving = 0 THEN 'stop_old'
        ELSE 'serve' END;
    RETURN w;
END
$$;

CREATE FUNCTION skep_session_is_live(w skep_session_workers) RETURNS BOOLEAN
LANGUAGE sql IMMUTABLE
RETURN w.standing NOT IN ('lost', 'removed');

-- Adds a settled worker to the counts of its kind (sign 1), or takes it out of them (sign -1).
CREATE FUNCTION skep_session_count(k skep_session_kinds, w skep_session_workers, sign BIGINT)
RETURNS skep_session_kinds LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    place CONSTANT INTEGER := array_position(ARRAY['ready', 'due', 'full', 'held', 'draining',
        'restarting', 'drained', 'suspect', 'down', 'lost', 'removed'], w.standing);
BEGIN
    k.standings[place] := k.standings[place] + sign;
    IF skep_session_is_live(w) THEN
        k.live := k.live + sign;
        k.slots := k.slots + sign * w.slots;
        k.active := k.active + sign * w.active;
    END IF;
    k.free := k.free + sign * w.free;
    IF w.standing = 'held' AND w.active = 0 THEN
        k.held_idle := k.held_idle + sign;
    END IF;
    IF w.permit_since IS NOT NULL THEN
        k.permits := k.permits + sign;
    END IF;
    RETURN k;
END
$$;

CREATE FUNCTION skep_session_save_kind(k skep_session_kinds) RETURNS VOID LANGUAGE plpgsql AS $$
BEGIN
    UPDATE skep_session_kinds AS t SET standings = k.standings, live = k.live, slots = k.slots,
        active = k.active, free = k.free, held_idle = k.held_idle, permits = k.permits,
        counted = k.counted
    WHERE t.id = k.id;
END
$$;

-- Writes a worker, which was `before` (NULL if it is new).
CREATE FUNCTION skep_session_save_worker(before skep_session_workers, w skep_session_workers)
RETURNS VOID LANGUAGE plpgsql AS $$
BEGIN
    IF before.number IS NULL THEN
        INSERT INTO skep_session_workers VALUES (w.*);
    ELSE
        UPDATE skep_session_workers AS t SET kind = w.kind, shape = w.shape, url = w.url,
            start = w.start, incarnation = w.incarnation, slots = w.slots, lifetime = w.lifetime,
            active = w.active, leaving = w.leaving, fresh = w.fresh, successor = w.successor,
            permit_since = w.permit_since, step = w.step, step_at = w.step_at, down = w.down,
            drained = w.drained, removed = w.removed, parting = w.parting, lost = w.lost,
            hold = w.hold, due_by = w.due_by, failures = w.failures, probe_at = w.probe_at,
            waiting_since = w.waiting_since, since = w.since, heard = w.heard,
            standing = w.standing, due = w.due, rank = w.rank, free = w.free, ripe = w.ripe,
            timer = w.timer, duty = w.duty
        WHERE t.number = w.number;
    END IF;
    -- A worker that was heard a moment earlier is no worse.
    before.heard := w.heard;
    before.timer := w.timer;
    IF w IS DISTINCT FROM before THEN
        PERFORM skep_session_keep();
    END IF;
END
$$;

-- Keeps the counts of shapes when a worker, which was `before`, is another.
CREATE FUNCTION skep_session_count_shape(before skep_session_workers, w skep_session_workers)
RETURNS VOID LANGUAGE plpgsql AS $$
DECLARE
    was_live CONSTANT INTEGER := coalesce(skep_session_is_live(before)::INTEGER, 0);
    now_live CONSTANT INTEGER := skep_session_is_live(w)::INTEGER;
BEGIN
    IF before.shape IS DISTINCT FROM w.shape THEN
        UPDATE skep_session_shapes AS s SET members = s.members + 1, live = s.live + now_live
        WHERE s.id = w.shape;
        PERFORM skep_session_leave_shape(before);
    ELSIF was_live <> now_live THEN
        UPDATE skep_session_shapes AS s SET live = s.live + now_live - was_live
        WHERE s.id = w.shape;
    END IF;
END
$$;

CREATE FUNCTION skep_session_leave_shape(w skep_session_workers) RETURNS VOID
LANGUAGE plpgsql AS $$
BEGIN
    UPDATE skep_session_shapes AS s
    SET members = s.members - 1, live = s.live - skep_session_is_live(w)::INTEGER
    WHERE s.id = w.shape;
    DELETE FROM skep_session_shapes AS s WHERE s.id = w.shape AND s.members = 0;
END
$$;

-- Writes a worker and brings everything that is derived from it up to date.
CREATE FUNCTION skep_session_settle(w skep_session_workers) RETURNS skep_session_workers
LANGUAGE plpgsql AS $$
DECLARE
    k skep_session_kinds;
    settled_kind skep_session_kinds;
    other skep_session_kinds;
    before skep_session_workers;
    duty_before CONSTANT TEXT := w.duty;
BEGIN
    SELECT * INTO STRICT k FROM skep_session_kinds AS t WHERE t.id = w.kind;
    SELECT * INTO before FROM skep_session_workers AS t WHERE t.number = w.number;
    w := skep_session_place(w, k);
    IF w.duty <> duty_before THEN
        PERFORM skep_session_hint('w' || w.number);
    END IF;
    IF w IS NOT DISTINCT FROM before THEN
        RETURN w;
    END IF;
    settled_kind := k;
    IF before.kind = k.id THEN
        settled_kind := skep_session_count(settled_kind, before, -1);
    ELSIF before.kind IS NOT NULL THEN
        SELECT * INTO STRICT other FROM skep_session_kinds AS t WHERE t.id = before.kind;
        PERFORM skep_session_save_kind(skep_session_count(other, before, -1));
    END IF;
    settled_kind := skep_session_count(settled_kind, w, 1);
    IF settled_kind IS DISTINCT FROM k THEN
        PERFORM skep_session_save_kind(settled_kind);
    END IF;
    PERFORM skep_session_save_worker(before, w), skep_session_count_shape(before, w);
    RETURN w;
END
$$;

-- Settles every worker of a kind, because its rules or its size changed.
CREATE FUNCTION skep_session_settle_all(of_kind BIGINT) RETURNS VOID LANGUAGE plpgsql AS $$
DECLARE
    k skep_session_kinds;
    before skep_session_workers;
    w skep_session_workers;
BEGIN
    SELECT * INTO STRICT k FROM skep_session_kinds AS t WHERE t.id = of_kind;
    k.counted := k.live;
    FOR before IN SELECT * FROM skep_session_workers AS t WHERE t.kind = of_kind LOOP
        w := skep_session_place(before, k);
        IF w.duty <> before.duty THEN
            PERFORM skep_session_hint('w' || w.number);
        END IF;
        IF w IS DISTINCT FROM before THEN
            k := skep_session_count(skep_session_count(k, before, -1), w, 1);
            PERFORM skep_session_save_worker(before, w);
        END IF;
    END LOOP;
    PERFORM skep_session_save_kind(k);
END
$$;

-- The due points depend on how many workers there are.
CREATE FUNCTION skep_session_rewindow(of_kind BIGINT) RETURNS VOID LANGUAGE plpgsql AS $$
DECLARE
    k skep_session_kinds;
BEGIN
    SELECT * INTO STRICT k FROM skep_session_kinds AS t WHERE t.id = of_kind;
    IF k.live = k.counted THEN
        RETURN;
    END IF;
    IF skep_session_window(k, k.live) <> skep_session_window(k, k.counted)
        AND k.lifetime_max <> 0 AND k.policy <> 'least-loaded'
    THEN
        PERFORM skep_session_settle_all(of_kind);
    ELSE
        UPDATE skep_session_kinds AS t SET counted = t.live WHERE t.id = of_kind;
    END IF;
END
$$;

-- ── Recycling ─────────────────────────────────────────

-- After anything that wears a worker or frees it.
CREATE FUNCTION skep_session_wear(now BIGINT, w skep_session_workers)
RETURNS skep_session_workers LANGUAGE plpgsql AS $$
DECLARE
    k skep_session_kinds;
    is_worn BOOLEAN;
BEGIN
    SELECT * INTO STRICT k FROM skep_session_kinds AS t WHERE t.id = w.kind;
    IF w.step = 'draining' AND w.active = 0 THEN
        w.step := 'restarting';
        w.step_at := now;
    END IF;
    is_worn := skep_session_worn_out(k, w.lifetime) OR w.due_by IS NOT NULL;
    IF is_worn THEN
        w.waiting_since := coalesce(w.waiting_since, now);
    ELSE
        w.waiting_since := NULL;
        w.hold := FALSE;
    END IF;
    IF k.policy <> 'budgeted' AND is_worn AND w.permit_since IS NULL
        AND NOT (w.lost OR w.removed OR w.down)
        AND w.failures IS DISTINCT FROM 0
    THEN
        w.permit_since := now;
        w.step := CASE WHEN w.successor THEN 'succeeding' WHEN w.active = 0 THEN 'restarting'
            ELSE 'draining' END;
        w.step_at := CASE w.step WHEN 'draining' THEN now + k.drain_max_ms ELSE now END;
    END IF;
    RETURN skep_session_settle(w);
END
$$;

-- Gives permits to those who are due and idle, while the budget lasts.
CREATE FUNCTION skep_session_grant_permits(now BIGINT, of_kind BIGINT) RETURNS VOID
LANGUAGE plpgsql AS $$
DECLARE
    k skep_session_kinds;
    w skep_session_workers;
BEGIN
    LOOP
        SELECT * INTO w FROM skep_session_workers AS t WHERE t.kind = of_kind AND t.ripe
        ORDER BY t.lifetime DESC, t.number LIMIT 1;
        EXIT WHEN NOT FOUND;
        SELECT * INTO STRICT k FROM skep_session_kinds AS t WHERE t.id = of_kind;
        EXIT WHEN k.permits >= skep_session_budget(k);
        w.permit_since := now;
        w.step := CASE WHEN w.successor THEN 'succeeding' ELSE 'restarting' END;
        w.step_at := now;
        PERFORM skep_session_settle(w);
    END LOOP;
END
$$;

-- Takes a worker's permit back, because it has returned or will not.
CREATE FUNCTION skep_session_release_permit(
    now BIGINT, w skep_session_workers, has_returned BOOLEAN
) RETURNS skep_session_workers LANGUAGE plpgsql AS $$
BEGIN
    IF w.permit_since IS NOT NULL THEN
        UPDATE skep_session_kinds AS t SET out_ms = t.out_ms + now - w.permit_since,
            recycled = t.recycled + has_returned::INTEGER
        WHERE t.id = w.kind;
    END IF;
    w.permit_since := NULL;
    w.step := NULL;
    w.step_at := NULL;
    RETURN w;
END
$$;

-- Tells the gateways to close a worker's sessions: all, those on the current incarnation, or those
-- on the ones that are leaving. They stay on record until that is done.
CREATE FUNCTION skep_session_end_sessions(w skep_session_workers, which TEXT, why TEXT)
RETURNS VOID LANGUAGE plpgsql AS $$
DECLARE
    told BIGINT;
BEGIN
    IF w.active + w.leaving = 0 THEN
        RETURN;
    END IF;
    FOR told IN
        WITH ended AS (
            UPDATE skep_session_sessions AS s SET ending = why, news = TRUE
            WHERE s.worker = w.number AND s.ending IS NULL
                AND (which = 'all' OR (which = 'current') = (s.incarnation = w.incarnation))
            RETURNING s.gateway
        )
        SELECT DISTINCT e.gateway FROM ended AS e
    LOOP
        PERFORM skep_session_hint('g' || told);
    END LOOP;
END
$$;

-- Workers of a kind have been silent for too long. Their kind and shapes are counted once for all of
-- them, because after an outage they may be everybody: each version of a row that a transaction
-- writes makes its next look at that row slower.
CREATE FUNCTION skep_session_lose(now BIGINT, of_kind BIGINT, numbers BIGINT[]) RETURNS VOID
LANGUAGE plpgsql AS $$
DECLARE
    k skep_session_kinds;
    before skep_session_workers;
    w skep_session_workers;
BEGIN
    SELECT * INTO STRICT k FROM skep_session_kinds AS t WHERE t.id = of_kind;
    FOR before IN SELECT * FROM skep_session_workers AS t WHERE t.number = ANY (numbers) LOOP
        w := skep_session_release_permit(now, before, FALSE);
        PERFORM skep_session_end_sessions(w, 'all', 'worker-lost');
        w.lost := TRUE;
        w := skep_session_place(w, k);
        IF w.duty <> before.duty THEN
            PERFORM skep_session_hint('w' || w.number);
        END IF;
        k := skep_session_count(skep_session_count(k, before, -1), w, 1);
        PERFORM skep_session_save_worker(before, w);
    END LOOP;
    UPDATE skep_session_shapes AS s SET live = s.live - lost.count
    FROM (
        SELECT t.shape, count(*) AS count FROM skep_session_workers AS t
        WHERE t.number = ANY (numbers) GROUP BY t.shape
    ) AS lost
    WHERE s.id = lost.shape;
    PERFORM skep_session_save_kind(k), skep_session_touch(of_kind);
END
$$;

-- Forgets a worker. Nothing is on it.
CREATE FUNCTION skep_session_forget(w skep_session_workers) RETURNS VOID LANGUAGE plpgsql AS $$
DECLARE
    k skep_session_kinds;
BEGIN
    DELETE FROM skep_session_workers AS t WHERE t.number = w.number;
    SELECT * INTO STRICT k FROM skep_session_kinds AS t WHERE t.id = w.kind;
    PERFORM skep_session_save_kind(skep_session_count(k, w, -1));
    PERFORM skep_session_leave_shape(w);
    INSERT INTO skep_session_free_numbers (number) VALUES (w.number);
    PERFORM skep_session_touch(w.kind);
END
$$;
