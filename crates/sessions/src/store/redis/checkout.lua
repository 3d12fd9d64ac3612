
-- A session begins and ends ---------------------------------------------------------------------

-- Answers unless this is the present link of a gateway that is in.
function T.refusal(id, link)
    local g = T.gateway_of(id)
    if not g or g.link < link then
        return '{"answer":"unknown"}'
    elseif g.link > link then
        return '{"answer":"replaced"}'
    end
    return nil
end

-- Whether any live worker will do for a want, now or later.
function T.has_any(k, want)
    for shape = 1, #k.live do
        if T.will_do(k, want, shape, k.live) then
            return true
        end
    end
    return false
end

-- What there is instead of what was wanted.
function T.no_match(k)
    local labels, versions = {}, {}
    local shapes = T.shapes_of(k)
    for number, live in ipairs(k.live) do
        if live > 0 then
            local _, version, has = unpack(shapes[number])
            if version then
                versions[#versions + 1] = T.quoted(version)
            end
            for _, label in ipairs(has) do
                labels[#labels + 1] = T.quoted(label)
            end
        end
    end
    return '{"answer":"refused","why":"no_match","labels":[' .. concat(labels, ',')
        .. '],"versions":[' .. concat(versions, ',') .. ']}'
end

function T.waiting_in(k)
    return '{"answer":"waiting","waiting":' .. text(k.waiting) .. '}'
end

-- A session wants a worker. `id` is its gateway's and its ticket.
function T.checkout(gateway, link, id, kind, want, key, key_max, avoid, may_wait)
    local refused = T.refusal(gateway, link)
    if refused then
        return refused
    end
    local s = T.session_of(id)
    if s and s.ending then
        -- That it is over comes with the news.
        T.news_for(s)
        return T.waiting_in(T.kind_of(s.kind))
    elseif s and s.worker then
        local w = T.worker_of(s.worker)
        if w.incarnation == s.incarnation then
            return '{"answer":"seated",' .. T.seat_said(w, s.due) .. '}'
        end
        -- Its seat is of no use any more, and nobody has heard of it: it asks anew.
        T.close(id, 'unused')
        T.finish()
    elseif s then
        return T.waiting_in(T.kind_of(s.kind))
    end
    local k = T.kind_of(kind)
    if not k then
        return '{"answer":"unconfigured"}'
    end
    if key_max ~= 0 and T.count_of(key).count >= key_max then
        return '{"answer":"refused","why":"key_limit"}'
    end
    local w = T.pick(k, want, avoid)
    if w then
        local standings = concat(k.standings, ',')
        local due = T.seat(id, k, key, w)
        T.touch(k)
        return '{"answer":"seated",' .. T.seat_said(w, due, standings) .. '}'
    end
    if T.live_in(k) == 0 then
        return '{"answer":"refused","why":"no_workers"}'
    elseif not T.has_any(k, want) then
        return T.no_match(k)
    elseif not may_wait or avoid then
        -- The line knows nothing of who is to be avoided.
        return '{"answer":"refused","why":"busy"}'
    elseif k.waiting >= k.waiting_max then
        return '{"answer":"refused","why":"line_full"}'
    end
    T.wait(id, k, key, want)
    return T.waiting_in(k)
end

-- A session has ended, or was given up.
function T.close(id, how)
    local s = T.session_of(id)
    if not s then
        return
    end
    T.remove_session(s)
    T.count_key(s.key, -1)
    T.drop('n' .. id)
    T.touch(T.kind_of(s.kind))
    if not s.worker then
        T.leave_line(s)
        return
    end
    local w = T.worker_of(s.worker)
    -- It may have become one of another kind since.
    T.touch(T.kind_of(w.kind))
    if w.incarnation == s.incarnation then
        w.active = w.active - 1
        if how ~= 'ended' then
            w.lifetime = max(w.lifetime - 1, 0)
        end
        if how == 'failed' and not w.probe_at then
            w.failures, w.probe_at = 1, T.now + T.PROBE_FIRST_MS
        end
    else
        w.leaving = w.leaving - 1
    end
    T.wear(w)
    T.forget_if_done(w)
end

function T.close_said(gateway, link, id, how)
    local refused = T.refusal(gateway, link)
    if not refused then
        T.close(id, how)
    end
    return refused or '{"answer":"done"}'
end
