-- The table of sessions: what can be looked at, and the one way to ask.

-- ── What can be looked at ──────────────────────────────
-- These are STABLE: each sees one moment, without keeping steps from happening meanwhile.

CREATE FUNCTION skep_session_look_kinds() RETURNS JSONB LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN jsonb_build_object('answer', 'kinds', 'kinds', (
        SELECT coalesce(jsonb_agg(jsonb_build_object('kind', k.name, 'rules', k.rules,
            'standings', k.standings, 'slots', k.slots, 'active', k.active, 'free', k.free,
            'waiting', k.waiting, 'out', k.permits, 'out_max', skep_session_budget(k),
            'held_idle', k.held_idle, 'started', k.started, 'recycled', k.recycled,
            'out_ms', k.out_ms) ORDER BY k.name), '[]')
        FROM skep_session_kinds AS k
    ));
END
$$;

CREATE FUNCTION skep_session_worker_row(w skep_session_workers) RETURNS JSONB
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN (
        SELECT jsonb_build_object('number', w.number, 'name', w.name, 'kind', k.name,
            'url', w.url, 'start', w.start, 'incarnation', w.incarnation,
            'shape', jsonb_build_object('labels', s.labels, 'version', nullif(s.version, '')),
            'slots', w.slots, 'active', w.active, 'leaving', w.leaving, 'lifetime', w.lifetime,
            'due_at', skep_session_due_at(k, w.number, w.fresh), 'due_by', w.due_by,
            'standing', w.standing, 'permit', w.permit_since IS NOT NULL, 'drained', w.drained,
            'failures', coalesce(w.failures, 0), 'since_ms', w.since, 'heard_ms', w.heard)
        FROM skep_session_kinds AS k, skep_session_shapes AS s
        WHERE k.id = w.kind AND s.id = w.shape
    );
END
$$;

CREATE FUNCTION skep_session_look_workers(first BIGINT, most BIGINT) RETURNS JSONB
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN jsonb_build_object('answer', 'workers', 'workers', (
        SELECT coalesce(jsonb_agg(skep_session_worker_row(page.w) ORDER BY (page.w).number), '[]')
        FROM (
            SELECT w FROM skep_session_workers AS w
            WHERE w.number >= first
            ORDER BY w.number LIMIT most
        ) AS page
    ));
END
$$;

CREATE FUNCTION skep_session_look_worker(of_name TEXT) RETURNS JSONB
LANGUAGE plpgsql STABLE AS $$
DECLARE
    w skep_session_workers;
BEGIN
    SELECT * INTO w FROM skep_session_workers AS t WHERE t.name = of_name;
    IF NOT FOUND THEN
        RETURN '{"answer": "unknown"}';
    END IF;
    RETURN jsonb_build_object('answer', 'workers',
        'workers', jsonb_build_array(skep_session_worker_row(w)));
END
$$;

-- `after` is a gateway and a ticket, or null for the beginning.
CREATE FUNCTION skep_session_look_sessions(after JSONB, most BIGINT) RETURNS JSONB
LANGUAGE plpgsql STABLE AS $$
DECLARE
    after_gateway CONSTANT BIGINT := coalesce((after ->> 0)::BIGINT, -1);
    after_ticket CONSTANT BIGINT := coalesce((after ->> 1)::BIGINT, -1);
BEGIN
    RETURN jsonb_build_object('answer', 'sessions', 'sessions', (
        SELECT coalesce(jsonb_agg(jsonb_build_object('gateway', p.gateway,
            'node', coalesce(g.node, ''), 'ticket', p.ticket, 'kind', k.name, 'key', p.key,
            'worker', CASE WHEN w.number IS NOT NULL
                THEN jsonb_build_array(w.number, w.name) END,
            'since_ms', p.since, 'ending', p.ending) ORDER BY p.gateway, p.ticket), '[]')
        FROM (
            SELECT * FROM skep_session_sessions AS s
            WHERE (s.gateway, s.ticket) > (after_gateway, after_ticket)
            ORDER BY s.gateway, s.ticket LIMIT most
        ) AS p
        JOIN skep_session_kinds AS k ON k.id = p.kind
        LEFT JOIN skep_session_gateways AS g ON g.id = p.gateway
        LEFT JOIN skep_session_workers AS w ON w.number = p.worker
    ));
END
$$;

-- ── Rules ──────────────────────────────────────────────

-- Sets the rules of a kind; its workers are put where they belong under them.
CREATE FUNCTION skep_session_configure(of_name TEXT, told JSONB) RETURNS VOID
LANGUAGE plpgsql AS $$
DECLARE
    of_kind BIGINT;
BEGIN
    INSERT INTO skep_session_kinds AS k (name, rules, policy, slots_default, lifetime_max,
        budget_count, budget_percent, heartbeat_ms, drain_max_ms, restart_max_ms, waiting_max,
        standings)
    VALUES (of_name, told, told ->> 'policy', (told ->> 'slots')::BIGINT,
        (told ->> 'lifetime_max')::BIGINT, (told #>> '{budget,count}')::BIGINT,
        (told #>> '{budget,percent}')::BIGINT, (told ->> 'heartbeat_ms')::BIGINT,
        (told ->> 'drain_max_ms')::BIGINT, (told ->> 'restart_max_ms')::BIGINT,
        (told ->> 'waiting_max')::BIGINT, array_fill(0::BIGINT, ARRAY[11]))
    ON CONFLICT (name) DO UPDATE SET rules = excluded.rules, policy = excluded.policy,
        slots_default = excluded.slots_default, lifetime_max = excluded.lifetime_max,
        budget_count = excluded.budget_count, budget_percent = excluded.budget_percent,
        heartbeat_ms = excluded.heartbeat_ms, drain_max_ms = excluded.drain_max_ms,
        restart_max_ms = excluded.restart_max_ms, waiting_max = excluded.waiting_max
    WHERE k.rules <> excluded.rules
    RETURNING k.id INTO of_kind;
    -- Nothing is returned if the rules are as they were.
    IF of_kind IS NOT NULL THEN
        PERFORM skep_session_settle_all(of_kind);
        PERFORM skep_session_touch(of_kind);
    END IF;
END
$$;

-- ── One question ───────────────────────────────────────

-- What is left of the table when the server is not the one that wrote it, or has another history:
-- a standby that took over, a dump that was restored. Gateways and workers are told that they are
-- unknown, come again and say what they carry; numbers go on where they were.
CREATE FUNCTION skep_session_begin_anew() RETURNS VOID LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM skep_session_sessions;
    DELETE FROM skep_session_gateways;
    DELETE FROM skep_session_workers;
    DELETE FROM skep_session_shapes;
    DELETE FROM skep_session_kinds;
    DELETE FROM skep_session_keys;
    DELETE FROM skep_session_wants;
    DELETE FROM skep_session_turns;
    DELETE FROM skep_session_free_numbers;
    UPDATE skep_session_meta SET numbers = 0;
END
$$;

-- Which server this is, and which history it has. A restart keeps all of this. Whatever may have
-- lost something changes it: the timeline for a standby that took over and for a recovery to an
-- earlier time, the ids for a restored dump.
CREATE FUNCTION skep_session_run() RETURNS TEXT LANGUAGE plpgsql AS $$
BEGIN
    RETURN concat_ws('/', (SELECT c.system_identifier FROM pg_control_system() AS c),
        substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8),
        (SELECT d.oid FROM pg_database AS d WHERE d.datname = current_database()),
        'skep_session_meta'::REGCLASS::OID);
END
$$;

-- Locks the table for this step, and says its time. `given` is a time instead of the server's, for
-- tests.
CREATE FUNCTION skep_session_enter(given BIGINT) RETURNS BIGINT LANGUAGE plpgsql AS $$
DECLARE
    before skep_session_meta;
    present_run CONSTANT TEXT := skep_session_run();
    now BIGINT;
BEGIN
    SELECT * INTO before FROM skep_session_meta AS m FOR UPDATE;
    IF NOT FOUND THEN
        -- Somebody emptied the table.
        INSERT INTO skep_session_meta (run, clock, incarnations, numbers) VALUES ('', 0, 0, 0)
        ON CONFLICT DO NOTHING;
        SELECT * INTO STRICT before FROM skep_session_meta AS m FOR UPDATE;
    END IF;
    IF before.run <> present_run THEN
        PERFORM skep_session_begin_anew();
    END IF;
    now := greatest(before.clock,
        coalesce(given, floor(extract(EPOCH FROM clock_timestamp()) * 1000)::BIGINT));
    UPDATE skep_session_meta SET clock = now, run = present_run;
    RETURN now;
END
$$;

-- A question that may change something.
CREATE FUNCTION skep_session_change(ask JSONB, given BIGINT, OUT said JSONB, OUT hints TEXT)
LANGUAGE plpgsql AS $$
DECLARE
    asked CONSTANT TEXT := ask ->> 'ask';
    now CONSTANT BIGINT := skep_session_enter(given);
    of_gateway CONSTANT BIGINT := ask ->> 'gateway';
    stranger TEXT;
    part TEXT;
BEGIN
    said := '{"answer": "done"}';
    hints := '';
    PERFORM set_config('skep_session.hints', '', TRUE),
        set_config('skep_session.touched', '', TRUE),
        set_config('skep_session.keep', '', TRUE);
    IF asked NOT IN ('beat', 'heartbeat') THEN
        PERFORM skep_session_keep();
    END IF;
    IF asked IN ('beat', 'leave', 'checkout', 'close') THEN
        stranger := skep_session_stranger(of_gateway, (ask ->> 'link')::BIGINT);
    END IF;
    IF stranger IS NOT NULL THEN
        said := jsonb_build_object('answer', stranger);
    ELSIF asked = 'checkout' THEN
        said := skep_session_checkout(now, ask);
    ELSIF asked = 'close' THEN
        PERFORM skep_session_close(now, of_gateway, (ask ->> 'ticket')::BIGINT, ask ->> 'how');
    ELSIF asked = 'beat' THEN
        said := skep_session_beat(now, of_gateway);
    ELSIF asked = 'heartbeat' THEN
        said := skep_session_heartbeat(now, ask);
    ELSIF asked = 'register' THEN
        said := skep_session_register(now, ask);
    ELSIF asked = 'configure' THEN
        PERFORM skep_session_configure(ask ->> 'kind', ask -> 'rules');
    ELSIF asked = 'join' THEN
        said := skep_session_join(now, ask);
    ELSIF asked = 'leave' THEN
        PERFORM skep_session_drop_gateway(now, of_gateway);
    ELSIF asked = 'probed' THEN
        said := skep_session_probed(now, ask);
    ELSIF asked = 'remove' THEN
        said := skep_session_remove(now, ask);
    ELSIF asked = 'drain' THEN
        said := skep_session_drain(ask);
    ELSIF asked = 'end' THEN
        UPDATE skep_session_sessions AS s SET ending = coalesce(s.ending, 'operator'), news = TRUE
        WHERE s.gateway = of_gateway AND s.ticket = (ask ->> 'ticket')::BIGINT;
        IF FOUND THEN
            PERFORM skep_session_hint('g' || of_gateway);
        ELSE
            said := '{"answer": "unknown"}';
        END IF;
    ELSE
        RAISE 'unknown question %', asked USING ERRCODE = 'invalid_parameter_value';
    END IF;
    PERFORM skep_session_finish(now);
    IF current_setting('skep_session.keep') = '' THEN
        PERFORM set_config('synchronous_commit', 'off', TRUE);
    ELSIF current_setting('synchronous_commit') = 'off' THEN
        PERFORM set_config('synchronous_commit', 'local', TRUE);
    END IF;
    -- In order, each once, as many in a notice as have room in it.
    FOR part IN
        SELECT string_agg(w.whom, ' ' ORDER BY w.place) FROM (
            SELECT d.whom,
                row_number() OVER (ORDER BY left(d.whom, 1), substr(d.whom, 2)::BIGINT) AS place
            FROM (
                SELECT DISTINCT h.whom FROM string_to_table(
                    ltrim(current_setting('skep_session.hints')), ' ') AS h (whom)
                WHERE h.whom <> ''
            ) AS d
        ) AS w
        GROUP BY w.place / 200 ORDER BY w.place / 200
    LOOP
        PERFORM pg_notify('skep_sessions', part);
        hints := concat_ws(' ', nullif(hints, ''), part);
    END LOOP;
END
$$;

-- One question. The plans it makes are kept as long as the connection, so they must be good for
-- tables that have grown meanwhile: always by index and in its order, never compiled.
CREATE FUNCTION skep_session_apply(ask JSONB, given BIGINT, OUT said JSONB, OUT hints TEXT)
LANGUAGE plpgsql
SET search_path FROM CURRENT
SET enable_seqscan = off
SET enable_bitmapscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
SET jit = off
AS $$
DECLARE
    asked CONSTANT TEXT := ask ->> 'ask';
    -- Who wants all may say any number.
    most CONSTANT BIGINT := least((ask ->> 'limit')::NUMERIC, 1000);
BEGIN
    IF asked NOT IN ('kinds', 'workers', 'worker', 'sessions') THEN
        SELECT c.said, c.hints INTO said, hints FROM skep_session_change(ask, given) AS c;
        RETURN;
    END IF;
    IF NOT EXISTS (SELECT FROM skep_session_meta AS m
        WHERE m.run IS NULL OR m.run = skep_session_run())
    THEN
        PERFORM skep_session_enter(given);
    END IF;
    said := CASE asked
        WHEN 'kinds' THEN skep_session_look_kinds()
        WHEN 'workers' THEN skep_session_look_workers((ask ->> 'from')::BIGINT, most)
        WHEN 'worker' THEN skep_session_look_worker(ask ->> 'name')
        ELSE skep_session_look_sessions(ask -> 'after', most) END;
    hints := '';
END
$$;

-- One question from its first to its last moment. It commits before it answers and without another
-- word from the client: neither a client that does not read nor one that vanished holds the lock.
--
-- It waits for the disk, whatever the server does otherwise. A crash that forgot a seat would let
-- its slot be taken twice, because the gateway may never notice the crash; one that forgot a permit
-- would let one worker more go than the budget allows. Only somebody who lives and has nothing new
-- to say or to hear does not wait: those are most of all steps, and all that a crash can forget of
-- them is when they were last heard.
CREATE PROCEDURE skep_session_step(
    INOUT said TEXT, INOUT hints TEXT, given BIGINT, wait_ms BIGINT
) LANGUAGE plpgsql AS $$
BEGIN
    -- Whoever asked has given up by then.
    PERFORM set_config('lock_timeout', wait_ms::TEXT, TRUE);
    SELECT a.said::TEXT, a.hints INTO said, hints FROM skep_session_apply(said::JSONB, given) AS a;
    COMMIT;
END
$$;
