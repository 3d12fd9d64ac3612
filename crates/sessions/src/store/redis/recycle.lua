
-- Who may restart, and what becomes of what it carried ------------------------------------------

-- After anything that wears a worker or frees it: notes since when it waits to go, lets it go at
-- once where no budget holds it, and settles it.
function T.wear(w)
    local k = T.kind_of(w.kind)
    if w.step == 'draining' and w.active == 0 then
        w.step, w.step_at = 'restarting', T.now
    end
    local worn = T.worn_out(k, w) or w.due_by
    if worn then
        w.waiting_since = w.waiting_since or T.now
    else
        w.waiting_since, w.hold = false, false
    end
    if k.policy ~= 'budgeted' and worn and not w.step and not (w.lost or w.removed or w.down)
        and not (w.probe_at and w.failures == 0) then
        w.permit_since = T.now
        if w.successor then
            w.step, w.step_at = 'succeeding', T.now
        elseif w.active == 0 then
            w.step, w.step_at = 'restarting', T.now
        else
            w.step, w.step_at = 'draining', T.now + k.drain_max_ms
        end
    end
    T.change(w)
    T.settle(w)
end

-- How many workers of a kind may be out.
function T.out_max(k)
    return max(k.out_count or floor(T.live_in(k) * k.out_percent / 100), 1)
end

function T.budget_allows(k)
    return k.out < T.out_max(k)
end

-- Gives permits to those who are due and idle, while the budget lasts.
function T.grant_permits(k)
    while k.ripe > 0 and T.budget_allows(k) do
        local first = T.all('p' .. k.key, 1)[1]
        local w = T.worker_of(tonumber(sub(first, 24)))
        w.permit_since, w.step_at = T.now, T.now
        w.step = w.successor and 'succeeding' or 'restarting'
        T.change(w)
        T.settle(w)
    end
end

-- Takes a worker's permit back, because it has returned or will not.
function T.release_permit(w, returned)
    if not w.step then
        return
    end
    local k = T.kind_of(w.kind)
    k.out_ms = k.out_ms + max(T.now - w.permit_since, 0)
    k.recycled = k.recycled + (returned and 1 or 0)
    w.permit_since, w.step, w.step_at = false, false, false
    T.change(k)
    T.change(w)
end

-- Tells the gateways to close a worker's sessions: all of them, those on the program that runs now
-- ('current'), or those on a program before it ('leaving'). They stay on record until that is done.
function T.end_sessions(w, which, why)
    if w.active + w.leaving == 0 then
        return
    end
    for _, member in ipairs(T.all('o' .. w.id)) do
        local s = T.session_of(sub(member, 16))
        local is_current = s.incarnation == w.incarnation
        local meant = which == 'all' or is_current == (which == 'current')
        if meant and not s.ending then
            s.ending = why
            T.change(s)
            T.news_for(s)
        end
    end
end

-- A worker has been silent for too long.
function T.lose(w)
    T.release_permit(w, false)
    T.end_sessions(w, 'all', 'worker-lost')
    w.lost = true
    T.change(w)
    T.settle(w)
    T.touch(T.kind_of(w.kind))
end

function T.unplace(w, k)
    if w.standing then
        T.set_timer(w, false)
        T.take_out(k, w)
        w.standing, w.place, w.ripe = false, false, false
        T.change(k)
    end
    T.drop('m' .. k.key .. w.id)
end

function T.forget(w)
    local k = T.kind_of(w.kind)
    T.unplace(w, k)
    T.drop('w' .. w.id)
    T.put('f' .. w.id)
    w.is_gone = true
    T.change(w)
    T.workers[w.number], T.names[w.name] = false, false
    T.write_plain('n' .. w.name, false)
    T.touch(k)
end

-- Forgets a worker that said it goes, once nothing is on it.
function T.forget_if_done(w)
    if w.parting and w.active + w.leaving == 0 then
        T.forget(w)
    end
end
