
-- Puts a worker where its state says it belongs --------------------------------------------------

-- How far below the limit a worker is nearly worn out.
function T.window(k, count)
    local margin = floor(k.lifetime_max / max(count, 1))
    if k.policy ~= 'lifetime-first' then
        margin = min(margin, floor(k.lifetime_max / 5))
    end
    return max(margin, 1)
end

-- The number of sessions from which on a worker is nearly worn out; false is never.
function T.due_at(k, w)
    if k.lifetime_max == 0 or k.policy == 'least-loaded' then
        return false
    end
    local width = T.window(k, k.counted)
    local edge = max(k.lifetime_max - width, 0)
    if k.policy == 'lifetime-first' then
        return edge
    end
    edge = max(edge, 1)
    if not w.fresh then
        return edge
    end
    local low = min(width, edge)
    local turn = (w.number % 65536) * 40503 % 65536
    return low + floor(turn * (edge - low + 1) / 65536)
end

function T.worn_out(k, w)
    return k.lifetime_max ~= 0 and w.lifetime >= k.lifetime_max
end

-- Below 2^53 for whoever can take a session, which is all that is put in order.
function T.rank(k, w, due)
    if k.policy == 'lifetime-first' then
        return (4294967295 - w.lifetime) * 1048576 + w.active
    elseif k.policy == 'budgeted' and due then
        return (65536 - floor(w.active * 65536 / max(w.slots, 1))) * 4294967296 + w.lifetime
    end
    local load = floor(w.active * 65536 / max(w.slots, 1)) * 4294967296
    return load + (k.policy == 'budgeted' and 4294967295 - w.lifetime or w.lifetime)
end

function T.standing_of(k, w, due)
    if w.removed then
        return 11
    elseif w.lost then
        return 10
    elseif w.step == 'restarting' then
        return 6
    elseif w.step == 'draining' then
        return 5
    elseif w.down then
        return 9
    elseif w.drained then
        return 7
    elseif w.probe_at then
        return 8
    elseif w.hold or T.worn_out(k, w) then
        return 4
    elseif w.active >= w.slots then
        return 3
    end
    return due and 2 or 1
end

-- When the worker must be looked after, whatever happens.
function T.timer_of(k, w)
    if w.lost or w.removed then
        return w.heard + k.heartbeat_ms + T.FORGET_MS
    end
    local first = w.heard + k.heartbeat_ms + 1
    if w.step == 'draining' or w.step == 'succeeded' then
        first = min(first, w.step_at or first)
    elseif w.step then
        first = min(first, w.step_at + k.restart_max_ms)
    elseif w.waiting_since then
        first = min(first, w.waiting_since + k.drain_max_ms)
    end
    return min(first, w.probe_at or first)
end

function T.order_of(w)
    if w.removed then
        return 'leave'
    elseif w.step == 'restarting' and not w.down then
        return 'restart'
    elseif w.step == 'succeeding' then
        return 'succeed'
    elseif w.step == 'succeeded' and w.leaving == 0 then
        return 'stop_old'
    end
    return 'serve'
end

function T.take_out(k, w)
    local standing, shape = w.standing, w.placed_shape
    k.standings[standing] = k.standings[standing] - 1
    if w.place then
        T.drop(w.place)
        k.open[shape] = k.open[shape] - 1
    end
    if standing < 10 then
        k.live[shape] = k.live[shape] - 1
        k.slots, k.active = k.slots - w.placed_slots, k.active - w.placed_active
    end
    k.free = k.free - w.placed_free
    k.held_idle = k.held_idle - (w.held_idle and 1 or 0)
    k.out = k.out - (w.out and 1 or 0)
    if w.ripe then
        T.drop(w.ripe)
        k.ripe = k.ripe - 1
    end
end

function T.put_in(k, w)
    local standing, shape = w.standing, w.placed_shape
    k.standings[standing] = k.standings[standing] + 1
    if w.place then
        T.put(w.place)
        k.open[shape] = k.open[shape] + 1
    end
    if standing < 10 then
        k.live[shape] = k.live[shape] + 1
        k.slots, k.active = k.slots + w.placed_slots, k.active + w.placed_active
    end
    k.free = k.free + w.placed_free
    k.held_idle = k.held_idle + (w.held_idle and 1 or 0)
    k.out = k.out + (w.out and 1 or 0)
    if w.ripe then
        T.put(w.ripe)
        k.ripe = k.ripe + 1
    end
end

function T.set_timer(w, time)
    if w.timer == time then
        return
    end
    if w.timer then
        T.drop('t' .. pad(w.timer) .. w.id)
    end
    if time then
        T.put('t' .. pad(time) .. w.id)
    end
    w.timer = time
end

-- Brings everything that is derived from a worker up to date: its place among the others, the
-- counts of its kind, its timer and its order.
function T.settle(w)
    local k = T.kind_of(w.kind)
    local order = T.order_of(w)
    if order ~= w.order then
        w.order = order
        T.told_workers[w.number] = true
        T.change(w)
    end
    local point = T.due_at(k, w)
    local due = (point and w.lifetime >= point)
        or (w.due_by and k.policy == 'budgeted') and true or false
    local standing = T.standing_of(k, w, due)
    local place, free, ripe = false, 0, false
    if standing <= 2 then
        place = (standing == 1 and 'r' or 'd') .. k.key .. short_pad(w.shape)
            .. format('%016d', T.rank(k, w, due)) .. w.id
        free = max(w.slots - w.active, 0)
        if k.lifetime_max ~= 0 then
            free = min(free, max(k.lifetime_max - w.lifetime, 0))
        end
    end
    if k.policy == 'budgeted' and not w.step and (due or w.hold)
        and not (w.lost or w.removed or w.down or w.drained)
        and not (w.probe_at and w.failures == 0)
        and (w.active == 0 or w.successor) then
        ripe = 'p' .. k.key .. pad(4294967295 - w.lifetime) .. w.id
    end
    local held_idle = standing == 4 and w.active == 0
    local out = w.step and true or false
    local time = T.timer_of(k, w)
    if w.standing == standing and w.place == place and w.ripe == ripe and w.due == due
        and w.placed_shape == w.shape and w.placed_slots == w.slots
        and w.placed_active == w.active and w.placed_free == free and w.held_idle == held_idle
        and w.out == out and w.timer == time then
        return
    end
    if w.standing then
        T.take_out(k, w)
    end
    w.standing, w.due, w.place, w.ripe = standing, due, place, ripe
    w.placed_shape, w.placed_slots, w.placed_active = w.shape, w.slots, w.active
    w.placed_free, w.held_idle, w.out = free, held_idle, out
    T.put_in(k, w)
    T.set_timer(w, time)
    T.change(w)
    T.change(k)
end

-- Settles every worker of a kind, because its rules or its size changed.
function T.settle_all(k)
    k.counted = T.live_in(k)
    T.change(k)
    for _, member in ipairs(T.all('m' .. k.key)) do
        T.settle(T.worker_of(tonumber(sub(member, 10))))
    end
end

-- The due points depend on how many workers there are.
function T.rewindow(k)
    local live = T.live_in(k)
    if live == k.counted then
        return
    end
    local moved = T.window(k, live) ~= T.window(k, k.counted)
    k.counted = live
    T.change(k)
    if moved and k.lifetime_max ~= 0 and k.policy ~= 'least-loaded' then
        T.settle_all(k)
    end
end

function T.fits(said, shape)
    local want = T.wants[said]
    if not want then
        want = {T.parts_of(said)}
        T.wants[said] = want
    end
    if want[1] and shape[2] and want[1] ~= shape[2] then
        return false
    end
    for _, label in ipairs(want[2]) do
        local found = false
        for _, has in ipairs(shape[3]) do
            found = found or has == label
        end
        if not found then
            return false
        end
    end
    return true
end

-- Whether workers of this shape, if the kind has any in `counts`, will do for a want.
function T.will_do(k, want, shape, counts)
    return counts[shape] > 0 and (want == '' or T.fits(want, T.shapes_of(k)[shape]))
end

-- The best worker that fits, of those who are ready ('r') or due ('d').
function T.best_of(standing, k, want, avoid)
    local first
    for shape = 1, #k.open do
        if T.will_do(k, want, shape, k.open) then
            local prefix = standing .. k.key .. short_pad(shape)
            local found = T.all(prefix, avoid and 2 or 1)
            local member = found[1]
            if member and avoid and tonumber(sub(member, 34)) == avoid then
                member = found[2]
            end
            -- Behind the shape come rank and number, which put the best of all shapes in order.
            local place = member and sub(member, 18)
            if place and (not first or place < first) then
                first = place
            end
        end
    end
    return first and T.worker_of(tonumber(sub(first, 17)))
end

-- The worker that a session with this want gets, if one is free. Whoever turns out to be silent is
-- lost on the way.
function T.pick(k, want, avoid)
    while true do
        local w = T.best_of('r', k, want, avoid) or T.best_of('d', k, want, avoid)
        if not w or T.now - w.heard <= k.heartbeat_ms then
            return w
        end
        T.lose(w)
    end
end
