-- Shared quotas: what edge/quota.c does, over keys that all servers share. One call is one step for everybody.
--
-- KEYS: 1 this server's hash (e: epoch, s: last sequence number, rN: its reservation N, dN: reservation N was given back), 2 the sorted set of servers by the microsecond that
-- their lease ends at, 3... the meters (hashes).
-- ARGV: 1 operation, 2 now in microseconds (0: the Redis's own clock; tests give theirs), 3 epoch of the connection; then
--   hello  lease_us                                   a connection begins: later calls of an older one are refused
--   beat   lease_us                                   still alive
--   take   N rows tokens spec...                      reserve, of all meters or of none
--   more   N rows tokens spec...                      the same for a reservation that is there
--   set    N seq  made rows  3 x really  spec...      settle or refund: N comes to `really` requests, rows, tokens. `made`: 1: it was
--                                                     confirmed, so if it isn't there, it was given back; `rows`: it had
--   add    seq  spec...                               used elsewhere while we were away: "unit:window:amount,..."
-- A spec is "unit:limit:burst,..." of its meter's policy; units as of enum quota_unit.
-- Answers: {-1} not the server's current connection; {0, ...} done; {1, meter, unit, left, reset_us, wait_us} refused.
local op, now, epoch = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
if now == 0 then
    local t = redis.call('TIME')
    now = t[1] * 1000000 + t[2]
end
local DAY, MINUTE = 86400000000, 60000000
local PERIOD = {[0] = 1000000, 1000000, MINUTE}
local RESOURCE = {[0] = 1, 2, 3, 1, 1, 3, 1, 3}
local floor, min, max = math.floor, math.min, math.max
-- Fields of a meter: level and as of when, of a bucket; window and what is used of it, of a budget.
local L = {[0] = 'l0', 'l1', 'l2'}
local A = {[0] = 'a0', 'a1', 'a2'}
local W = {[4] = 'w4', [5] = 'w5', [6] = 'w6', [7] = 'w7'}
local U = {[4] = 'u4', [5] = 'u5', [6] = 'u6', [7] = 'u7'}

-- Months since March of the year 0, as month_of and month_begin_s of quota.c.
local day, month, month_end = floor(now / DAY), nil, nil
do
    local z = day + 719468
    local era = floor(z / 146097)
    local doe = z - era * 146097
    local yoe = floor((doe - floor(doe / 1460) + floor(doe / 36524) - floor(doe / 146096)) / 365)
    local doy = doe - (365 * yoe + floor(yoe / 4) - floor(yoe / 100))
    month = (yoe + era * 400) * 12 + floor((5 * doy + 2) / 153)
    local y = floor((month + 1) / 12)
    local e = floor(y / 400)
    yoe = y % 400
    doy = floor((153 * ((month + 1) % 12) + 2) / 5)
    month_end = (e * 146097 + yoe * 365 + floor(yoe / 4) - floor(yoe / 100) + doy - 719468) * DAY
end
local function window_of(u) return u < 6 and day or month end
local function window_end(u) return u < 6 and (day + 1) * DAY or month_end end

local function read(key)
    local m, flat = {}, redis.call('HGETALL', key)
    for i = 1, #flat, 2 do m[flat[i]] = tonumber(flat[i + 1]) end
    return m
end
local function parse(spec)
    local list = {}
    for u, l, b in string.gmatch(spec, '(%d+):(%d+):(%d+)') do list[#list + 1] = {tonumber(u), tonumber(l), tonumber(b)} end
    return list
end
-- Bring one limit of a meter up to now.
local function refresh(m, s)
    local u = s[1]
    if PERIOD[u] then
        local cap, at = s[3] * PERIOD[u], m[A[u]] or now
        m[L[u]] = min((m[L[u]] or cap) + max(now - at, 0) * s[2], cap)
        m[A[u]] = max(now, at)
    elseif u == 3 then
        m.c = m.c or 0
    else
        local w = window_of(u)
        if w > (m[W[u]] or w) then m[U[u]] = 0 end
        m[W[u]] = w
        m[U[u]] = m[U[u]] or 0
    end
end
local function left_of(m, s)
    local u = s[1]
    if PERIOD[u] then return floor(m[L[u]] / PERIOD[u]) end
    return max(s[2] - (u == 3 and m.c or m[U[u]]), 0)
end
local function reset_of(m, s)
    local u = s[1]
    if PERIOD[u] then return math.ceil((s[3] * PERIOD[u] - m[L[u]]) / s[2]) end
    return u > 3 and window_end(u) - now or 0
end
-- Each key ends by itself: a bucket when it is full again, a count of what runs when no reservation can be left, a budget after its window.
local function write(key, m, specs, ttl)
    local args = {}
    ttl = ttl or 0
    for _, s in ipairs(specs) do
        local u = s[1]
        if PERIOD[u] then
            args[#args + 1] = L[u]
            args[#args + 1] = m[L[u]]
            args[#args + 1] = A[u]
            args[#args + 1] = m[A[u]]
            ttl = max(ttl, reset_of(m, s) + MINUTE)
        elseif u == 3 then
            args[#args + 1] = 'c'
            args[#args + 1] = m.c
            ttl = max(ttl, 70 * MINUTE)
        else
            args[#args + 1] = W[u]
            args[#args + 1] = m[W[u]]
            args[#args + 1] = U[u]
            args[#args + 1] = m[U[u]]
            ttl = max(ttl, window_end(u) - now + 60 * MINUTE)
        end
    end
    redis.call('HSET', key, unpack(args))
    redis.call('PEXPIRE', key, floor(ttl / 1000) + 1)
end

-- Bring what `rec` has charged to `really`, and end it.
local function close(rec, really)
    local same = rec[1] == really[1] and rec[2] == really[2] and rec[3] == really[3]
    for i = 7, #rec, 2 do
        -- most meters have nothing to give back: only `concurrent` (unit 3) has, when all was used that was reserved
        local idle = same and not string.find(rec[i + 1], '3:', 1, true)
        local m, specs = not idle and read(rec[i]), idle and {} or parse(rec[i + 1])
        for _, s in ipairs(specs) do
            local u = s[1]
            local had, is = rec[RESOURCE[u]], really[RESOURCE[u]]
            refresh(m, s)
            if PERIOD[u] then
                local level = m[L[u]]
                if had > is then
                    m[L[u]] = min(level + (had - is) * PERIOD[u], s[3] * PERIOD[u])
                else
                    m[L[u]] = level - min((is - had) * PERIOD[u], level)
                end
            elseif u == 3 then
                m.c = max(m.c - rec[4], 0)
            elseif m[W[u]] <= (u < 6 and rec[5] or rec[6]) then
                m[U[u]] = max(m[U[u]] - had, 0) + is
            end
        end
        if not idle then write(rec[i], m, specs) end
    end
end

-- A server whose lease is over is gone: what it held goes back, some at a time.
local function sweep()
    local dead = redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', now, 'LIMIT', 0, 1)[1]
    if not dead or dead == KEYS[1] then return end
    local cursor, found = '0', 0
    repeat
        local page = redis.call('HSCAN', dead, cursor, 'MATCH', 'r*', 'COUNT', 50)
        cursor = page[1]
        for i = 1, #page[2], 2 do
            local rec = cmsgpack.unpack(page[2][i + 1])
            close(rec, {1, rec[2], 0})
            redis.call('HDEL', dead, page[2][i])
            redis.call('HSET', dead, 'd' .. string.sub(page[2][i], 2), '')
            found = found + 1
        end
    until found > 0 or cursor == '0'
    if found == 0 then redis.call('ZREM', KEYS[2], dead) end
end

local known = tonumber(redis.call('HGET', KEYS[1], 'e') or -1)
local LONG = 32 * DAY / 1000
local function stay(lease)
    redis.call('ZADD', KEYS[2], now + lease, KEYS[1])
    redis.call('PEXPIRE', KEYS[1], LONG)
    redis.call('PEXPIRE', KEYS[2], LONG)
    return redis.call('ZCOUNT', KEYS[2], now, '+inf')
end
if op == 'hello' then
    if known > epoch then return {-1} end
    redis.call('HSET', KEYS[1], 'e', epoch)
    return {0, known >= 0 and 1 or 0, stay(tonumber(ARGV[4]))}
end
if known ~= epoch then return {-1} end
if op == 'beat' or op == 'take' then sweep() end
if op == 'beat' then return {0, 1, stay(tonumber(ARGV[4]))} end

if op == 'take' or op == 'more' then
    local first = op == 'take'
    local cost = {first and 1 or 0, tonumber(ARGV[5]), tonumber(ARGV[6])}
    local field = 'r' .. ARGV[4]
    local meters, lists, least, best = {}, {}, 2, {0, 0, 0, 0, 0, 0}
    local rec = {1, 0, 0, 1, day, month}
    if not first then
        local packed = redis.call('HGET', KEYS[1], field)
        if not packed then return {-1} end
        rec = cmsgpack.unpack(packed)
    end
    for k = 3, #KEYS do
        local m, specs = read(KEYS[k]), parse(ARGV[k + 4])
        meters[k], lists[k] = m, specs
        for _, s in ipairs(specs) do
            local u = s[1]
            local c = cost[RESOURCE[u]]
            if first or RESOURCE[u] > 1 then
                refresh(m, s)
                local left = left_of(m, s)
                if c > left then
                    local wait = 0
                    if PERIOD[u] then
                        local need = c * PERIOD[u]
                        if need <= s[3] * PERIOD[u] then wait = max(math.ceil((need - m[L[u]]) / s[2]), 1) end
                    elseif c <= s[2] then
                        wait = u > 3 and window_end(u) - now or 1000000
                    end
                    return {1, k - 3, u, left, reset_of(m, s), wait}
                end
                local share = (left - c) / (PERIOD[u] and s[3] or s[2])
                if share < least then
                    least = share
                    best = {0, k - 3, u, left - c, reset_of(m, s), 0}
                end
            end
        end
    end
    for k = 3, #KEYS do
        local m = meters[k]
        for _, s in ipairs(lists[k]) do
            local u = s[1]
            local c = cost[RESOURCE[u]]
            if not first and RESOURCE[u] == 1 then
                refresh(m, s)
            elseif PERIOD[u] then
                m[L[u]] = m[L[u]] - min(c * PERIOD[u], m[L[u]])
            elseif u == 3 then
                m.c = m.c + c
            else
                m[U[u]] = m[U[u]] + c
            end
        end
        write(KEYS[k], m, lists[k])
        if first then
            rec[#rec + 1] = KEYS[k]
            rec[#rec + 1] = ARGV[k + 4]
        end
    end
    rec[2], rec[3] = rec[2] + cost[2], rec[3] + cost[3]
    redis.call('HSET', KEYS[1], field, cmsgpack.pack(rec))
    return best
end

local seq = tonumber(op == 'set' and ARGV[5] or ARGV[4])
if seq <= tonumber(redis.call('HGET', KEYS[1], 's') or 0) then return {0} end
if op == 'set' then
    local field = 'r' .. ARGV[4]
    local packed = redis.call('HGET', KEYS[1], field)
    local rec
    if packed then
        rec = cmsgpack.unpack(packed)
        redis.call('HDEL', KEYS[1], field)
    else
        -- it was given back, as that of a server that seemed to be gone; or it never came here
        local charged = redis.call('HDEL', KEYS[1], 'd' .. ARGV[4]) == 1 or ARGV[6] == '1'
        rec = {charged and 1 or 0, charged and tonumber(ARGV[7]) or 0, 0, 0, day, month}
        for k = 3, #KEYS do
            rec[#rec + 1] = KEYS[k]
            rec[#rec + 1] = ARGV[k + 8]
        end
    end
    close(rec, {tonumber(ARGV[8]), tonumber(ARGV[9]), tonumber(ARGV[10])})
else
    for k = 3, #KEYS do
        local m, specs = read(KEYS[k]), {}
        for u, w, n in string.gmatch(ARGV[k + 2], '(%d+):(%d+):(%d+)') do
            u = tonumber(u)
            local s = {u, 0, 0}
            refresh(m, s)
            if m[W[u]] <= tonumber(w) then m[U[u]] = m[U[u]] + tonumber(n) end
            specs[#specs + 1] = s
        end
        -- the meter's other windows may be longer
        if #specs > 0 then write(KEYS[k], m, specs, max(redis.call('PTTL', KEYS[k]), 0) * 1000) end
    end
end
redis.call('HSET', KEYS[1], 's', seq)
return {0}
