
-- What can be looked at -------------------------------------------------------------------------

local STANDINGS = {'ready', 'due', 'full', 'held', 'draining', 'restarting', 'drained', 'suspect',
    'down', 'lost', 'removed'}

function T.or_null(value)
    return value and text(value) or 'null'
end

function T.look_kinds()
    local rows = {}
    for _, member in ipairs(T.all('k')) do
        local k = T.kind_of(sub(member, 2))
        rows[#rows + 1] = format('{"kind":%s,"rules":%s,"standings":[%s],"slots":%d,'
            .. '"active":%d,"free":%d,"waiting":%d,"out":%d,"out_max":%d,'
            .. '"held_idle":%d,"started":%d,"recycled":%d,"out_ms":%d}', T.quoted(k.name),
            call('HGET', ROWS, 'y' .. k.name), concat(k.standings, ','), k.slots, k.active,
            k.free, k.waiting, k.out, T.out_max(k), k.held_idle, k.started, k.recycled, k.out_ms)
    end
    return '{"answer":"kinds","kinds":[' .. concat(rows, ',') .. ']}'
end

function T.worker_row(w)
    local k = T.kind_of(w.kind)
    return format('{"number":%d,"name":%s,"kind":%s,"url":%s,"start":%s,"incarnation":%d,'
        .. '"shape":%s,"slots":%d,"active":%d,"leaving":%d,"lifetime":%d,"due_at":%s,'
        .. '"due_by":%s,"standing":"%s","permit":%s,"drained":%s,"failures":%d,'
        .. '"since_ms":%d,"heard_ms":%d}', w.number, T.quoted(w.name), T.quoted(w.kind),
        T.quoted(w.url), T.quoted(w.start), w.incarnation, T.shapes_of(k)[w.shape][1], w.slots,
        w.active, w.leaving, w.lifetime, T.or_null(T.due_at(k, w)),
        w.due_by and T.quoted(w.due_by) or 'null', STANDINGS[w.standing],
        tostring(w.step and true or false), tostring(w.drained), w.failures or 0, w.since,
        w.heard)
end

function T.look_workers(from, limit)
    local rows = {}
    for _, member in ipairs(T.range('[w' .. pad(from), 'w', min(limit, T.PAGE_ROWS))) do
        rows[#rows + 1] = T.worker_row(T.worker_of(tonumber(sub(member, 2))))
    end
    return '{"answer":"workers","workers":[' .. concat(rows, ',') .. ']}'
end

function T.look_worker(name)
    local w = T.worker_named(name)
    if not w then
        return '{"answer":"unknown"}'
    end
    return '{"answer":"workers","workers":[' .. T.worker_row(w) .. ']}'
end

function T.session_row(s)
    local worker = 'null'
    if s.worker then
        worker = '[' .. text(s.worker) .. ',' .. T.quoted(T.worker_of(s.worker).name) .. ']'
    end
    return format('{"gateway":%d,"node":%s,"ticket":%d,"kind":%s,"key":%s,"worker":%s,'
        .. '"since_ms":%d,"ending":%s}', tonumber(sub(s.id, 1, 14)),
        T.quoted(T.gateway_of(sub(s.id, 1, 14)).node), tonumber(sub(s.id, 15)), T.quoted(s.kind),
        T.quoted(s.key), worker, s.since, s.ending and T.quoted(s.ending) or 'null')
end

-- Sessions behind the one with the id `after`.
function T.look_sessions(after, limit)
    local rows = {}
    for _, member in ipairs(T.range('(s' .. after, 's', min(limit, T.PAGE_ROWS))) do
        rows[#rows + 1] = T.session_row(T.session_of(sub(member, 2)))
    end
    return '{"answer":"sessions","sessions":[' .. concat(rows, ',') .. ']}'
end
