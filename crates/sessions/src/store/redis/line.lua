
-- Sessions that wait: first come, first served, and fair between keys ---------------------------

-- The last rank given to a key that waits, and how many of it wait.
function T.turn_packed(turn)
    return T.pack({turn.last, turn.waiting})
end

function T.turn_of(k, key)
    local row = 'q' .. k.key .. key
    local turn = T.turns[row]
    if not turn then
        local packed = call('HGET', ROWS, row)
        local a = packed and T.unpacked(packed) or {0, 0}
        turn = {row = row, packed = T.turn_packed, last = a[1], waiting = a[2]}
        T.turns[row] = turn
    end
    return turn
end

-- Puts a session in the line.
function T.wait(id, k, key, want)
    local turn = T.turn_of(k, key)
    local rank_in_line = max(k.served, turn.last) + 1
    turn.last, turn.waiting, turn.is_gone = rank_in_line, turn.waiting + 1, false
    T.change(turn)
    k.arrivals, k.waiting = k.arrivals + 1, k.waiting + 1
    T.change(k)
    local place = 'l' .. k.key .. want .. '\0' .. pad(rank_in_line) .. pad(k.arrivals) .. id
    T.put(place)
    T.add_session({id = id, kind = k.name, key = key, worker = false, incarnation = false,
        due = false, place = place})
    T.count_key(key, 1)
end

-- Takes a session out of the line.
function T.leave_line(s)
    local k = T.kind_of(s.kind)
    T.drop(s.place)
    local turn = T.turn_of(k, s.key)
    turn.waiting = turn.waiting - 1
    if turn.waiting == 0 then
        turn.last, turn.is_gone = 0, true
    end
    T.change(turn)
    k.waiting = k.waiting - 1
    T.change(k)
end

-- Writes the session down on its worker; whether that was due.
function T.seat(id, k, key, w)
    local due = w.due
    w.lifetime, w.active = w.lifetime + 1, w.active + 1
    T.add_session({id = id, kind = k.name, key = key, worker = w.number,
        incarnation = w.incarnation, due = due, place = false})
    T.count_key(key, 1)
    k.started = k.started + 1
    T.change(k)
    T.wear(w)
    return due
end

-- The seat as it is now; `standings` are its kind's, unless they are given.
function T.seat_said(w, due, standings)
    return format('"worker":%d,"name":%s,"start":%s,"url":%s,"lifetime":%d,"active":%d,'
        .. '"slots":%d,"due":%s,"standings":[%s]', w.number, T.quoted(w.name), T.quoted(w.start),
        T.quoted(w.url), w.lifetime, w.active, w.slots, tostring(due),
        standings or concat(T.kind_of(w.kind).standings, ','))
end

-- The first of each want, in the order of the line: {rank and arrival, id, want}.
function T.heads(k)
    local prefix, found = 'l' .. k.key, {}
    local from = '[' .. prefix
    while true do
        local member = T.range(from, prefix, 1)[1]
        if not member then
            break
        end
        -- Behind the want are its end, rank, arrival, gateway and ticket: 1 and 4 times 14 bytes.
        local want = sub(member, #prefix + 1, -58)
        found[#found + 1] = {sub(member, -56, -29), sub(member, -28), want}
        from = '(' .. prefix .. want .. '\1'
    end
    table.sort(found, function(one, other)
        return one[1] < other[1]
    end)
    return found
end

function T.serve_first(k)
    for _, head in ipairs(T.heads(k)) do
        local w = T.pick(k, head[3], false)
        if w then
            local s = T.session_of(head[2])
            T.leave_line(s)
            T.remove_session(s)
            k.served = max(k.served, tonumber(sub(head[1], 1, 14)))
            T.count_key(s.key, -1)
            T.seat(s.id, k, s.key, w)
            local seated = T.session_of(s.id)
            seated.ending = s.ending
            T.change(seated)
            T.news_for(seated)
            return true
        end
    end
    return false
end

-- Gives what is free to those who wait, in the order of the line.
function T.serve_line(k)
    if k.waiting == 0 or k.free == 0 then
        return
    end
    while T.serve_first(k) do end
end

-- What follows from what was done: the window moves with the number of workers, those who wait get
-- what is free, then those who are idle and due may go.
function T.finish()
    while #T.touched > 0 do
        local k = table.remove(T.touched)
        T.rewindow(k)
        T.serve_line(k)
        T.grant_permits(k)
    end
end
