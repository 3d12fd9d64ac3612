-- Which node owns what, and the one way to ask: CALL skep_ownership_step(…). It gives exactly the
-- answers of Table::apply in skep_policy::ownership; requests and answers are those types as JSON.

-- One row, which each step locks first: steps happen one after the other.
CREATE TABLE skep_ownership_meta (
    only_row BOOLEAN PRIMARY KEY DEFAULT TRUE CHECK (only_row),
    epoch BIGINT NOT NULL,
    tag NUMERIC(20, 0) NOT NULL,
    -- Which server, with which history, said what is in here. The first step fills in a NULL.
    run TEXT,
    settled BOOLEAN NOT NULL,
    counter BIGINT NOT NULL,
    floor BIGINT NOT NULL
) WITH (fillfactor = 20);

-- Tables that were just made can have been trusted by nobody, so the first life needs no grace.
-- Its tag is random: those who remember an earlier database must not take this one for it.
INSERT INTO skep_ownership_meta (epoch, tag, run, settled, counter, floor)
SELECT 1, ('x' || substr(md5(random()::TEXT || clock_timestamp()::TEXT), 1, 15))::BIT(60)::BIGINT,
    NULL, TRUE, 0, 0;

-- Renewed each second: room on the page for the next versions, and no index on what changes.
CREATE TABLE skep_ownership_nodes (
    name TEXT COLLATE "C" PRIMARY KEY,
    instance TEXT NOT NULL,
    session BIGINT NOT NULL UNIQUE,
    seq BIGINT NOT NULL,
    weight BIGINT NOT NULL,
    status TEXT NOT NULL,
    info TEXT NOT NULL
) WITH (fillfactor = 20);

CREATE TABLE skep_ownership_rows (
    key TEXT COLLATE "C" PRIMARY KEY,
    -- Zero is nobody; so is a session that is not in skep_ownership_nodes.
    session BIGINT NOT NULL,
    counter BIGINT NOT NULL UNIQUE,
    due BIGINT NOT NULL,
    -- Forgotten, and kept for a while so that everybody hears of it.
    tombstone BOOLEAN NOT NULL
);

CREATE INDEX skep_ownership_tombstones ON skep_ownership_rows (counter) WHERE tombstone;

-- Claim, Reclaim, Handoff and Release. Reads all rows at once, decides key by key in the order
-- asked, and writes at once. A key that is asked for twice has one slot, that of its first place.
CREATE FUNCTION skep_ownership_change(
    asked TEXT, items JSONB, me BIGINT, epoch BIGINT, settled BOOLEAN,
    INOUT counter BIGINT, OUT everybody BOOLEAN, OUT somebody TEXT[], OUT said JSON
) LANGUAGE plpgsql AS $$
DECLARE
    keys TEXT[];
    slots BIGINT[];
    -- By place: what is asked.
    epochs BIGINT[];
    targets BIGINT[];
    target_names TEXT[];
    dues BIGINT[];
    -- By slot: what is.
    row_sessions BIGINT[];
    row_counters BIGINT[];
    row_dues BIGINT[];
    is_free BOOLEAN[];
    is_changed BOOLEAN[];
    -- By place: what is answered.
    said_sessions BIGINT[] := '{}';
    said_counters BIGINT[] := '{}';
    said_dues BIGINT[] := '{}';
    slot BIGINT;
    allowed BOOLEAN;
BEGIN
    everybody := FALSE;
    somebody := '{}';
    SELECT array_agg(i.key ORDER BY i.place), array_agg(i.slot ORDER BY i.place),
        array_agg(CASE asked WHEN 'Reclaim' THEN (i.item -> 1 ->> 'epoch')::BIGINT END
            ORDER BY i.place),
        array_agg(target.session ORDER BY i.place), array_agg(target.name ORDER BY i.place),
        array_agg(CASE asked WHEN 'Claim' THEN coalesce(r.due, 0)
            WHEN 'Release' THEN (i.item ->> 1)::BIGINT ELSE (i.item ->> 2)::BIGINT END
            ORDER BY i.place),
        array_agg(coalesce(r.session, 0) ORDER BY i.place),
        array_agg(coalesce(r.counter, 0) ORDER BY i.place),
        array_agg(coalesce(r.due, 0) ORDER BY i.place),
        array_agg(owner.session IS NULL ORDER BY i.place),
        array_agg(FALSE ORDER BY i.place)
    INTO keys, slots, epochs, targets, target_names, dues,
        row_sessions, row_counters, row_dues, is_free, is_changed
    FROM (
        SELECT each.item, each.place, k.key, min(each.place) OVER (PARTITION BY k.key) AS slot
        FROM jsonb_array_elements(items) WITH ORDINALITY AS each (item, place),
            LATERAL (SELECT CASE asked WHEN 'Claim' THEN each.item #>> '{}'
                ELSE each.item ->> 0 END AS key) AS k
    ) AS i
    LEFT JOIN skep_ownership_rows AS r ON r.key = i.key
    LEFT JOIN skep_ownership_nodes AS owner ON owner.session = r.session
    LEFT JOIN skep_ownership_nodes AS target ON target.status = 'online'
        AND target.session = CASE asked WHEN 'Handoff' THEN (i.item ->> 1)::NUMERIC END;
    FOR place IN 1 .. coalesce(cardinality(keys), 0) LOOP
        slot := slots[place];
        IF asked = 'Claim' THEN
            allowed := settled AND is_free[slot];
        ELSIF asked = 'Reclaim' THEN
            allowed := epochs[place] < epoch AND is_free[slot];
        ELSIF asked = 'Handoff' THEN
            allowed := row_sessions[slot] = me AND targets[place] IS NOT NULL;
        ELSE
            allowed := row_sessions[slot] = me;
        END IF;
        IF allowed THEN
            counter := counter + 1;
            is_changed[slot] := TRUE;
            row_counters[slot] := counter;
            row_dues[slot] := dues[place];
            IF asked = 'Handoff' THEN
                row_sessions[slot] := targets[place];
                somebody := somebody || target_names[place];
            ELSIF asked = 'Release' THEN
                row_sessions[slot] := 0;
                everybody := TRUE;
            ELSE
                row_sessions[slot] := me;
                is_free[slot] := FALSE;
            END IF;
        END IF;
        said_sessions[place] := row_sessions[slot];
        said_counters[place] := row_counters[slot];
        said_dues[place] := row_dues[slot];
    END LOOP;
    INSERT INTO skep_ownership_rows AS r (key, session, counter, due, tombstone)
    SELECT c.key, c.session, c.counter, c.due, FALSE
    FROM unnest(keys, row_sessions, row_counters, row_dues, is_changed)
        AS c (key, session, counter, due, is_changed)
    WHERE c.is_changed
    ON CONFLICT (key) DO UPDATE SET session = excluded.session, counter = excluded.counter,
        due = excluded.due, tombstone = FALSE;
    said := (
        SELECT coalesce(json_agg(json_build_object('key', s.key, 'session', s.session,
            'counter', s.counter, 'due', s.due) ORDER BY s.place), '[]')
        FROM unnest(keys, said_sessions, said_counters, said_dues) WITH ORDINALITY
            AS s (key, session, counter, due, place)
    );
END
$$;

-- Forget. Key by key in the tables themselves, because each key may push an older one out.
CREATE FUNCTION skep_ownership_forget(
    items JSONB, me BIGINT, tombstones_max BIGINT,
    INOUT counter BIGINT, INOUT floor BIGINT, OUT said JSON
) LANGUAGE plpgsql AS $$
DECLARE
    tombstones BIGINT := (SELECT count(*) FROM skep_ownership_rows AS r WHERE r.tombstone);
    present skep_ownership_rows;
    wanted TEXT;
    rows JSON[] := '{}';
BEGIN
    FOREACH wanted IN ARRAY ARRAY(SELECT jsonb_array_elements_text(items)) LOOP
        SELECT * INTO present FROM skep_ownership_rows AS r WHERE r.key = wanted;
        IF FOUND AND NOT present.tombstone AND (present.session IN (0, me) OR NOT EXISTS
            (SELECT FROM skep_ownership_nodes AS n WHERE n.session = present.session))
        THEN
            counter := counter + 1;
            UPDATE skep_ownership_rows AS r
            SET session = 0, counter = skep_ownership_forget.counter, due = 0, tombstone = TRUE
            WHERE r.key = wanted;
            tombstones := tombstones + 1;
            WHILE tombstones > tombstones_max LOOP
                DELETE FROM skep_ownership_rows AS r WHERE r.counter =
                    (SELECT min(oldest.counter) FROM skep_ownership_rows AS oldest
                    WHERE oldest.tombstone)
                RETURNING r.counter INTO STRICT floor;
                tombstones := tombstones - 1;
            END LOOP;
            SELECT * INTO present FROM skep_ownership_rows AS r WHERE r.key = wanted;
        END IF;
        rows := rows || json_build_object('key', wanted, 'session', coalesce(present.session, 0),
            'counter', coalesce(present.counter, 0), 'due', coalesce(present.due, 0));
    END LOOP;
    said := array_to_json(rows);
END
$$;

-- Tick, once it is known whose it is and its number is given: the rest of the answer.
CREATE FUNCTION skep_ownership_news(
    seq BIGINT, counter BIGINT, floor BIGINT, since BIGINT, known_floor BIGINT, page_rows BIGINT
) RETURNS JSON LANGUAGE plpgsql AS $$
DECLARE
    is_full CONSTANT BOOLEAN := known_floor < floor AND since < floor;
    after CONSTANT BIGINT := CASE WHEN is_full THEN 0 ELSE since END;
    is_more BOOLEAN;
    last BIGINT;
    rows JSON;
BEGIN
    SELECT count(*) > page_rows, max(p.counter) FILTER (WHERE p.place <= page_rows),
        json_agg(json_build_object('key', p.key, 'session', p.session, 'counter', p.counter,
            'due', p.due) ORDER BY p.counter) FILTER (WHERE p.place <= page_rows)
    INTO is_more, last, rows
    FROM (
        SELECT r.*, row_number() OVER (ORDER BY r.counter) AS place
        FROM skep_ownership_rows AS r WHERE r.counter > after
        ORDER BY r.counter LIMIT page_rows + 1
    ) AS p;
    RETURN json_build_object(
        'seq', seq,
        'nodes', (SELECT json_agg(json_build_object('name', n.name, 'instance', n.instance,
            'session', n.session, 'seq', n.seq, 'weight', n.weight, 'status', n.status,
            'info', n.info) ORDER BY n.name) FROM skep_ownership_nodes AS n),
        'rows', coalesce(rows, '[]'),
        'upto', CASE WHEN is_more THEN last ELSE counter END,
        'more', is_more,
        'full', is_full,
        'floor', floor,
        -- Alone is who cannot be joined unheard, which no store between processes can promise.
        'alone', FALSE
    );
END
$$;

-- One request. The plans it makes are kept as long as the connection, so they must be good for
-- tables that have grown meanwhile: always by index, never compiled.
CREATE FUNCTION skep_ownership_apply(request JSONB, tombstones_max BIGINT, page_rows BIGINT)
RETURNS JSON LANGUAGE plpgsql
SET search_path FROM CURRENT
SET enable_seqscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
SET jit = off
AS $$
DECLARE
    seen_epoch CONSTANT BIGINT := request #>> '{seen,epoch,number}';
    seen_tag CONSTANT NUMERIC := request #>> '{seen,epoch,tag}';
    seen_counter CONSTANT BIGINT := request #>> '{seen,counter}';
    sent_at CONSTANT BIGINT := request ->> 'least';
    asked CONSTANT TEXT := (SELECT jsonb_object_keys(request -> 'ask'));
    body CONSTANT JSONB := request -> 'ask' -> asked;
    caller CONSTANT JSONB := CASE jsonb_typeof(body) WHEN 'array' THEN body -> 0 ELSE body END;
    life RECORD;
    before RECORD;
    node skep_ownership_nodes;
    present_run TEXT;
    done BOOLEAN;
    everybody BOOLEAN := FALSE;
    somebody TEXT[] := '{}';
    rows JSON;
    said JSON;
BEGIN
    SELECT m.*, m.tableoid INTO life FROM skep_ownership_meta AS m FOR UPDATE;
    IF NOT FOUND THEN
        -- Somebody emptied the table.
        INSERT INTO skep_ownership_meta (epoch, tag, run, settled, counter, floor)
        VALUES (0, 0, '', FALSE, 0, 0) ON CONFLICT DO NOTHING;
        SELECT m.*, m.tableoid INTO STRICT life FROM skep_ownership_meta AS m FOR UPDATE;
    END IF;
    before := life;
    -- A restart keeps all of this. Whatever may have lost something changes it: the timeline for a
    -- standby that took over and for a recovery to an earlier time, the ids for a restored dump.
    present_run := concat_ws('/', (SELECT c.system_identifier FROM pg_control_system() AS c),
        substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8),
        (SELECT d.oid FROM pg_database AS d WHERE d.datname = current_database()), life.tableoid);
    life.run := coalesce(life.run, present_run);

    IF life.epoch = 0 OR life.run <> present_run OR seen_epoch > life.epoch
        OR (seen_epoch = life.epoch AND (CASE WHEN seen_tag = life.tag
            THEN seen_counter > life.counter ELSE seen_tag <> 0 END))
    THEN
        life.epoch := greatest(greatest(life.epoch, seen_epoch) + 1,
            -- The request may have been long on its way.
            CASE WHEN sent_at > 0
                THEN greatest(sent_at, floor(extract(epoch FROM clock_timestamp()))::BIGINT)
                ELSE 0 END);
        life.tag := (request ->> 'nonce')::NUMERIC;
        life.run := present_run;
        life.settled := FALSE;
        life.counter := greatest(life.counter, seen_counter);
        life.floor := 0;
        DELETE FROM skep_ownership_nodes;
        DELETE FROM skep_ownership_rows;
        everybody := TRUE;
    END IF;

    IF asked IN ('Join', 'Tick') THEN
        SELECT * INTO node FROM skep_ownership_nodes AS n WHERE n.name = body ->> 'name';
    ELSIF asked <> 'Expire' THEN
        SELECT * INTO node FROM skep_ownership_nodes AS n WHERE n.name = caller ->> 'name';
    END IF;
    IF asked = 'Join' THEN
        IF node.instance <> body ->> 'instance' THEN
            said := json_build_object('NameHeld', json_build_object('session', node.session,
                'seq', node.seq, 'instance', node.instance));
        ELSE
            life.counter := life.counter + 1;
            node.session := coalesce(node.session, life.counter);
            INSERT INTO skep_ownership_nodes AS n
                (name, instance, session, seq, weight, status, info)
            VALUES (body ->> 'name', body ->> 'instance', node.session, life.counter,
                (body ->> 'weight')::BIGINT, body ->> 'status', body ->> 'info')
            ON CONFLICT (name) DO UPDATE SET seq = excluded.seq, weight = excluded.weight,
                status = excluded.status, info = excluded.info;
            everybody := TRUE;
            said := json_build_object('Joined', json_build_object('session', node.session,
                'seq', life.counter));
        END IF;
    ELSIF seen_epoch <> life.epoch OR seen_tag <> life.tag THEN
        said := to_json('OtherEpoch'::TEXT);
    ELSIF asked = 'Expire' THEN
        DELETE FROM skep_ownership_nodes AS n WHERE n.session = (body ->> 'session')::NUMERIC
            AND n.seq = (body ->> 'seq')::NUMERIC;
        done := FOUND;
        everybody := everybody OR done;
        said := json_build_object('Expired', done);
    ELSIF node.session IS DISTINCT FROM (caller ->> 'session')::NUMERIC THEN
        said := to_json('NoSession'::TEXT);
    ELSIF asked = 'Tick' THEN
        everybody := everybody OR node.weight <> (body ->> 'weight')::BIGINT
            OR node.status <> body ->> 'status';
        life.counter := life.counter + 1;
        UPDATE skep_ownership_nodes AS n SET seq = life.counter,
            weight = (body ->> 'weight')::BIGINT, status = body ->> 'status', info = body ->> 'info'
        WHERE n.name = node.name;
        said := json_build_object('Ticked', skep_ownership_news(life.counter, life.counter,
            life.floor, (body ->> 'since')::BIGINT, (body ->> 'floor')::BIGINT, page_rows));
    ELSIF asked = 'EndGrace' THEN
        everybody := everybody OR NOT life.settled;
        life.settled := TRUE;
        said := to_json('Done'::TEXT);
    ELSIF node.seq <> (caller ->> 'seq')::NUMERIC THEN
        said := to_json('Stale'::TEXT);
    ELSIF asked = 'Bye' THEN
        DELETE FROM skep_ownership_nodes AS n WHERE n.name = node.name;
        everybody := TRUE;
        said := to_json('Done'::TEXT);
    ELSIF asked = 'Forget' THEN
        SELECT f.counter, f.floor, f.said INTO life.counter, life.floor, rows
        FROM skep_ownership_forget(body -> 1, node.session, tombstones_max,
            life.counter, life.floor) AS f;
        said := json_build_object('Rows', rows);
    ELSIF asked IN ('Claim', 'Reclaim', 'Handoff', 'Release') THEN
        SELECT c.counter, c.everybody, c.somebody, c.said
        INTO life.counter, done, somebody, rows
        FROM skep_ownership_change(asked, body -> 1, node.session, life.epoch, life.settled,
            life.counter) AS c;
        everybody := everybody OR done;
        said := json_build_object('Rows', rows);
    ELSE
        RAISE 'unknown question %', asked USING ERRCODE = 'invalid_parameter_value';
    END IF;

    IF life IS DISTINCT FROM before THEN
        UPDATE skep_ownership_meta SET epoch = life.epoch, tag = life.tag, run = life.run,
            settled = life.settled, counter = life.counter, floor = life.floor;
    END IF;
    IF everybody THEN
        PERFORM pg_notify('skep_nodes', '*');
    ELSE
        PERFORM pg_notify('skep_nodes', s.name) FROM unnest(somebody) AS s (name);
    END IF;
    RETURN json_build_object(
        'epoch', json_build_object('number', life.epoch, 'tag', life.tag),
        'settled', life.settled,
        'clock_ms', floor(extract(EPOCH FROM clock_timestamp()) * 1000)::BIGINT,
        'answer', said
    );
END
$$;

-- One request from its first to its last moment. It commits before it answers and without another
-- word from the client: neither a client that does not read nor one that vanished holds the lock.
CREATE PROCEDURE skep_ownership_step(
    INOUT said TEXT, tombstones_max BIGINT, page_rows BIGINT, wait_ms BIGINT
) LANGUAGE plpgsql AS $$
BEGIN
    -- Whoever asked has given up by then.
    PERFORM set_config('lock_timeout', wait_ms::TEXT, TRUE);
    IF current_setting('synchronous_commit') = 'off' THEN
        -- What was said must be known after a crash.
        PERFORM set_config('synchronous_commit', 'local', TRUE);
    END IF;
    said := skep_ownership_apply(said::JSONB, tombstones_max, page_rows);
    COMMIT;
END
$$;
