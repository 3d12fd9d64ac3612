
-- Gateways come, live and go, and say what they carry -------------------------------------------

-- Whether the session is on the program that its gateway says. It may not be: the table may have
-- been brought back from an old copy.
function T.agrees(s, worker, start)
    if not s.worker then
        return false
    end
    local w = T.worker_of(s.worker)
    return w.name == worker and (w.incarnation == s.incarnation) == (w.start == start)
end

-- A gateway carries this session; whether its worker is known.
function T.carry(id, key, worker, start)
    local s = T.session_of(id)
    if s and T.agrees(s, worker, start) then
        if s.ending then
            T.news_for(s)
        end
        return true
    elseif s then
        T.close(id, 'ended')
    end
    local w = T.worker_named(worker)
    if not w or w.start ~= start then
        return false
    end
    w.active = w.active + 1
    if w.step == 'restarting' then
        -- It was sent away because its gateway was thought dead; perhaps it has not gone yet.
        w.step, w.step_at = 'draining', T.now + T.kind_of(w.kind).drain_max_ms
    end
    T.count_key(key, 1)
    T.add_session({id = id, kind = w.kind, key = key, worker = w.number,
        incarnation = w.incarnation, due = false, place = false})
    T.wear(w)
    T.touch(T.kind_of(w.kind))
    return true
end

function T.forget_news(id)
    local news = T.all('n' .. id)
    for _, member in ipairs(news) do
        T.drop(member)
    end
    return news
end

-- `first` is the place in ARGV of those that wait, and of those that are carried behind them.
function T.join(id, link, ttl, node, waiting, first)
    local g = T.gateway_of(id)
    if g and g.link > link then
        return '{"answer":"replaced"}'
    elseif g then
        T.drop(T.deadline_of(g))
        T.forget_news(id)
    end
    g = {row = 'g' .. id, packed = T.gateway_packed, id = id, link = link, ttl = ttl, heard = T.now,
        steady = T.now, node = node}
    T.gateways[id] = g
    T.change(g)
    T.put(T.deadline_of(g))
    local carried, said = first + waiting, {}
    for place = first, carried - 1 do
        said[id .. ARGV[place]] = true
    end
    for place = carried, #ARGV, 4 do
        said[id .. ARGV[place]] = true
    end
    for _, member in ipairs(T.all('s' .. id)) do
        local session = sub(member, 2)
        if not said[session] then
            T.close(session, 'ended')
        end
    end
    for place = first, carried - 1 do
        local s = T.session_of(id .. ARGV[place])
        if s and (s.worker or s.ending) then
            T.news_for(s)
        end
    end
    local unplaced = {}
    for place = carried, #ARGV, 4 do
        if not T.carry(id .. ARGV[place], ARGV[place + 1], ARGV[place + 2], ARGV[place + 3]) then
            unplaced[#unplaced + 1] = text(tonumber(ARGV[place]))
        end
    end
    return '{"answer":"joined","unplaced":[' .. concat(unplaced, ',') .. ']}'
end

-- Closes what a gateway carried, a step's worth at most; whether that was all. One that had more
-- stays, silent since ever and under a link that nobody uses, for others to reap.
function T.drop_gateway(g)
    local all = T.all('s' .. g.id)
    for place = 1, min(#all, T.CLOSINGS_PER_STEP) do
        T.close(sub(all[place], 2), 'ended')
    end
    if #all > T.CLOSINGS_PER_STEP then
        T.drop(T.deadline_of(g))
        g.heard, g.link = 0, g.link + 1
        T.put(T.deadline_of(g))
        T.change(g)
        return false
    end
    g.is_gone = true
    T.gateways[g.id] = false
    T.change(g)
    T.drop(T.deadline_of(g))
    return true
end

-- Takes back what gateways carried that have been silent for too long, unless who asks was away
-- itself: it cannot tell whether others were. How many there were.
function T.reap(steady_for)
    local dead = {}
    for _, member in ipairs(T.range('[g', 'g' .. pad(T.now), -1)) do
        local g = T.gateway_of(sub(member, 16))
        if T.now - g.heard > g.ttl and steady_for >= g.ttl then
            dead[#dead + 1] = g
        end
    end
    table.sort(dead, function(one, other)
        return one.id < other.id
    end)
    local gone = 0
    for _, g in ipairs(dead) do
        if T.drop_gateway(g) then
            gone = gone + 1
        end
    end
    return gone
end

function T.take_news(id)
    local said = {}
    for _, member in ipairs(T.forget_news(id)) do
        local s = T.session_of(sub(member, 2))
        local what
        if s and s.ending then
            what = '{"end":"' .. s.ending .. '"}'
        elseif s and s.worker then
            local w = T.worker_of(s.worker)
            what = w.incarnation == s.incarnation
                and '{"seated":{' .. T.seat_said(w, s.due) .. '}}'
                or '{"end":"worker-restarted"}'
        end
        if what then
            local ticket = text(tonumber(sub(member, 16)))
            said[#said + 1] = '{"ticket":' .. ticket .. ',"what":' .. what .. '}'
        end
    end
    return concat(said, ',')
end

function T.beat(id, link)
    local refused = T.refusal(id, link)
    if refused then
        return refused
    end
    local g = T.gateway_of(id)
    if T.now - g.heard > floor(g.ttl / 2) then
        g.steady = T.now
    end
    T.drop(T.deadline_of(g))
    g.heard = T.now
    T.put(T.deadline_of(g))
    T.change(g)
    local reaped = T.reap(T.now - g.steady)
    local probes = {}
    for _, member in ipairs(T.range('[t', 't' .. pad(T.now), T.TIMERS_PER_BEAT)) do
        local w = T.worker_of(tonumber(sub(member, 16)))
        if w then
            probes[#probes + 1] = T.look_after(w)
        end
    end
    T.finish()
    return format('{"answer":"beaten","news":[%s],"probes":[%s],"reaped":%d}', T.take_news(id),
        concat(probes, ','), reaped)
end

function T.leave(id, link)
    local refused = T.refusal(id, link)
    if refused then
        return refused
    end
    T.drop_gateway(T.gateway_of(id))
    return '{"answer":"done"}'
end

-- An operator ends a session.
function T.end_session(id)
    local s = T.session_of(id)
    if not s then
        return '{"answer":"unknown"}'
    end
    s.ending = s.ending or 'operator'
    T.change(s)
    T.news_for(s)
    return '{"answer":"done"}'
end
