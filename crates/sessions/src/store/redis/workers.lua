
-- Workers come, live, fail and go ---------------------------------------------------------------

-- A record for a worker that is not known. One with sessions behind it comes from a table that
-- forgot it: gateways may carry something on it and must be heard first.
function T.enlist(k, ask)
    local free = T.all('f', 1)[1]
    local number
    if free then
        T.drop(free)
        number = tonumber(sub(free, 2))
    else
        T.meta.workers = T.meta.workers + 1
        number = T.meta.workers
    end
    T.meta.incarnations = T.meta.incarnations + 1
    local suspect = ask.lifetime > 0
    local id = pad(number)
    local w = {row = 'w' .. id, id = id, packed = T.worker_packed, number = number,
        name = ask.name, kind = k.name, shape = T.shape_in(k, ask.shape), url = ask.url,
        start = ask.start,
        incarnation = T.meta.incarnations, slots = 0, lifetime = 0, active = 0, leaving = 0,
        fresh = not ask.recycled, successor = ask.successor, permit_since = false, step = false,
        step_at = false, down = false, drained = false, removed = false, parting = false,
        lost = false, hold = false, due_by = false, failures = suspect and 0,
        probe_at = suspect and T.now + T.SETTLE_MS, waiting_since = false, since = T.now,
        heard = T.now,
        order = 'serve', standing = false, due = false, place = false, placed_shape = false,
        placed_slots = 0, placed_active = 0, placed_free = 0, held_idle = false, out = false,
        ripe = false, timer = false}
    T.workers[number], T.names[ask.name] = w, number
    T.write_plain('n' .. ask.name, text(number))
    T.put('m' .. k.key .. id)
    T.put('w' .. id)
    T.change(w)
    return w
end

function T.change_kind(w, k)
    local before = T.kind_of(w.kind)
    T.unplace(w, before)
    w.kind = k.name
    T.put('m' .. k.key .. w.id)
    T.touch(before)
end

-- The same program says again what it is.
function T.renew(w, ask)
    local k = T.kind_of(w.kind)
    w.url, w.shape, w.successor = ask.url, T.shape_in(k, ask.shape), ask.successor
    w.slots = ask.slots or k.slots_each
    w.lifetime = max(w.lifetime, ask.lifetime)
    w.heard = T.now
    w.lost, w.removed, w.parting = false, false, false
end

-- Another program under the same name.
function T.begin_life(w, ask)
    local succeeds = w.step == 'succeeding' and ask.recycled
    if not succeeds then
        T.end_sessions(w, 'all', 'worker-restarted')
        T.release_permit(w, ask.recycled)
    end
    T.meta.incarnations = T.meta.incarnations + 1
    if w.step then
        w.step, w.step_at = 'succeeded', T.now + T.kind_of(w.kind).drain_max_ms
    end
    w.leaving, w.active, w.lifetime = w.leaving + w.active, 0, 0
    w.incarnation, w.start, w.fresh = T.meta.incarnations, ask.start, not ask.recycled
    w.down, w.hold, w.due_by = false, false, false
    w.failures, w.probe_at, w.waiting_since = false, false, false
    if ask.lifetime > 0 then
        -- The table knew an older life of it: gateways may carry something on it.
        w.failures, w.probe_at = 0, T.now + T.SETTLE_MS
    end
    w.since = T.now
    T.renew(w, ask)
end

function T.register(ask)
    local k = T.kind_of(ask.kind)
    if not k then
        return '{"answer":"unconfigured"}'
    end
    local w = T.worker_named(ask.name) or T.enlist(k, ask)
    local same_life = w.start == ask.start
    if same_life and w.removed and not w.parting then
        return '{"answer":"replaced"}'
    end
    if w.kind ~= k.name then
        T.change_kind(w, k)
    end
    if same_life then
        T.renew(w, ask)
    else
        T.begin_life(w, ask)
    end
    T.wear(w)
    T.touch(k)
    return format('{"answer":"registered","worker":%d,"incarnation":%d,"slots":%d,'
        .. '"lifetime_max":%d}', w.number, w.incarnation, w.slots, k.lifetime_max)
end

function T.heartbeat(name, incarnation, phase, due, lifetime, old_gone)
    local w = T.worker_named(name)
    if not w then
        return '{"answer":"unknown"}'
    elseif incarnation < w.incarnation then
        return '{"answer":"replaced"}'
    elseif incarnation > w.incarnation or w.parting then
        return '{"answer":"unknown"}'
    end
    w.heard = T.now
    if not w.removed then
        w.lost = false
        w.lifetime = max(w.lifetime, lifetime)
        w.due_by = due
        local was_down = w.down
        w.down = phase == 'down' or (phase == 'restarting' and w.step ~= 'restarting')
        old_gone = old_gone and w.step == 'succeeded'
        if w.down and not was_down then
            T.end_sessions(w, 'current', 'worker-down')
        end
        if old_gone then
            T.end_sessions(w, 'leaving', 'worker-restarted')
            T.release_permit(w, true)
        end
    end
    T.wear(w)
    T.touch(T.kind_of(w.kind))
    T.finish()
    return format('{"answer":"ordered","order":"%s","lifetime":%d,"active":%d,"leaving":%d}',
        w.order, w.lifetime, w.active, w.leaving)
end

function T.remove(name, by_worker)
    local w = T.worker_named(name)
    if not w then
        return '{"answer":"unknown"}'
    end
    T.release_permit(w, false)
    T.end_sessions(w, 'all', 'worker-removed')
    w.removed, w.parting = true, w.parting or by_worker
    T.change(w)
    T.settle(w)
    T.touch(T.kind_of(w.kind))
    T.forget_if_done(w)
    return '{"answer":"done"}'
end

function T.drain(name, drained)
    local w = T.worker_named(name)
    if not w then
        return '{"answer":"unknown"}'
    end
    w.drained = drained
    T.change(w)
    T.settle(w)
    T.touch(T.kind_of(w.kind))
    return '{"answer":"done"}'
end

function T.probe_wait(failures)
    return min(T.PROBE_FIRST_MS * 2 ^ min(max(failures - 1, 0), 16), T.PROBE_MAX_MS)
end

function T.probed(number, incarnation, good)
    local w = T.worker_of(number)
    if not w then
        return '{"answer":"unknown"}'
    elseif w.incarnation ~= incarnation then
        return '{"answer":"replaced"}'
    end
    if good then
        w.failures, w.probe_at = false, false
    elseif w.probe_at then
        w.failures = w.failures + 1
        w.probe_at = T.now + T.probe_wait(w.failures)
    end
    T.wear(w)
    T.touch(T.kind_of(w.kind))
    return '{"answer":"done"}'
end

-- A worker that is gone has been shown for long enough; while it has sessions it stays.
function T.forget_or_wait(w)
    if w.active + w.leaving == 0 then
        T.forget(w)
    else
        w.heard = T.now
        T.change(w)
        T.settle(w)
    end
end

-- A worker that is held or asked to be recycled has waited long enough to become idle.
function T.lose_patience(w)
    local k = T.kind_of(w.kind)
    local held = w.hold or T.worn_out(k, w)
    if held and w.active > 0 and T.budget_allows(k) then
        w.permit_since, w.step, w.step_at = T.now, 'draining', false
        T.change(w)
        T.settle(w)
        T.end_sessions(w, 'current', 'drain-limit')
    elseif held then
        w.waiting_since = max(T.now + 1000 - k.drain_max_ms, 0)
    else
        w.hold, w.waiting_since = true, T.now
    end
    T.change(w)
end

-- What became of a permit whose time is over.
function T.look_after_permit(w, k)
    local at = w.step_at
    if w.step == 'draining' or w.step == 'succeeded' then
        if at and at <= T.now then
            w.step_at = false
            T.end_sessions(w, w.step == 'draining' and 'current' or 'leaving', 'drain-limit')
        end
    elseif at + k.restart_max_ms <= T.now then
        w.down = w.down or w.step == 'restarting'
        T.release_permit(w, false)
    end
end

-- Does what is due for a worker now; the question to ask it, if it is suspect.
function T.look_after(w)
    local k = T.kind_of(w.kind)
    T.touch(k)
    if w.lost or w.removed then
        T.forget_or_wait(w)
        return nil
    elseif T.now - w.heard > k.heartbeat_ms then
        T.lose(w)
        return nil
    end
    if w.step then
        T.look_after_permit(w, k)
    elseif w.waiting_since and w.waiting_since + k.drain_max_ms <= T.now then
        T.lose_patience(w)
    end
    local probe
    if w.probe_at and w.probe_at <= T.now then
        w.probe_at = T.now + T.PROBING_MS
        probe = format('{"worker":%d,"incarnation":%d,"url":%s}', w.number, w.incarnation,
            T.quoted(w.url))
    end
    T.change(w)
    T.settle(w)
    return probe
end
