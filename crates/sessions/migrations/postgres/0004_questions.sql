-- The table of sessions: what gateways and workers ask. Questions and answers are those of
-- skep_policy::sessions as JSON.

-- ── Gateways ───────────────────────────────────────────

-- What to answer a gateway that is not in, or whose link is not the present one; NULL if all is
-- well. A step that was delayed until its gateway had joined again ends here.
CREATE FUNCTION skep_session_stranger(of_gateway BIGINT, of_link BIGINT) RETURNS TEXT
LANGUAGE plpgsql STABLE AS $$
DECLARE
    present BIGINT;
BEGIN
    SELECT g.link INTO present FROM skep_session_gateways AS g WHERE g.id = of_gateway;
    RETURN CASE WHEN present = of_link THEN NULL WHEN present > of_link THEN 'replaced'
        ELSE 'unknown' END;
END
$$;

CREATE FUNCTION skep_session_tell(of_gateway BIGINT, of_ticket BIGINT) RETURNS VOID
LANGUAGE plpgsql AS $$
BEGIN
    UPDATE skep_session_sessions AS s SET news = TRUE
    WHERE s.gateway = of_gateway AND s.ticket = of_ticket AND NOT s.news;
    PERFORM skep_session_hint('g' || of_gateway);
END
$$;

-- A gateway carries this session; whether its worker is known.
CREATE FUNCTION skep_session_carry(now BIGINT, of_gateway BIGINT, one JSONB) RETURNS BOOLEAN
LANGUAGE plpgsql AS $$
DECLARE
    of_ticket CONSTANT BIGINT := one ->> 'ticket';
    s skep_session_sessions;
    w skep_session_workers;
BEGIN
    SELECT * INTO s FROM skep_session_sessions AS t
    WHERE t.gateway = of_gateway AND t.ticket = of_ticket;
    -- The table may have been brought back from an old copy, and have it on another program.
    IF EXISTS (SELECT FROM skep_session_workers AS t
        WHERE t.number = s.worker AND t.name = one ->> 'worker'
            AND (t.incarnation = s.incarnation) = (t.start = one ->> 'start'))
    THEN
        IF s.ending IS NOT NULL THEN
            PERFORM skep_session_tell(of_gateway, of_ticket);
        END IF;
        RETURN TRUE;
    END IF;
    PERFORM skep_session_close(now, of_gateway, of_ticket, 'ended');
    SELECT * INTO w FROM skep_session_workers AS t WHERE t.name = one ->> 'worker';
    IF w.start IS DISTINCT FROM one ->> 'start' THEN
        RETURN FALSE;
    END IF;
    INSERT INTO skep_session_sessions
        (gateway, ticket, kind, key, since, news, worker, incarnation, due)
    VALUES (of_gateway, of_ticket, w.kind, one ->> 'key', now, FALSE, w.number, w.incarnation,
        FALSE);
    PERFORM skep_session_count_key(one ->> 'key');
    w.active := w.active + 1;
    IF w.step = 'restarting' THEN
        -- It was sent away because its gateway was thought dead; perhaps it has not gone yet.
        w.step := 'draining';
        w.step_at := now + (SELECT k.drain_max_ms FROM skep_session_kinds AS k
            WHERE k.id = w.kind);
    END IF;
    PERFORM skep_session_wear(now, w);
    PERFORM skep_session_touch(w.kind);
    RETURN TRUE;
END
$$;

CREATE FUNCTION skep_session_join(now BIGINT, ask JSONB) RETURNS JSONB LANGUAGE plpgsql AS $$
DECLARE
    of_gateway CONSTANT BIGINT := ask ->> 'gateway';
    of_link CONSTANT BIGINT := ask ->> 'link';
    said BIGINT[];
    dropped BIGINT;
    one JSONB;
    unplaced JSONB := '[]';
BEGIN
    INSERT INTO skep_session_gateways AS g (id, node, link, ttl, heard, steady)
    VALUES (of_gateway, ask ->> 'node', of_link, (ask ->> 'ttl_ms')::BIGINT, now, now)
    ON CONFLICT (id) DO UPDATE SET node = excluded.node, link = excluded.link, ttl = excluded.ttl,
        heard = now, steady = now WHERE g.link <= excluded.link;
    IF NOT FOUND THEN
        RETURN '{"answer": "replaced"}';
    END IF;
    UPDATE skep_session_sessions AS s SET news = FALSE WHERE s.gateway = of_gateway AND s.news;
    said := ARRAY(
        SELECT (c.one ->> 'ticket')::BIGINT FROM jsonb_array_elements(ask -> 'carried') AS c (one)
        UNION ALL
        SELECT w.ticket::BIGINT FROM jsonb_array_elements_text(ask -> 'waiting') AS w (ticket)
    );
    FOR dropped IN
        SELECT s.ticket FROM skep_session_sessions AS s
        LEFT JOIN unnest(said) AS kept (ticket) ON kept.ticket = s.ticket
        WHERE s.gateway = of_gateway AND kept.ticket IS NULL
        ORDER BY s.ticket
    LOOP
        PERFORM skep_session_close(now, of_gateway, dropped, 'ended');
    END LOOP;
    PERFORM skep_session_tell(of_gateway, s.ticket)
    FROM jsonb_array_elements_text(ask -> 'waiting') AS w (ticket)
    JOIN skep_session_sessions AS s
        ON s.gateway = of_gateway AND s.ticket = w.ticket::BIGINT
            AND (s.worker IS NOT NULL OR s.ending IS NOT NULL);
    FOR one IN SELECT c.one FROM jsonb_array_elements(ask -> 'carried') AS c (one) LOOP
        IF NOT skep_session_carry(now, of_gateway, one) THEN
            unplaced := unplaced || (one -> 'ticket');
        END IF;
    END LOOP;
    RETURN jsonb_build_object('answer', 'joined', 'unplaced', unplaced);
END
$$;

CREATE FUNCTION skep_session_drop_gateway(now BIGINT, of_gateway BIGINT) RETURNS BOOLEAN
LANGUAGE plpgsql AS $$
DECLARE
    dropped BIGINT;
BEGIN
    FOR dropped IN SELECT s.ticket FROM skep_session_sessions AS s WHERE s.gateway = of_gateway
        ORDER BY s.ticket LIMIT 500
    LOOP
        PERFORM skep_session_close(now, of_gateway, dropped, 'ended');
    END LOOP;
    IF EXISTS (SELECT FROM skep_session_sessions AS s WHERE s.gateway = of_gateway) THEN
        UPDATE skep_session_gateways AS g SET heard = 0, link = g.link + 1
        WHERE g.id = of_gateway;
        RETURN FALSE;
    END IF;
    DELETE FROM skep_session_gateways AS g WHERE g.id = of_gateway;
    RETURN TRUE;
END
$$;

-- What a gateway must know, once.
CREATE FUNCTION skep_session_take_news(of_gateway BIGINT) RETURNS JSONB LANGUAGE plpgsql AS $$
DECLARE
    news CONSTANT JSONB := (
        SELECT jsonb_agg(jsonb_build_object('ticket', s.ticket, 'what',
            CASE WHEN s.ending IS NOT NULL THEN jsonb_build_object('end', s.ending)
                WHEN EXISTS (SELECT FROM skep_session_workers AS w
                    WHERE w.number = s.worker AND w.incarnation = s.incarnation)
                THEN jsonb_build_object('seated', skep_session_seat_of(s.worker, s.due))
                ELSE '{"end": "worker-restarted"}' END) ORDER BY s.ticket)
        FROM skep_session_sessions AS s
        WHERE s.gateway = of_gateway AND s.news
            AND (s.ending IS NOT NULL OR s.worker IS NOT NULL)
    );
BEGIN
    IF news IS NOT NULL THEN
        UPDATE skep_session_sessions AS s SET news = FALSE WHERE s.gateway = of_gateway AND s.news;
        PERFORM skep_session_keep();
    END IF;
    RETURN coalesce(news, '[]');
END
$$;

CREATE FUNCTION skep_session_beat(now BIGINT, of_gateway BIGINT) RETURNS JSONB
LANGUAGE plpgsql AS $$
DECLARE
    me skep_session_gateways;
    steady_for BIGINT;
    dead BIGINT;
    reaped BIGINT := 0;
    number BIGINT;
    probe JSONB;
    probes JSONB := '[]';
BEGIN
    UPDATE skep_session_gateways AS g
    SET heard = now, steady = CASE WHEN now - g.heard > g.ttl / 2 THEN now ELSE g.steady END
    WHERE g.id = of_gateway RETURNING * INTO STRICT me;
    steady_for := now - me.steady;
    FOR dead IN SELECT g.id FROM skep_session_gateways AS g
        WHERE now - g.heard > g.ttl AND steady_for >= g.ttl ORDER BY g.id
    LOOP
        PERFORM skep_session_keep();
        IF skep_session_drop_gateway(now, dead) THEN
            reaped := reaped + 1;
        END IF;
    END LOOP;
    FOREACH number IN ARRAY ARRAY(
        SELECT w.number FROM skep_session_workers AS w WHERE w.timer <= now
        ORDER BY w.timer, w.number LIMIT 256
    ) LOOP
        probe := skep_session_look_after(now, number);
        IF probe IS NOT NULL THEN
            probes := probes || probe;
        END IF;
    END LOOP;
    PERFORM skep_session_finish(now);
    RETURN jsonb_build_object('answer', 'beaten', 'news', skep_session_take_news(of_gateway),
        'probes', probes, 'reaped', reaped);
END
$$;

CREATE FUNCTION skep_session_checkout(now BIGINT, ask JSONB) RETURNS JSONB LANGUAGE plpgsql AS $$
DECLARE
    of_gateway CONSTANT BIGINT := ask ->> 'gateway';
    of_ticket CONSTANT BIGINT := ask ->> 'ticket';
    of_key CONSTANT TEXT := ask ->> 'key';
    key_max CONSTANT BIGINT := ask ->> 'key_max';
    of_labels CONSTANT TEXT[] := ARRAY(SELECT jsonb_array_elements_text(ask -> 'want' -> 'labels'));
    of_version CONSTANT TEXT := coalesce(ask -> 'want' ->> 'version', '');
    s skep_session_sessions;
    k skep_session_kinds;
    w skep_session_workers;
    was_due BOOLEAN;
BEGIN
    SELECT * INTO s FROM skep_session_sessions AS t
    WHERE t.gateway = of_gateway AND t.ticket = of_ticket;
    IF s.ending IS NOT NULL THEN
        -- That it is over comes with the news.
        PERFORM skep_session_tell(of_gateway, of_ticket);
        RETURN jsonb_build_object('answer', 'waiting', 'waiting',
            (SELECT t.waiting FROM skep_session_kinds AS t WHERE t.id = s.kind));
    END IF;
    IF s.worker IS NOT NULL THEN
        IF EXISTS (SELECT FROM skep_session_workers AS t
            WHERE t.number = s.worker AND t.incarnation = s.incarnation)
        THEN
            RETURN skep_session_seat_of(s.worker, s.due) || '{"answer": "seated"}';
        END IF;
        -- Its seat is of no use any more, and nobody has heard of it: it asks anew.
        PERFORM skep_session_close(now, of_gateway, of_ticket, 'unused');
        PERFORM skep_session_finish(now);
    END IF;
    IF s.want IS NOT NULL THEN
        RETURN jsonb_build_object('answer', 'waiting', 'waiting',
            (SELECT t.waiting FROM skep_session_kinds AS t WHERE t.id = s.kind));
    END IF;
    SELECT * INTO k FROM skep_session_kinds AS t WHERE t.name = ask ->> 'kind';
    IF NOT FOUND THEN
        RETURN '{"answer": "unconfigured"}';
    END IF;
    IF key_max <> 0 AND key_max <=
        (SELECT t.sessions FROM skep_session_keys AS t WHERE t.key = of_key)
    THEN
        RETURN '{"answer": "refused", "why": "key_limit"}';
    END IF;
    w := skep_session_pick(now, k.id, of_labels, of_version,
        coalesce((ask ->> 'avoid')::BIGINT, 0));
    -- Picking may have lost somebody.
    SELECT * INTO STRICT k FROM skep_session_kinds AS t WHERE t.id = k.id;
    IF w.number IS NOT NULL THEN
        was_due := w.due;
        INSERT INTO skep_session_sessions
            (gateway, ticket, kind, key, since, news, worker, incarnation, due)
        VALUES (of_gateway, of_ticket, k.id, of_key, now, FALSE, w.number, w.incarnation, was_due);
        PERFORM skep_session_count_key(of_key);
        w := skep_session_begin(now, w);
        PERFORM skep_session_touch(k.id);
        RETURN skep_session_seat(w, was_due, k.standings) || '{"answer": "seated"}';
    END IF;
    IF k.live = 0 THEN
        RETURN '{"answer": "refused", "why": "no_workers"}';
    END IF;
    IF NOT EXISTS (SELECT FROM skep_session_shapes AS t WHERE t.kind = k.id AND t.live > 0
        AND skep_session_fits(of_labels, of_version, t.labels, t.version))
    THEN
        RETURN jsonb_build_object('answer', 'refused', 'why', 'no_match',
            'labels', to_jsonb(ARRAY(SELECT DISTINCT unnest(t.labels)
                FROM skep_session_shapes AS t WHERE t.kind = k.id AND t.live > 0)),
            'versions', to_jsonb(ARRAY(SELECT DISTINCT t.version
                FROM skep_session_shapes AS t
                WHERE t.kind = k.id AND t.live > 0 AND t.version <> '')));
    END IF;
    -- The line knows nothing of who is to be avoided.
    IF NOT (ask ->> 'wait')::BOOLEAN OR ask ->> 'avoid' IS NOT NULL THEN
        RETURN '{"answer": "refused", "why": "busy"}';
    END IF;
    IF k.waiting >= k.waiting_max THEN
        RETURN '{"answer": "refused", "why": "line_full"}';
    END IF;
    RETURN jsonb_build_object('answer', 'waiting', 'waiting',
        skep_session_wait(now, of_gateway, of_ticket, k.id, of_key, of_labels, of_version));
END
$$;

-- ── Workers ────────────────────────────────────────────

CREATE FUNCTION skep_session_incarnation() RETURNS BIGINT LANGUAGE plpgsql AS $$
DECLARE
    given BIGINT;
BEGIN
    UPDATE skep_session_meta AS m SET incarnations = m.incarnations + 1
    RETURNING m.incarnations INTO STRICT given;
    RETURN given;
END
$$;

-- A record for a worker that is not known, before it is settled.
CREATE FUNCTION skep_session_enlist(now BIGINT, of_kind BIGINT, ask JSONB)
RETURNS skep_session_workers LANGUAGE plpgsql AS $$
DECLARE
    w skep_session_workers;
BEGIN
    DELETE FROM skep_session_free_numbers AS f
    WHERE f.number = (SELECT min(t.number) FROM skep_session_free_numbers AS t)
    RETURNING f.number INTO w.number;
    IF w.number IS NULL THEN
        UPDATE skep_session_meta AS m SET numbers = m.numbers + 1
        RETURNING m.numbers INTO STRICT w.number;
    END IF;
    w.name := ask ->> 'name';
    w.kind := of_kind;
    w.start := ask ->> 'start';
    w.incarnation := skep_session_incarnation();
    w.lifetime := 0;
    w.active := 0;
    w.leaving := 0;
    w.fresh := NOT (ask ->> 'recycled')::BOOLEAN;
    w.down := FALSE;
    w.drained := FALSE;
    w.hold := FALSE;
    IF (ask ->> 'lifetime')::BIGINT > 0 THEN
        w.failures := 0;
        w.probe_at := now + 2500;
    END IF;
    w.since := now;
    w.duty := 'serve';
    RETURN w;
END
$$;

-- The same program says again what it is.
CREATE FUNCTION skep_session_renew(now BIGINT, w skep_session_workers, ask JSONB)
RETURNS skep_session_workers LANGUAGE plpgsql AS $$
DECLARE
    its_labels CONSTANT TEXT[] :=
        ARRAY(SELECT jsonb_array_elements_text(ask -> 'shape' -> 'labels'));
    its_version CONSTANT TEXT := coalesce(ask -> 'shape' ->> 'version', '');
BEGIN
    SELECT s.id INTO w.shape FROM skep_session_shapes AS s
    WHERE s.kind = w.kind AND s.labels = its_labels AND s.version = its_version;
    IF NOT FOUND THEN
        INSERT INTO skep_session_shapes AS s (kind, labels, version, members, live)
        VALUES (w.kind, its_labels, its_version, 0, 0) RETURNING s.id INTO w.shape;
    END IF;
    w.slots := coalesce((ask ->> 'slots')::BIGINT,
        (SELECT k.slots_default FROM skep_session_kinds AS k WHERE k.id = w.kind));
    w.url := ask ->> 'url';
    w.successor := (ask ->> 'successor')::BOOLEAN;
    w.lifetime := greatest(w.lifetime, (ask ->> 'lifetime')::BIGINT);
    w.heard := now;
    w.lost := FALSE;
    w.removed := FALSE;
    w.parting := FALSE;
    RETURN w;
END
$$;

-- Another program under the same name.
CREATE FUNCTION skep_session_begin_life(now BIGINT, w skep_session_workers, ask JSONB)
RETURNS skep_session_workers LANGUAGE plpgsql AS $$
DECLARE
    is_recycled CONSTANT BOOLEAN := (ask ->> 'recycled')::BOOLEAN;
BEGIN
    IF w.step = 'succeeding' AND is_recycled THEN
        w.step := 'succeeded';
        w.step_at := now + (SELECT k.drain_max_ms FROM skep_session_kinds AS k
            WHERE k.id = w.kind);
    ELSE
        PERFORM skep_session_end_sessions(w, 'all', 'worker-restarted');
        w := skep_session_release_permit(now, w, is_recycled);
    END IF;
    w.incarnation := skep_session_incarnation();
    w.leaving := w.leaving + w.active;
    w.active := 0;
    w.lifetime := 0;
    w.start := ask ->> 'start';
    w.fresh := NOT is_recycled;
    w.down := FALSE;
    w.hold := FALSE;
    w.due_by := NULL;
    -- The table may have known an older life of it: gateways may carry something on it.
    w.failures := CASE WHEN (ask ->> 'lifetime')::BIGINT > 0 THEN 0 END;
    w.probe_at := CASE WHEN (ask ->> 'lifetime')::BIGINT > 0 THEN now + 2500 END;
    w.waiting_since := NULL;
    w.since := now;
    RETURN skep_session_renew(now, w, ask);
END
$$;

CREATE FUNCTION skep_session_register(now BIGINT, ask JSONB) RETURNS JSONB LANGUAGE plpgsql AS $$
DECLARE
    k skep_session_kinds;
    w skep_session_workers;
BEGIN
    SELECT * INTO k FROM skep_session_kinds AS t WHERE t.name = ask ->> 'kind';
    IF NOT FOUND THEN
        RETURN '{"answer": "unconfigured"}';
    END IF;
    SELECT * INTO w FROM skep_session_workers AS t WHERE t.name = ask ->> 'name';
    IF NOT FOUND THEN
        w := skep_session_enlist(now, k.id, ask);
    END IF;
    IF w.start = ask ->> 'start' AND w.removed AND NOT w.parting THEN
        RETURN '{"answer": "replaced"}';
    END IF;
    IF w.kind <> k.id THEN
        PERFORM skep_session_touch(w.kind);
        w.kind := k.id;
    END IF;
    IF w.start = ask ->> 'start' THEN
        w := skep_session_renew(now, w, ask);
    ELSE
        w := skep_session_begin_life(now, w, ask);
    END IF;
    w := skep_session_wear(now, w);
    PERFORM skep_session_touch(k.id);
    RETURN jsonb_build_object('answer', 'registered', 'worker', w.number,
        'incarnation', w.incarnation, 'slots', w.slots, 'lifetime_max', k.lifetime_max);
END
$$;

CREATE FUNCTION skep_session_heartbeat(now BIGINT, ask JSONB) RETURNS JSONB LANGUAGE plpgsql AS $$
DECLARE
    of_incarnation CONSTANT BIGINT := ask ->> 'incarnation';
    w skep_session_workers;
    was_down BOOLEAN;
BEGIN
    SELECT * INTO w FROM skep_session_workers AS t WHERE t.name = ask ->> 'name';
    IF of_incarnation < w.incarnation THEN
        RETURN '{"answer": "replaced"}';
    END IF;
    IF w.number IS NULL OR of_incarnation > w.incarnation OR w.parting THEN
        RETURN '{"answer": "unknown"}';
    END IF;
    w.heard := now;
    IF NOT w.removed THEN
        w.lost := FALSE;
        w.lifetime := greatest(w.lifetime, (ask ->> 'lifetime')::BIGINT);
        w.due_by := ask ->> 'due';
        was_down := w.down;
        w.down := CASE ask ->> 'phase' WHEN 'serving' THEN FALSE
            WHEN 'restarting' THEN w.step IS DISTINCT FROM 'restarting' ELSE TRUE END;
        IF w.down AND NOT was_down THEN
            PERFORM skep_session_end_sessions(w, 'current', 'worker-down');
        END IF;
        IF (ask ->> 'old_gone')::BOOLEAN AND w.step = 'succeeded' THEN
            PERFORM skep_session_end_sessions(w, 'leaving', 'worker-restarted');
            w := skep_session_release_permit(now, w, TRUE);
        END IF;
    END IF;
    w := skep_session_wear(now, w);
    PERFORM skep_session_touch(w.kind);
    PERFORM skep_session_finish(now);
    RETURN (
        SELECT jsonb_build_object('answer', 'ordered', 'order', t.duty, 'lifetime', t.lifetime,
            'active', t.active, 'leaving', t.leaving)
        FROM skep_session_workers AS t WHERE t.number = w.number
    );
END
$$;

CREATE FUNCTION skep_session_remove(now BIGINT, ask JSONB) RETURNS JSONB LANGUAGE plpgsql AS $$
DECLARE
    w skep_session_workers;
BEGIN
    SELECT * INTO w FROM skep_session_workers AS t WHERE t.name = ask ->> 'name';
    IF NOT FOUND THEN
        RETURN '{"answer": "unknown"}';
    END IF;
    w := skep_session_release_permit(now, w, FALSE);
    PERFORM skep_session_end_sessions(w, 'all', 'worker-removed');
    w.removed := TRUE;
    w.parting := w.parting OR (ask ->> 'by_worker')::BOOLEAN;
    w := skep_session_settle(w);
    PERFORM skep_session_touch(w.kind);
    IF w.parting AND w.active + w.leaving = 0 THEN
        PERFORM skep_session_forget(w);
    END IF;
    RETURN '{"answer": "done"}';
END
$$;

CREATE FUNCTION skep_session_drain(ask JSONB) RETURNS JSONB LANGUAGE plpgsql AS $$
DECLARE
    w skep_session_workers;
BEGIN
    SELECT * INTO w FROM skep_session_workers AS t WHERE t.name = ask ->> 'name';
    IF NOT FOUND THEN
        RETURN '{"answer": "unknown"}';
    END IF;
    w.drained := (ask ->> 'drained')::BOOLEAN;
    PERFORM skep_session_settle(w);
    PERFORM skep_session_touch(w.kind);
    RETURN '{"answer": "done"}';
END
$$;

CREATE FUNCTION skep_session_probed(now BIGINT, ask JSONB) RETURNS JSONB LANGUAGE plpgsql AS $$
DECLARE
    w skep_session_workers;
BEGIN
    SELECT * INTO w FROM skep_session_workers AS t WHERE t.number = (ask ->> 'worker')::BIGINT;
    IF NOT FOUND THEN
        RETURN '{"answer": "unknown"}';
    END IF;
    IF w.incarnation <> (ask ->> 'incarnation')::BIGINT THEN
        RETURN '{"answer": "replaced"}';
    END IF;
    IF (ask ->> 'good')::BOOLEAN THEN
        w.failures := NULL;
        w.probe_at := NULL;
    ELSIF w.failures IS NOT NULL THEN
        w.failures := w.failures + 1;
        w.probe_at := now + least(500::BIGINT << least(w.failures - 1, 16)::INTEGER, 30000);
    END IF;
    PERFORM skep_session_wear(now, w);
    PERFORM skep_session_touch(w.kind);
    RETURN '{"answer": "done"}';
END
$$;

-- A worker that is held or asked to be recycled has waited long enough to become idle.
CREATE FUNCTION skep_session_lose_patience(now BIGINT, w skep_session_workers)
RETURNS skep_session_workers LANGUAGE plpgsql AS $$
DECLARE
    k skep_session_kinds;
BEGIN
    SELECT * INTO STRICT k FROM skep_session_kinds AS t WHERE t.id = w.kind;
    IF NOT (w.hold OR skep_session_worn_out(k, w.lifetime)) THEN
        w.hold := TRUE;
        w.waiting_since := now;
    ELSIF w.active > 0 AND k.permits < skep_session_budget(k) THEN
        w.permit_since := now;
        w.step := 'draining';
        w.step_at := NULL;
        PERFORM skep_session_end_sessions(w, 'current', 'drain-limit');
    ELSE
        w.waiting_since := greatest(now + 1000 - k.drain_max_ms, 0);
    END IF;
    RETURN w;
END
$$;

-- Does what is due for a worker now; whether it is to be asked if it answers.
CREATE FUNCTION skep_session_look_after(now BIGINT, of_number BIGINT) RETURNS JSONB
LANGUAGE plpgsql AS $$
DECLARE
    k skep_session_kinds;
    w skep_session_workers;
    probe JSONB;
BEGIN
    SELECT * INTO w FROM skep_session_workers AS t WHERE t.number = of_number;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    SELECT * INTO STRICT k FROM skep_session_kinds AS t WHERE t.id = w.kind;
    PERFORM skep_session_touch(k.id);
    IF w.lost OR w.removed THEN
        IF w.active + w.leaving = 0 THEN
            PERFORM skep_session_forget(w);
        ELSE
            w.heard := now;
            PERFORM skep_session_settle(w);
        END IF;
        RETURN NULL;
    END IF;
    IF now - w.heard > k.heartbeat_ms THEN
        PERFORM skep_session_lose(now, w.kind, ARRAY[w.number]);
        RETURN NULL;
    END IF;
    IF w.step = 'draining' AND w.step_at <= now THEN
        w.step_at := NULL;
        PERFORM skep_session_end_sessions(w, 'current', 'drain-limit');
    ELSIF w.step = 'succeeded' AND w.step_at <= now THEN
        w.step_at := NULL;
        PERFORM skep_session_end_sessions(w, 'leaving', 'drain-limit');
    ELSIF w.step = 'restarting' AND w.step_at + k.restart_max_ms <= now THEN
        w := skep_session_release_permit(now, w, FALSE);
        w.down := TRUE;
    ELSIF w.step = 'succeeding' AND w.step_at + k.restart_max_ms <= now THEN
        w := skep_session_release_permit(now, w, FALSE);
    ELSIF w.step IS NULL AND w.waiting_since + k.drain_max_ms <= now THEN
        w := skep_session_lose_patience(now, w);
    END IF;
    IF w.probe_at <= now THEN
        w.probe_at := now + 15000;
        probe := jsonb_build_object('worker', w.number, 'incarnation', w.incarnation,
            'url', w.url);
    END IF;
    PERFORM skep_session_settle(w);
    RETURN probe;
END
$$;
