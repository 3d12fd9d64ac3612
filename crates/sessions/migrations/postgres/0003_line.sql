-- The table of sessions: who gets what, and in which order. Each function is one of
-- skep_policy::sessions; that is where the why is written.

-- Whether a worker of this shape will do.
CREATE FUNCTION skep_session_fits(
    labels TEXT[], version TEXT, shape_labels TEXT[], shape_version TEXT
) RETURNS BOOLEAN LANGUAGE sql IMMUTABLE
RETURN (version = '' OR shape_version = '' OR version = shape_version) AND labels <@ shape_labels;

-- The best worker of a standing: the first of each shape that fits, and of these the first.
CREATE FUNCTION skep_session_best(
    of_kind BIGINT, of_standing TEXT, of_labels TEXT[], of_version TEXT, avoid BIGINT
) RETURNS skep_session_workers LANGUAGE plpgsql STABLE AS $$
DECLARE
    w skep_session_workers;
BEGIN
    SELECT first.* INTO w
    FROM skep_session_shapes AS s,
        LATERAL (
            SELECT * FROM skep_session_workers AS t
            WHERE t.kind = of_kind AND t.shape = s.id AND t.standing = of_standing
                AND t.number <> avoid
            ORDER BY t.rank, t.number LIMIT 1
        ) AS first
    WHERE s.kind = of_kind AND s.live > 0
        AND skep_session_fits(of_labels, of_version, s.labels, s.version)
    ORDER BY first.rank, first.number LIMIT 1;
    RETURN w;
END
$$;

-- The worker that a session gets, if one is free. Whoever turns out to be silent is lost on the
-- way. Nobody has number 0, so to avoid that is to avoid nobody.
CREATE FUNCTION skep_session_pick(
    now BIGINT, of_kind BIGINT, of_labels TEXT[], of_version TEXT, avoid BIGINT
) RETURNS skep_session_workers LANGUAGE plpgsql AS $$
DECLARE
    patience CONSTANT BIGINT := (SELECT t.heartbeat_ms FROM skep_session_kinds AS t
        WHERE t.id = of_kind);
    w skep_session_workers;
BEGIN
    LOOP
        w := skep_session_best(of_kind, 'ready', of_labels, of_version, avoid);
        IF w.number IS NULL THEN
            w := skep_session_best(of_kind, 'due', of_labels, of_version, avoid);
        END IF;
        IF w.number IS NULL OR now - w.heard <= patience THEN
            RETURN w;
        END IF;
        -- So are perhaps those who come next, up to the first that is not.
        PERFORM skep_session_lose(now, of_kind, ARRAY(
            SELECT next.number FROM (
                SELECT t.number, bool_and(now - t.heard > patience)
                    OVER (ORDER BY t.rank, t.number) AS is_silent
                FROM skep_session_shapes AS s
                JOIN skep_session_workers AS t ON t.kind = of_kind AND t.shape = s.id
                    AND t.standing = w.standing AND t.number <> avoid
                WHERE s.kind = of_kind
                    AND skep_session_fits(of_labels, of_version, s.labels, s.version)
            ) AS next
            WHERE next.is_silent
        ));
    END LOOP;
END
$$;

-- Counts a session that begins on a worker.
CREATE FUNCTION skep_session_begin(now BIGINT, w skep_session_workers)
RETURNS skep_session_workers LANGUAGE plpgsql AS $$
BEGIN
    w.lifetime := w.lifetime + 1;
    w.active := w.active + 1;
    w := skep_session_wear(now, w);
    UPDATE skep_session_kinds AS t SET started = t.started + 1 WHERE t.id = w.kind;
    RETURN w;
END
$$;

CREATE FUNCTION skep_session_seat(w skep_session_workers, was_due BOOLEAN, standings BIGINT[])
RETURNS JSONB LANGUAGE sql IMMUTABLE
RETURN jsonb_build_object('worker', w.number, 'name', w.name, 'start', w.start, 'url', w.url,
    'lifetime', w.lifetime, 'active', w.active, 'slots', w.slots, 'due', was_due,
    'standings', standings);

-- The seat as it is now.
CREATE FUNCTION skep_session_seat_of(on_worker BIGINT, was_due BOOLEAN) RETURNS JSONB
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN (
        SELECT skep_session_seat(w, was_due, k.standings)
        FROM skep_session_workers AS w JOIN skep_session_kinds AS k ON k.id = w.kind
        WHERE w.number = on_worker
    );
END
$$;

CREATE FUNCTION skep_session_count_key(of_key TEXT) RETURNS VOID LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO skep_session_keys AS t (key, sessions) VALUES (of_key, 1)
    ON CONFLICT (key) DO UPDATE SET sessions = t.sessions + 1;
END
$$;

CREATE FUNCTION skep_session_uncount_key(of_key TEXT) RETURNS VOID LANGUAGE plpgsql AS $$
BEGIN
    UPDATE skep_session_keys AS t SET sessions = t.sessions - 1
    WHERE t.key = of_key AND t.sessions > 1;
    IF NOT FOUND THEN
        DELETE FROM skep_session_keys AS t WHERE t.key = of_key;
    END IF;
END
$$;

-- Puts a session in the line; how many wait then.
CREATE FUNCTION skep_session_wait(
    now BIGINT, of_gateway BIGINT, of_ticket BIGINT, of_kind BIGINT, of_key TEXT,
    of_labels TEXT[], of_version TEXT
) RETURNS BIGINT LANGUAGE plpgsql AS $$
DECLARE
    k skep_session_kinds;
    its_rank BIGINT;
    its_want BIGINT;
BEGIN
    UPDATE skep_session_kinds AS t SET arrivals = t.arrivals + 1, waiting = t.waiting + 1
    WHERE t.id = of_kind RETURNING * INTO STRICT k;
    INSERT INTO skep_session_turns AS t (kind, key, last, waiting)
    VALUES (of_kind, of_key, k.served + 1, 1)
    ON CONFLICT (kind, key) DO UPDATE
        SET last = greatest(t.last, k.served) + 1, waiting = t.waiting + 1
    RETURNING t.last INTO its_rank;
    INSERT INTO skep_session_wants AS t (kind, labels, version, waiting)
    VALUES (of_kind, of_labels, of_version, 1)
    ON CONFLICT (kind, labels, version) DO UPDATE SET waiting = t.waiting + 1
    RETURNING t.id INTO its_want;
    INSERT INTO skep_session_sessions (gateway, ticket, kind, key, since, news, want, rank, arrival)
    VALUES (of_gateway, of_ticket, of_kind, of_key, now, FALSE, its_want, its_rank, k.arrivals);
    PERFORM skep_session_count_key(of_key);
    RETURN k.waiting;
END
$$;

-- Takes a session out of the line.
CREATE FUNCTION skep_session_leave_line(s skep_session_sessions) RETURNS VOID
LANGUAGE plpgsql AS $$
BEGIN
    UPDATE skep_session_wants AS t SET waiting = t.waiting - 1
    WHERE t.id = s.want AND t.waiting > 1;
    IF NOT FOUND THEN
        DELETE FROM skep_session_wants AS t WHERE t.id = s.want;
    END IF;
    UPDATE skep_session_turns AS t SET waiting = t.waiting - 1
    WHERE t.kind = s.kind AND t.key = s.key AND t.waiting > 1;
    IF NOT FOUND THEN
        DELETE FROM skep_session_turns AS t WHERE t.kind = s.kind AND t.key = s.key;
    END IF;
    UPDATE skep_session_kinds AS t SET waiting = t.waiting - 1 WHERE t.id = s.kind;
END
$$;

-- Gives what is free to those who wait, in the order of the line. One turn serves the first whose
-- want somebody fits; whether it did is whether there is another turn.
CREATE FUNCTION skep_session_serve_line(now BIGINT, of_kind BIGINT) RETURNS VOID
LANGUAGE plpgsql AS $$
DECLARE
    head RECORD;
    s skep_session_sessions;
    w skep_session_workers;
    is_served BOOLEAN := TRUE;
BEGIN
    WHILE is_served AND EXISTS (SELECT FROM skep_session_kinds AS k
        WHERE k.id = of_kind AND k.waiting > 0 AND k.free > 0)
    LOOP
        is_served := FALSE;
        FOR head IN
            SELECT first.gateway, first.ticket, want.labels, want.version
            FROM skep_session_wants AS want,
                LATERAL (
                    SELECT * FROM skep_session_sessions AS t WHERE t.want = want.id
                    ORDER BY t.rank, t.arrival LIMIT 1
                ) AS first
            WHERE want.kind = of_kind
            ORDER BY first.rank, first.arrival
        LOOP
            w := skep_session_pick(now, of_kind, head.labels, head.version, 0);
            CONTINUE WHEN w.number IS NULL;
            SELECT * INTO STRICT s FROM skep_session_sessions AS t
            WHERE t.gateway = head.gateway AND t.ticket = head.ticket;
            PERFORM skep_session_leave_line(s);
            UPDATE skep_session_kinds AS t SET served = greatest(t.served, s.rank)
            WHERE t.id = of_kind;
            UPDATE skep_session_sessions AS t SET worker = w.number, incarnation = w.incarnation,
                due = w.due, want = NULL, rank = NULL, arrival = NULL, since = now,
                news = TRUE
            WHERE t.gateway = s.gateway AND t.ticket = s.ticket;
            PERFORM skep_session_begin(now, w);
            PERFORM skep_session_hint('g' || s.gateway);
            is_served := TRUE;
            EXIT;
        END LOOP;
    END LOOP;
END
$$;

-- A session has ended, or was given up.
CREATE FUNCTION skep_session_close(now BIGINT, of_gateway BIGINT, of_ticket BIGINT, how TEXT)
RETURNS VOID LANGUAGE plpgsql AS $$
DECLARE
    s skep_session_sessions;
    w skep_session_workers;
BEGIN
    DELETE FROM skep_session_sessions AS t WHERE t.gateway = of_gateway AND t.ticket = of_ticket
    RETURNING * INTO s;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    PERFORM skep_session_uncount_key(s.key);
    PERFORM skep_session_touch(s.kind);
    IF s.worker IS NULL THEN
        PERFORM skep_session_leave_line(s);
        RETURN;
    END IF;
    SELECT * INTO STRICT w FROM skep_session_workers AS t WHERE t.number = s.worker;
    -- It may have become one of another kind since.
    PERFORM skep_session_touch(w.kind);
    IF w.incarnation = s.incarnation THEN
        w.active := w.active - 1;
        IF how <> 'ended' THEN
            w.lifetime := greatest(w.lifetime - 1, 0);
        END IF;
        IF how = 'failed' AND w.failures IS NULL THEN
            w.failures := 1;
            w.probe_at := now + 500;
        END IF;
    ELSE
        w.leaving := w.leaving - 1;
    END IF;
    w := skep_session_wear(now, w);
    IF w.parting AND w.active + w.leaving = 0 THEN
        PERFORM skep_session_forget(w);
    END IF;
END
$$;

-- What follows from a step.
CREATE FUNCTION skep_session_finish(now BIGINT) RETURNS VOID LANGUAGE plpgsql AS $$
DECLARE
    touched TEXT;
    kind BIGINT;
BEGIN
    LOOP
        touched := ltrim(current_setting('skep_session.touched'));
        EXIT WHEN touched = '';
        PERFORM set_config('skep_session.touched', '', TRUE);
        FOREACH kind IN ARRAY ARRAY(
            SELECT DISTINCT t.kind::BIGINT FROM string_to_table(touched, ' ') AS t (kind)
        ) LOOP
            PERFORM skep_session_rewindow(kind);
            PERFORM skep_session_serve_line(now, kind);
            PERFORM skep_session_grant_permits(now, kind);
        END LOOP;
    END LOOP;
END
$$;
