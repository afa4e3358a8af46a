-- Every step of a shared limit, as one script: a step is atomic, and all its keys have one hash tag (one cluster slot).
-- A minute is kept as buckets of a second. A bucket counts until its last moment is a minute old, so that no true window
-- is ever exceeded. The time is the server's: clocks of gateways do not matter.
--
-- KEYS: 1 running (ticket -> end of its lease)  2 rpm and 3 tpm (bucket -> used)  4 waiting (channel -> since when)
--       5 replicas (name -> last heard)  6 epoch (until when nothing is granted, because the memory was lost)
local running, waiting, replicas, epoch = KEYS[1], KEYS[4], KEYS[5], KEYS[6]
local SPAN_MS, LEASE_MS, TICKET_MS, KEPT_MS, FORGET_S = 60050, 3000, 15000, 120000, 300
local PART = 8 -- a replica takes at most an eighth of its share of what is left in advance
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local bucket, oldest = math.floor(now / 1000), math.floor((now - SPAN_MS) / 1000)

local function read_window(key)
  local cells, total, full = redis.call('HGETALL', key), 0, {}
  for i = 1, #cells, 2 do
    local number, used = tonumber(cells[i]), tonumber(cells[i + 1])
    if number < oldest then
      redis.call('HDEL', key, cells[i])
    else
      total = total + used
      full[#full + 1] = {number, used}
    end
  end
  return total, full
end

local function add(key, number, weight)
  redis.call('HINCRBY', key, number, weight)
  redis.call('EXPIRE', key, FORGET_S)
end

-- A bucket that was forgotten, or lost with the server's memory, is not made anew by giving something back.
local function give_back(key, number, weight)
  local used = tonumber(redis.call('HGET', key, number) or 0)
  if weight > 0 then add(key, number, weight) elseif used > 0 then add(key, number, -math.min(used, -weight)) end
end

-- How much of a limit replicas may use that are not heard of now: they go on under their own share of it.
local function kept_for_absent(limit)
  if redis.call('ZCOUNT', replicas, '-inf', now - LEASE_MS) == 0 then return 0 end
  local found, last = {}, {}
  local rows = redis.call('ZRANGE', replicas, 0, -1, 'WITHSCORES')
  for i = 1, #rows, 2 do
    found[#found + 1] = rows[i]
    last[rows[i]] = tonumber(rows[i + 1])
  end
  table.sort(found)
  local kept = 0
  for rank, name in ipairs(found) do
    if last[name] <= now - LEASE_MS then
      kept = kept + math.floor(limit / #found) + (rank <= limit % #found and 1 or 0)
    end
  end
  return kept
end

local function hear_of(name)
  redis.call('ZADD', replicas, now, name)
  redis.call('ZREMRANGEBYSCORE', replicas, '-inf', now - KEPT_MS)
end

local function window_wait(key, limit, weight)
  local total, full = read_window(key)
  local left = limit - kept_for_absent(limit)
  if left < 1 then return 1000, total end
  local over = total + math.min(weight, left) - left
  if over <= 0 then return 0, total end
  table.sort(full, function(one, other) return one[1] < other[1] end)
  for _, cell in ipairs(full) do
    over = over - cell[2]
    if over <= 0 then return math.max((cell[1] + 1) * 1000 + SPAN_MS - now, 1), total end
  end
  return 1000, total
end

-- Tells the process that has waited longest. If it may go, it tells the next one.
local function wake_next()
  local first = redis.call('ZPOPMIN', waiting)
  if first[1] then redis.call('PUBLISH', first[1], waiting) end
end

-- replica, the epoch it knows, ticket, channel, at_once, rpm, tpm, tokens
-- -> wait in ms (0: go, -1: until one leaves, -2: the memory was lost since the replica said hello,
--    -3: it was lost, and all replicas say what they know for some more ms)
local function enter(replica, known, ticket, channel, at_once, rpm, tpm, tokens)
  local until_ms = tonumber(redis.call('GET', epoch) or -1)
  if until_ms ~= known then return {-2} end
  hear_of(replica)
  if until_ms > now then return {-3, until_ms - now} end
  local wait, rpm_used, tpm_used, count = 0, 0, 0, 0
  if at_once > 0 then
    redis.call('ZREMRANGEBYSCORE', running, '-inf', now)
    count = redis.call('ZCARD', running)
    if count >= at_once - kept_for_absent(at_once) then wait = -1 end
  end
  if rpm > 0 then
    local rpm_wait
    rpm_wait, rpm_used = window_wait(KEYS[2], rpm, 1)
    if wait >= 0 then wait = math.max(wait, rpm_wait) end
  end
  if tpm > 0 then
    local tpm_wait
    tpm_wait, tpm_used = window_wait(KEYS[3], tpm, tokens)
    if wait >= 0 then wait = math.max(wait, tpm_wait) end
  end
  if wait ~= 0 then
    redis.call('ZADD', waiting, 'NX', now, channel)
    redis.call('EXPIRE', waiting, FORGET_S)
    return {wait, rpm_used, tpm_used, count, now}
  end
  redis.call('ZREM', waiting, channel)
  if at_once > 0 then
    redis.call('ZADD', running, now + TICKET_MS, ticket)
    redis.call('EXPIRE', running, FORGET_S)
  end
  if rpm > 0 then add(KEYS[2], bucket, 1) end
  if tpm > 0 then add(KEYS[3], bucket, tokens) end
  wake_next()
  return {0, rpm_used + 1, tpm_used + tokens, count + 1, now}
end

-- replica, the epoch it knows, rpm, tpm, requests and tokens that it will soon need
-- -> 0, requests, tokens (what it gets of them in advance: both or nothing), their bucket, then as `enter`
-- They are counted in the next second, in which they must be used. Each replica gets a small part of what is left.
local function take_in_advance(replica, known, rpm, tpm, requests, tokens)
  local until_ms = tonumber(redis.call('GET', epoch) or -1)
  if until_ms ~= known then return {-2} end
  hear_of(replica)
  if until_ms > now then return {-3} end
  local parts, rpm_used, tpm_used = PART * redis.call('ZCARD', replicas), 0, 0
  if redis.call('ZCARD', waiting) > 0 then return {-1} end
  if rpm > 0 then
    rpm_used = read_window(KEYS[2])
    requests = math.min(requests, math.floor((rpm - kept_for_absent(rpm) - rpm_used) / parts))
  end
  if tpm > 0 then
    tpm_used = read_window(KEYS[3])
    tokens = math.min(tokens, math.floor((tpm - kept_for_absent(tpm) - tpm_used) / parts))
  end
  if requests < 2 or tokens < 1 then return {-1} end
  if rpm > 0 then add(KEYS[2], bucket + 1, requests) else requests = 0 end
  if tpm > 0 then add(KEYS[3], bucket + 1, tokens) else tokens = 0 end
  return {0, requests, tokens, bucket + 1, rpm_used + requests, tpm_used + tokens, now}
end

-- ticket ("" stays), then pairs of a window's changes: bucket, weight ("rpm" 3 numbers, "tpm" 3 numbers ...)
local function settle(ticket, changes)
  local freed = false
  if ticket ~= '' then freed = redis.call('ZREM', running, ticket) == 1 end
  for i = 1, #changes, 3 do
    local weight = tonumber(changes[i + 2])
    give_back(changes[i] == 'rpm' and KEYS[2] or KEYS[3], changes[i + 1], weight)
    freed = freed or weight < 0
  end
  if freed then wake_next() end
  return 0
end

-- Says that a replica is alive, and what it knows: tickets it holds, what it sent while it could not ask (added), and
-- after a loss of memory what it has seen of everything (the most that any replica has seen counts).
local function hello(replica, said)
  redis.call('SET', epoch, now + said.recover_ms, 'NX')
  local until_ms = tonumber(redis.call('GET', epoch))
  local recovering = until_ms > now
  hear_of(replica)
  for _, other in ipairs(recovering and said.replicas or {}) do
    redis.call('ZADD', replicas, 'NX', now - LEASE_MS, other)
  end
  for i, kind in ipairs({'rpm', 'tpm'}) do
    for number, used in pairs(recovering and said.seen[kind] or {}) do
      local known = tonumber(redis.call('HGET', KEYS[i + 1], number) or 0)
      if tonumber(number) >= oldest and used > known then add(KEYS[i + 1], number, used - known) end
    end
    for number, used in pairs(said.sent[kind]) do add(KEYS[i + 1], number, used) end
  end
  redis.call('ZREMRANGEBYSCORE', running, '-inf', now)
  for _, ticket in ipairs(said.tickets) do
    if said.again then redis.call('ZADD', running, now + TICKET_MS, ticket)
    else redis.call('ZADD', running, 'XX', now + TICKET_MS, ticket) end
  end
  local function show(key) local _, full = read_window(key) return full end
  return {until_ms, now, show(KEYS[2]), show(KEYS[3]), redis.call('ZCARD', running),
    redis.call('ZRANGE', replicas, 0, -1)}
end

-- A process that stops in order gives up its share at once.
local function leave(replica) return redis.call('ZREM', replicas, replica) end

local what = ARGV[1]
if what == 'enter' then
  local numbers = {}
  for i = 6, 9 do numbers[i - 5] = tonumber(ARGV[i]) end
  return enter(ARGV[2], tonumber(ARGV[3]), ARGV[4], ARGV[5], unpack(numbers))
elseif what == 'advance' then
  local numbers = {}
  for i = 4, 7 do numbers[i - 3] = tonumber(ARGV[i]) end
  return take_in_advance(ARGV[2], tonumber(ARGV[3]), unpack(numbers))
elseif what == 'settle' then
  return settle(ARGV[2], {unpack(ARGV, 3)})
elseif what == 'hello' then
  return hello(ARGV[2], cjson.decode(ARGV[3]))
end
return leave(ARGV[2])
