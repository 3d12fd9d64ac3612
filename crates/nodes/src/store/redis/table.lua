-- One request to the ownership table, exactly as Table::apply in skep_policy::ownership.
--
-- meta     hash: epoch, tag, run, settled, counter, floor, sizes
-- nodes    hash: name -> session|seq|weight|status|bytes of instance|instance info
-- rows     hash: key -> session|counter|due
-- changes  sorted set: key by counter; tombs: the forgotten ones among them
--
-- Tags, dues and ids are texts throughout: a number here is exact only up to 2^53.
--
-- Redis without memory or replicas refuses a script's first write, and none after that: a request
-- is answered whole or not at all.
local META, NODES, ROWS, CHANGES, TOMBS = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local ask = ARGV[1]
local seen_epoch, seen_tag, seen_counter = tonumber(ARGV[2]), ARGV[3], tonumber(ARGV[4])
local nonce, channel = ARGV[5], ARGV[6]
local tombs_max, page_rows = tonumber(ARGV[7]), tonumber(ARGV[8])
local least = tonumber(ARGV[9])
local FIRST = 10

local call = redis.call

local function text(number)
    return string.format('%.0f', number)
end

-- How much there is of everything. A server that was told to make room by throwing keys away may
-- throw away one of these; then what is left does not fit together and is not believed.
local function sizes()
    return call('HLEN', NODES) .. ' ' .. call('HLEN', ROWS) .. ' '
        .. call('ZCARD', CHANGES) .. ' ' .. call('ZCARD', TOMBS)
end

local known = call('HMGET', META, 'epoch', 'tag', 'run', 'settled', 'counter', 'floor', 'sizes')
local epoch, tag = tonumber(known[1] or '0'), known[2]
local settled = known[4] == '1'
local counter, floor = tonumber(known[5] or '0'), tonumber(known[6] or '0')
local run = string.match(call('INFO', 'server'), 'run_id:(%w+)')

local everybody, somebody = false, {}

local lost = not known[1] or known[3] ~= run or known[7] ~= sizes()
    or seen_epoch > epoch
    or (seen_epoch == epoch and seen_tag ~= tag and seen_tag ~= '0' and seen_epoch > 0)
    or (seen_epoch == epoch and seen_tag == tag and seen_counter > counter)
if lost then
    if least > 0 then
        -- The request may have been long on its way.
        least = math.max(least, tonumber(call('TIME')[1]))
    end
    epoch, tag = math.max(math.max(epoch, seen_epoch) + 1, least), nonce
    settled, counter, floor = false, math.max(counter, seen_counter), 0
    call('HSET', META, 'epoch', text(epoch), 'tag', tag, 'run', run, 'settled', '0',
        'counter', text(counter), 'floor', '0', 'sizes', '0 0 0 0')
    call('UNLINK', NODES, ROWS, CHANGES, TOMBS)
    everybody = true
end

local function next_number()
    counter = counter + 1
    return text(counter)
end

local function save_counter()
    call('HSET', META, 'counter', text(counter), 'floor', text(floor))
end

local function save_sizes()
    call('HSET', META, 'sizes', sizes())
end

local function pack_node(session, seq, weight, status, instance, info)
    return table.concat({session, seq, weight, status, #instance, instance .. info}, '|')
end

-- session, seq, weight, status, instance
local function node(name)
    local packed = call('HGET', NODES, name)
    if not packed then
        return nil
    end
    local session, seq, weight, status, bytes, rest =
        string.match(packed, '^(%d+)|(%d+)|(%d+)|(%a+)|(%d+)|(.*)$')
    return session, seq, weight, status, string.sub(rest, 1, tonumber(bytes))
end

local function join(name, instance, weight, status, info)
    local session, seq, _, _, present = node(name)
    if session and present ~= instance then
        return {'held', session, seq, present}
    end
    seq = next_number()
    session = session or seq
    save_counter()
    call('HSET', NODES, name, pack_node(session, seq, weight, status, instance, info))
    save_sizes()
    everybody = true
    return {'joined', session, seq}
end

local function tick(name, session, weight, status, info, since, known_floor)
    local present, _, weight_before, status_before, instance = node(name)
    if present ~= session then
        return {'no-session'}
    end
    if weight_before ~= weight or status_before ~= status then
        everybody = true
    end
    local seq = next_number()
    save_counter()
    call('HSET', NODES, name, pack_node(session, seq, weight, status, instance, info))
    local full = tonumber(known_floor) < floor and tonumber(since) < floor
    if full then
        since = '0'
    end
    local keys = call('ZRANGEBYSCORE', CHANGES, '(' .. since, '+inf', 'LIMIT', 0, page_rows + 1)
    local more = #keys > page_rows
    keys[page_rows + 1] = nil
    local packed = {}
    if #keys > 0 then
        packed = call('HMGET', ROWS, unpack(keys))
    end
    local upto = text(counter)
    if more then
        upto = string.match(packed[page_rows], '|(%d+)|')
    end
    local nodes = call('HGETALL', NODES)
    local said = {'ticked', seq, upto, more and '1' or '0', full and '1' or '0', text(floor),
        text(#nodes / 2)}
    for _, part in ipairs(nodes) do
        said[#said + 1] = part
    end
    for place, key in ipairs(keys) do
        said[#said + 1] = key
        said[#said + 1] = packed[place]
    end
    return said
end

-- Answers the caller unless it is the node's session with its newest number.
local function refusal(name, session, seq)
    local present, newest = node(name)
    if present ~= session then
        return {'no-session'}
    end
    if newest ~= seq then
        return {'stale'}
    end
    return nil
end

-- The rows that this request is about: key -> {session, counter, due}, or false.
local rows = {}
-- The keys whose rows are not what is stored any more, each once.
local changed, is_changed = {}, {}

local function load_rows(first, step)
    local keys = {}
    for place = first, #ARGV, step do
        local key = ARGV[place]
        if rows[key] == nil then
            rows[key] = false
            keys[#keys + 1] = key
        end
    end
    if #keys == 0 then
        return
    end
    for place, packed in ipairs(call('HMGET', ROWS, unpack(keys))) do
        if packed then
            rows[keys[place]] = {string.match(packed, '^(%d+)|(%d+)|(-?%d+)$')}
        end
    end
end

local function put(key, row)
    rows[key] = row
    if not is_changed[key] then
        is_changed[key] = true
        changed[#changed + 1] = key
    end
end

local function set(key, session, due)
    put(key, {session, next_number(), due})
end

local function owner(key)
    return rows[key] and rows[key][1]
end

-- The sessions there are, and the names of those who take work.
local function sessions()
    local live, online = {}, {}
    local nodes = call('HGETALL', NODES)
    for place = 1, #nodes, 2 do
        local session, status = string.match(nodes[place + 1], '^(%d+)|%d+|%d+|(%a+)|')
        live[session] = true
        if status == 'online' then
            online[session] = nodes[place]
        end
    end
    return live, online
end

local function save_rows()
    if #changed == 0 then
        return
    end
    save_counter()
    local values, scores, gone = {}, {}, {}
    for _, key in ipairs(changed) do
        local row = rows[key]
        if row then
            values[#values + 1], values[#values + 2] = key, table.concat(row, '|')
            scores[#scores + 1], scores[#scores + 2] = row[2], key
        else
            gone[#gone + 1] = key
        end
    end
    if #values > 0 then
        call('HSET', ROWS, unpack(values))
        call('ZADD', CHANGES, unpack(scores))
    end
    if #gone > 0 then
        call('HDEL', ROWS, unpack(gone))
        call('ZREM', CHANGES, unpack(gone))
    end
    if ask ~= 'forget' then
        call('ZREM', TOMBS, unpack(changed))
    end
    save_sizes()
end

-- What happens to one key, by what is asked. `place` is that of the key in ARGV.
local step_of = {claim = 1, reclaim = 3, handoff = 3, release = 2, forget = 1}
local function work_on_keys(session)
    local first, step = FIRST + 3, step_of[ask]
    load_rows(first, step)
    local live, online = sessions()
    local tombs = ask == 'forget' and call('ZCARD', TOMBS)
    local function is_free(key)
        local held_by = owner(key)
        return not held_by or held_by == '0' or not live[held_by]
    end
    local said = {'rows'}
    for place = first, #ARGV, step do
        local key = ARGV[place]
        if ask == 'claim' then
            if settled and is_free(key) then
                set(key, session, rows[key] and rows[key][3] or '0')
            end
        elseif ask == 'reclaim' then
            if tonumber(ARGV[place + 1]) < epoch and is_free(key) then
                set(key, session, ARGV[place + 2])
            end
        elseif ask == 'handoff' then
            local target = ARGV[place + 1]
            if online[target] and owner(key) == session then
                set(key, target, ARGV[place + 2])
                somebody[online[target]] = true
            end
        elseif ask == 'release' then
            if owner(key) == session then
                set(key, '0', ARGV[place + 1])
                everybody = true
            end
        elseif rows[key] and not call('ZSCORE', TOMBS, key)
            and (owner(key) == session or is_free(key)) then
            set(key, '0', '0')
            call('ZADD', TOMBS, rows[key][2], key)
            tombs = tombs + 1
            while tombs > tombs_max do
                local oldest = call('ZPOPMIN', TOMBS)
                put(oldest[1], false)
                floor = tonumber(oldest[2])
                tombs = tombs - 1
            end
        end
        said[#said + 1] = rows[key] and table.concat(rows[key], '|') or '0|0|0'
    end
    save_rows()
    return said
end

local function expire(session, seq)
    local nodes = call('HGETALL', NODES)
    for place = 1, #nodes, 2 do
        local present, newest = string.match(nodes[place + 1], '^(%d+)|(%d+)|')
        if present == session then
            if newest ~= seq then
                return {'expired', '0'}
            end
            call('HDEL', NODES, nodes[place])
            save_sizes()
            everybody = true
            return {'expired', '1'}
        end
    end
    return {'expired', '0'}
end

local function end_grace(name, session)
    if node(name) ~= session then
        return {'no-session'}
    end
    if not settled then
        settled, everybody = true, true
        call('HSET', META, 'settled', '1')
    end
    return {'done'}
end

local function bye(name)
    call('HDEL', NODES, name)
    save_sizes()
    everybody = true
    return {'done'}
end

local function answer()
    if ask == 'join' then
        return join(unpack(ARGV, FIRST))
    end
    if seen_epoch ~= epoch or seen_tag ~= tag then
        return {'other-epoch'}
    end
    if ask == 'tick' then
        return tick(unpack(ARGV, FIRST))
    elseif ask == 'expire' then
        return expire(ARGV[FIRST], ARGV[FIRST + 1])
    elseif ask == 'end-grace' then
        return end_grace(ARGV[FIRST], ARGV[FIRST + 1])
    end
    local name, session, seq = ARGV[FIRST], ARGV[FIRST + 1], ARGV[FIRST + 2]
    local refused = refusal(name, session, seq)
    if refused then
        return refused
    elseif ask == 'bye' then
        return bye(name)
    end
    return work_on_keys(session)
end

local said = answer()
if everybody then
    call('PUBLISH', channel, '*')
else
    for name in pairs(somebody) do
        call('PUBLISH', channel, name)
    end
end
local time = call('TIME')
local clock_ms = time[1] * 1000 + math.floor(time[2] / 1000)
return {text(epoch), tag, settled and '1' or '0', text(clock_ms), said}
