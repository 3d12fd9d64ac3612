
-- The step --------------------------------------------------------------------------------------

-- ARGV: what is asked, the time if it is not the server's, where hints are said, and the question.
local ask, channel = ARGV[1], ARGV[3]

-- The server is another one, or was started again: what it has may be from before the last steps.
-- So every gateway has to say again what it carries, and every worker is left alone for as long
-- as that may take.
function T.doubt()
    for _, member in ipairs(T.all('g')) do
        local g = T.gateway_of(sub(member, 16))
        g.link = -1
        T.change(g)
    end
    for _, member in ipairs(T.all('w')) do
        local w = T.worker_of(tonumber(sub(member, 2)))
        if not w.probe_at then
            w.failures, w.probe_at = 0, T.now + T.SETTLE_MS
            T.change(w)
            T.settle(w)
        end
    end
end

-- Whom the step concerns, as words in order: gateways, then workers.
function T.hints()
    if not next(T.told_gateways) and not next(T.told_workers) then
        return ''
    end
    local words, numbers = {}, {}
    for id in pairs(T.told_gateways) do
        words[#words + 1] = id
    end
    table.sort(words)
    for place, id in ipairs(words) do
        words[place] = 'g' .. text(tonumber(id))
    end
    for worker in pairs(T.told_workers) do
        numbers[#numbers + 1] = worker
    end
    table.sort(numbers)
    for _, worker in ipairs(numbers) do
        words[#words + 1] = 'w' .. text(worker)
    end
    return concat(words, ' ')
end

-- Reads what is known of the table, which a server that throws keys away may have lost in part:
-- then what is left does not fit together and is not believed.
local known = call('HGET', ROWS, 'm')
local meta = known and T.unpacked(known)
T.index_size = call('ZCARD', INDEX)
if meta and meta[1] == T.index_size then
    local m = T.meta
    m.kinds, m.workers, m.incarnations, m.clock = meta[2], meta[3], meta[4], meta[5]
    m.run, m.checked = meta[6], meta[7]
elseif known or T.index_size > 0 then
    call('UNLINK', ROWS, INDEX)
    T.index_size = 0
end

-- Where the question begins; a number, or false where none is given; yes or no.
local one, two, three, four, five, six, seven, eight, nine = unpack(ARGV, 4, 12)
local function number(word)
    return word ~= '' and tonumber(word)
end

if ask == 'kinds' then
    return {T.look_kinds(), ''}
elseif ask == 'workers' then
    return {T.look_workers(number(one), number(two)), ''}
elseif ask == 'worker' then
    return {T.look_worker(one), ''}
elseif ask == 'sessions' then
    return {T.look_sessions(one, number(two)), ''}
end

local time = call('TIME')
local server_ms = time[1] * 1000 + floor(time[2] / 1000)
T.now = max(number(ARGV[2]) or server_ms, T.meta.clock)
T.meta.clock = T.now

-- Asking the server who it is costs as much as a tenth of a step, and it cannot be started again,
-- or be followed by another, between two steps that are this close.
local since_checked = server_ms - T.meta.checked
if since_checked < 0 or since_checked >= 10 then
    local run = string.match(call('INFO', 'server'), 'run_id:(%w+)')
    if T.meta.run ~= run and T.meta.run ~= '' then
        T.doubt()
    end
    T.meta.run, T.meta.checked = run, server_ms
end

local said
if ask == 'checkout' then
    said = T.checkout(one, number(two), one .. three, four, five, six, number(seven),
        number(eight), nine == '1')
elseif ask == 'close' then
    said = T.close_said(one, number(two), one .. three, four)
elseif ask == 'beat' then
    said = T.beat(one, number(two))
elseif ask == 'heartbeat' then
    said = T.heartbeat(one, number(two), three, four ~= '' and four, number(five), six == '1')
elseif ask == 'register' then
    said = T.register({name = one, kind = two, url = three, slots = number(four), shape = five,
        start = six, lifetime = number(seven), recycled = eight == '1', successor = nine == '1'})
elseif ask == 'join' then
    said = T.join(one, number(two), number(three), four, number(five), 9)
elseif ask == 'leave' then
    said = T.leave(one, number(two))
elseif ask == 'probed' then
    said = T.probed(number(one), number(two), three == '1')
elseif ask == 'remove' then
    said = T.remove(one, two == '1')
elseif ask == 'drain' then
    said = T.drain(one, two == '1')
elseif ask == 'end' then
    said = T.end_session(one)
else
    said = T.configure(one, two)
end
T.finish()

local concerned = T.hints()
if concerned ~= '' then
    call('PUBLISH', channel, concerned)
end
T.save_index()
T.change(T.meta)
T.save_rows()
return {said, concerned}
