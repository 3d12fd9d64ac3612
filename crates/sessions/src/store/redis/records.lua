-- One question to the table of sessions, exactly as Fleet::apply in skep_policy::sessions.
--
-- Everything is in two keys, so that a server which throws keys away to make room cannot take a
-- part of the table without that being seen.
--
-- rows   hash, a record a field, by its first letter:
--          m            the table itself: counters, clock, the server's run, the index's size
--          k KIND       counts and rules      y KIND  the rules as they were said
--          h KIND       the shapes of its workers, in the order in which they came
--          w NUMBER     a worker              n NAME  the number of a worker
--          g GATEWAY    a gateway             s GATEWAY TICKET  a session
--          c KEY        sessions of a key     q KIND# KEY  the last place of a key in a line
-- index  sorted set in the order of its members' bytes, which are numbers of a fixed length:
--          r, d KIND# SHAPE# RANK WORKER      who can take a session: ready, due
--          p KIND# LIFE WORKER                who may have a permit, the longest life first
--          l KIND# WANT \0 RANK ARRIVAL GATEWAY TICKET      the line
--          t TIME WORKER                      when a worker must be looked after
--          g TIME GATEWAY                     when a gateway has been silent for too long
--          s GATEWAY TICKET                   sessions; o WORKER GATEWAY TICKET: those on a worker
--          n GATEWAY TICKET                   sessions about which there is news
--          m KIND# WORKER, w WORKER, f WORKER workers of a kind, all, and numbers that are free
--          k KIND                             kinds
--
-- A step works on records in memory and writes them at its end; the index is written before it is
-- read again. So a step that fails has, as a rule, written nothing.

--
-- The script makes its functions anew for each step, and finding a name outside of a function costs
-- more the more such names there are. So nearly everything is in one table, T, and what sessions
-- do not need all the time is made only for other questions (T.is_rare).
--
-- Standings are numbers in the order of Standing::ALL: 1 ready, 2 due, 3 full, 4 held, 5 draining,
-- 6 restarting, 7 drained, 8 suspect, 9 down, 10 lost, 11 removed. Those before 10 are live.

local ROWS, INDEX = KEYS[1], KEYS[2]
local concat, floor = table.concat, math.floor
local max, min, call, format, sub = math.max, math.min, redis.call, string.format, string.sub

local T = {
    SETTLE_MS = 2500, FORGET_MS = 600000,
    PROBE_FIRST_MS = 500, PROBE_MAX_MS = 30000, PROBING_MS = 15000,
    TIMERS_PER_BEAT = 256, CLOSINGS_PER_STEP = 500, PAGE_ROWS = 1000,

    pack = cmsgpack.pack, unpacked = cmsgpack.unpack, quoted = cjson.encode,

    now = 0,
    is_rare = ARGV[1] ~= 'checkout' and ARGV[1] ~= 'close',
    -- What is to be put in the index (true) or taken out (false) before it is read again.
    pending = {}, is_pending = false, index_size = 0,
    -- Records whose rows are not what is stored any more, in the order in which they changed.
    changed = {},
    -- Records that were read or made in this step; false is one that is gone.
    kinds = {}, workers = {}, names = {}, gateways = {}, sessions = {}, counts = {}, turns = {},
    meta = {row = 'm', kinds = 0, workers = 0, incarnations = 0, clock = 0, run = '', checked = 0},
    -- Wants that were read in this step; the empty one fits everybody.
    wants = {},
    -- Whom the step concerns, and the kinds in which something changed in it.
    told_gateways = {}, told_workers = {}, touched = {},
}

local function text(number)
    return format('%d', number)
end

local function pad(number)
    return format('%014d', number)
end

local function short_pad(number)
    return format('%08d', number)
end

-- The index ------------------------------------------------------------------------------------

function T.put(member)
    T.pending[member], T.is_pending = true, true
end

function T.drop(member)
    T.pending[member], T.is_pending = false, true
end

-- A command takes a few thousand words at most.
function T.run_in_parts(command, key, words)
    local count = #words
    if count == 0 then
        return 0
    elseif count <= 2000 then
        return call(command, key, unpack(words))
    end
    local total = 0
    for first = 1, count, 2000 do
        total = total + call(command, key, unpack(words, first, min(first + 1999, count)))
    end
    return total
end

function T.save_index()
    if not T.is_pending then
        return
    end
    local scored, gone = {}, {}
    for member, is_in in pairs(T.pending) do
        if is_in then
            scored[#scored + 1], scored[#scored + 2] = 0, member
        else
            gone[#gone + 1] = member
        end
    end
    T.pending, T.is_pending = {}, false
    T.index_size = T.index_size + T.run_in_parts('ZADD', INDEX, scored)
        - T.run_in_parts('ZREM', INDEX, gone)
end

-- Members from `from` (with '[' or '(' before it) that begin with `prefix`.
function T.range(from, prefix, limit)
    T.save_index()
    return call('ZRANGEBYLEX', INDEX, from, '(' .. prefix .. '\255', 'LIMIT', 0, limit)
end

function T.all(prefix, limit)
    return T.range('[' .. prefix, prefix, limit or -1)
end

-- The records ----------------------------------------------------------------------------------

function T.change(record)
    if not record.is_changed then
        record.is_changed = true
        T.changed[#T.changed + 1] = record
    end
end

function T.save_rows()
    local values, gone = {}, {}
    for _, record in ipairs(T.changed) do
        if record.is_gone then
            gone[#gone + 1] = record.row
        else
            local place = #values
            values[place + 1], values[place + 2] = record.row, record:packed()
        end
    end
    -- First those that are gone: some may be there again.
    T.run_in_parts('HDEL', ROWS, gone)
    T.run_in_parts('HSET', ROWS, values)
end

-- A record that is written once and only read then; without a value it is gone.
function T.plain_packed(record)
    return record.value
end

function T.write_plain(row, value)
    T.change({row = row, value = value, is_gone = not value, packed = T.plain_packed})
end

function T.meta.packed(m)
    return T.pack({T.index_size, m.kinds, m.workers, m.incarnations, m.clock, m.run, m.checked})
end

function T.kind_packed(k)
    return T.pack({k.number, k.policy, k.slots_each, k.lifetime_max, k.out_count, k.out_percent,
        k.heartbeat_ms, k.drain_max_ms, k.restart_max_ms, k.waiting_max, k.standings, k.live,
        k.open, k.slots, k.active, k.free, k.held_idle, k.ripe, k.out, k.counted, k.waiting,
        k.served, k.arrivals, k.started, k.recycled, k.out_ms})
end

-- The kind with this name, or false.
function T.kind_of(name)
    local k = T.kinds[name]
    if k ~= nil then
        return k
    end
    local packed = call('HGET', ROWS, 'k' .. name)
    if not packed then
        return false
    end
    local a = T.unpacked(packed)
    k = {row = 'k' .. name, packed = T.kind_packed, name = name, number = a[1], policy = a[2],
        slots_each = a[3], lifetime_max = a[4], out_count = a[5], out_percent = a[6],
        heartbeat_ms = a[7], drain_max_ms = a[8], restart_max_ms = a[9], waiting_max = a[10],
        standings = a[11], live = a[12], open = a[13], slots = a[14], active = a[15],
        free = a[16], held_idle = a[17], ripe = a[18], out = a[19], counted = a[20],
        waiting = a[21], served = a[22], arrivals = a[23], started = a[24], recycled = a[25],
        out_ms = a[26], key = short_pad(a[1])}
    T.kinds[name] = k
    return k
end

function T.live_in(k)
    local sum = 0
    for standing = 1, 9 do
        sum = sum + k.standings[standing]
    end
    return sum
end

-- The shapes of a kind: {as it was said, version or false, labels}.
function T.shapes_of(k)
    if not k.shapes then
        local packed = call('HGET', ROWS, 'h' .. k.name)
        k.shapes = packed and T.unpacked(packed) or {}
    end
    return k.shapes
end

-- A want or a shape as it was said: its version or false, its labels.
function T.parts_of(said)
    local decoded = cjson.decode(said)
    return type(decoded.version) == 'string' and decoded.version, decoded.labels
end

-- The number of this shape, which the kind gets if it had none like it.
function T.shape_in(k, said)
    local shapes = T.shapes_of(k)
    for number, shape in ipairs(shapes) do
        if shape[1] == said then
            return number
        end
    end
    local version, labels = T.parts_of(said)
    shapes[#shapes + 1] = {said, version, labels}
    k.live[#shapes], k.open[#shapes] = 0, 0
    T.write_plain('h' .. k.name, T.pack(shapes))
    T.change(k)
    return #shapes
end

-- What follows from a worker's state is kept as it was last settled: `standing`, `due`, its members
-- of the index `place` and `ripe`, its `timer`, and what it adds to the counts of its kind.
function T.worker_packed(w)
    return T.pack({w.number, w.name, w.kind, w.shape, w.url, w.start, w.incarnation, w.slots,
        w.lifetime, w.active, w.leaving, w.fresh, w.successor, w.permit_since, w.step, w.step_at,
        w.down, w.drained, w.removed, w.parting, w.lost, w.hold, w.due_by, w.failures, w.probe_at,
        w.waiting_since, w.since, w.heard, w.order, w.standing, w.due, w.place, w.placed_free,
        w.ripe, w.timer})
end

-- The worker with this number, or false. What it has not is false in its record.
function T.worker_of(number)
    local w = T.workers[number]
    if w ~= nil then
        return w
    end
    local id = pad(number)
    local packed = call('HGET', ROWS, 'w' .. id)
    if not packed then
        return false
    end
    local a = T.unpacked(packed)
    w = {row = 'w' .. id, id = id, packed = T.worker_packed, number = a[1], name = a[2],
        kind = a[3], shape = a[4], url = a[5], start = a[6], incarnation = a[7], slots = a[8],
        lifetime = a[9], active = a[10], leaving = a[11], fresh = a[12], successor = a[13],
        permit_since = a[14], step = a[15], step_at = a[16], down = a[17], drained = a[18],
        removed = a[19], parting = a[20], lost = a[21], hold = a[22], due_by = a[23],
        failures = a[24], probe_at = a[25], waiting_since = a[26], since = a[27], heard = a[28],
        order = a[29], standing = a[30], due = a[31], place = a[32], placed_free = a[33],
        ripe = a[34], timer = a[35], placed_shape = a[4], placed_slots = a[8],
        placed_active = a[10], held_idle = a[30] == 4 and a[10] == 0, out = a[15] and true}
    T.workers[number] = w
    return w
end

function T.worker_named(name)
    local number = T.names[name]
    if number == nil then
        local stored = call('HGET', ROWS, 'n' .. name)
        number = stored and tonumber(stored)
        T.names[name] = number
    end
    return number and T.worker_of(number)
end

function T.gateway_packed(g)
    return T.pack({g.link, g.ttl, g.heard, g.steady, g.node})
end

-- The gateway with this id, as its padded number, or false.
function T.gateway_of(id)
    local g = T.gateways[id]
    if g ~= nil then
        return g
    end
    local packed = call('HGET', ROWS, 'g' .. id)
    if not packed then
        return false
    end
    local a = T.unpacked(packed)
    g = {row = 'g' .. id, packed = T.gateway_packed, id = id, link = a[1], ttl = a[2], heard = a[3],
        steady = a[4], node = a[5]}
    T.gateways[id] = g
    return g
end

function T.deadline_of(g)
    return 'g' .. pad(g.heard + g.ttl) .. g.id
end

-- A session has a worker, or a place in the line: its member of the index.
function T.session_packed(s)
    return T.pack({s.kind, s.key, s.since, s.ending, s.worker, s.incarnation, s.due, s.place})
end

-- The session with this id, which is its gateway and its ticket, padded; or false.
function T.session_of(id)
    local s = T.sessions[id]
    if s ~= nil then
        return s
    end
    local packed = call('HGET', ROWS, 's' .. id)
    if not packed then
        return false
    end
    local a = T.unpacked(packed)
    s = {row = 's' .. id, packed = T.session_packed, id = id, kind = a[1], key = a[2], since = a[3],
        ending = a[4], worker = a[5], incarnation = a[6], due = a[7], place = a[8]}
    T.sessions[id] = s
    return s
end

function T.add_session(s)
    s.row, s.packed, s.since, s.ending = 's' .. s.id, T.session_packed, T.now, false
    T.sessions[s.id] = s
    T.change(s)
    T.put('s' .. s.id)
    if s.worker then
        T.put('o' .. pad(s.worker) .. s.id)
    end
end

function T.remove_session(s)
    s.is_gone = true
    T.sessions[s.id] = false
    T.change(s)
    T.drop('s' .. s.id)
    if s.worker then
        T.drop('o' .. pad(s.worker) .. s.id)
    end
end

-- Sessions of each key, seated and waiting.
function T.count_packed(c)
    return text(c.count)
end

function T.count_of(key)
    local c = T.counts[key]
    if not c then
        local count = tonumber(call('HGET', ROWS, 'c' .. key) or '0')
        c = {row = 'c' .. key, packed = T.count_packed, count = count}
        T.counts[key] = c
    end
    return c
end

function T.count_key(key, more)
    local c = T.count_of(key)
    c.count = c.count + more
    c.is_gone = c.count == 0
    T.change(c)
end

function T.touch(k)
    T.touched[#T.touched + 1] = k
end

function T.tell_gateway(id)
    T.told_gateways[id] = true
end

function T.news_for(s)
    T.put('n' .. s.id)
    T.tell_gateway(sub(s.id, 1, 14))
end
