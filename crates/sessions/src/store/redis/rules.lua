
-- Rules -----------------------------------------------------------------------------------------

-- Sets the rules of a kind; its workers are put where they belong under them.
function T.configure(name, said)
    local k = T.kind_of(name)
    if k and call('HGET', ROWS, 'y' .. name) == said then
        return '{"answer":"done"}'
    end
    local is_known = k
    if not k then
        local number = T.meta.kinds + 1
        T.meta.kinds = number
        k = {row = 'k' .. name, packed = T.kind_packed, name = name, number = number,
            standings = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, live = {}, open = {}, slots = 0,
            active = 0, free = 0, held_idle = 0, ripe = 0, out = 0, counted = 0, waiting = 0,
            served = 0, arrivals = 0, started = 0, recycled = 0, out_ms = 0,
            key = short_pad(number)}
        T.kinds[name] = k
        T.put('k' .. name)
    end
    local rules = cjson.decode(said)
    k.policy, k.slots_each, k.lifetime_max = rules.policy, rules.slots, rules.lifetime_max
    k.out_count, k.out_percent = rules.budget.count or false, rules.budget.percent or false
    k.heartbeat_ms, k.drain_max_ms = rules.heartbeat_ms, rules.drain_max_ms
    k.restart_max_ms, k.waiting_max = rules.restart_max_ms, rules.waiting_max
    T.write_plain('y' .. name, said)
    T.change(k)
    if is_known then
        T.settle_all(k)
        T.touch(k)
    end
    return '{"answer":"done"}'
end
