-- Ends every request of the claim store: whether its commands met what their sender took for
-- granted, and a piece of the work that keeps the buckets. claims/redis.py describes the storage.
--
-- KEYS[1]  what the store's format is
-- KEYS[2]  hash of the app: epoch (the canary), layout of the buckets, topics by number, cluster
-- ARGV[1]  how long an id is remembered, ms
-- ARGV[2]  the epoch to begin if the store knows none: it is new, or was emptied
-- ARGV[3]  Kafka's id of the cluster that the offsets belong to; empty when it is not known
-- ARGV[4]  ids that were new in requests before this one, and not reported yet
-- ARGV[5]  '1': try out, too, what else a claim needs permission for
-- ARGV[6]… topics, by turns the number to begin with and the name
--
-- Returns the format; the epoch; the cluster that the claims belong to; the layout that this call
-- met and the one that it left (from, to, cursor: buckets before the cursor have ``to`` bits); ms of
-- a unit of dates; ms that an id is remembered; until when every bucket exists; the time, ms; and
-- the numbers of the topics. Of another cluster's claims it returns no more than three.

local DATES = 65536
local IDS_PER_BUCKET_MAX, IDS_PER_BUCKET_MIN = 24, 5
local BITS_FIRST, BITS_MIN, BITS_MAX = 14, 14, 24
local STEPS_MAX, STEPS_MIN, IDS_PER_STEP = 512, 8, 16
-- Parts of the time to live: buckets outlive a sweep by LIVES, and must outlive a claim by ENOUGH.
local UNITS, LIVES, ENOUGH = 32, 4, 1.25

local base, meta, ttl_ms, cluster = KEYS[1], KEYS[2], tonumber(ARGV[1]), ARGV[3]
local call, sub, byte, char, floor = redis.call, string.sub, string.byte, string.char, math.floor
local format = string.format

-- Before Redis 7 a script may write after asking for the time only if its effects are replicated.
if redis.replicate_commands then redis.replicate_commands() end

local mark = call('GET', base)
if mark and mark ~= '2' then return {mark} end

local time = call('TIME')
local now_ms = tonumber(time[1]) * 1000 + floor(tonumber(time[2]) / 1000)

local names = {'from', 'to', 'cursor', 'start', 'alive', 'alive_next', 'seen', 'fresh', 'count',
  'unit', 'ttl', 'ttl_next'}
local found = call('HMGET', meta, 'epoch', 'cluster', unpack(names))
local epoch, known = found[1], found[2]
local at, changed = {}, {} -- what stands in the hash, and names of what is to be written
for place, name in ipairs(names) do at[name] = tonumber(found[place + 2] or 0) end

local function set(name, value)
  if at[name] ~= value then at[name], changed[name] = value, true end
end

if not mark then call('SET', base, '2') end
if not epoch then
  epoch = ARGV[2]
  call('HSET', meta, 'epoch', epoch)
  for _, name in ipairs(names) do set(name, 0) end
  set('from', BITS_FIRST)
  set('to', BITS_FIRST)
  set('unit', math.max(1, floor(ttl_ms / UNITS)))
  set('cursor', 2 ^ BITS_FIRST)
end
if not known and cluster ~= '' then
  known = cluster
  call('HSET', meta, 'cluster', cluster)
end
if known and cluster ~= '' and known ~= cluster then return {'2', epoch, known} end

-- The longest time to live that was asked for in this sweep or the one before.
if ttl_ms > at.ttl then set('ttl', ttl_ms) end
if ttl_ms > at.ttl_next then set('ttl_next', ttl_ms) end
if at.ttl / at.unit > DATES / 4 then
  return redis.error_reply('TTL is too long for claims that began with a much shorter one')
end

local expire_at = format('%.0f', now_ms + LIVES * at.ttl)
local date_now, units = floor(now_ms / at.unit) % DATES, math.ceil(at.ttl / at.unit)

-- A date of the future is of a clock that was set back: it counts as now.
local function is_over(value)
  local high, low = byte(value, 1, 2)
  local age = (date_now - high * 256 - low) % DATES
  return age > units + 1 and age < DATES / 2
end

-- The first ``bits`` bits of an id, in whole bytes, name its bucket; the id from the first byte
-- that is not wholly in the name is the field.
local prefix = 'hapax' .. string.match(base, '{.*}')
  .. string.gsub(epoch, '%x%x', function(two) return char(tonumber(two, 16)) end)
local function bucket(bits, index)
  local bytes = math.ceil(bits / 8)
  local number, text = index * 2 ^ (bytes * 8 - bits), ''
  for _ = 1, bytes do
    text = char(number % 256) .. text
    number = floor(number / 256)
  end
  return prefix .. char(64 + bits) .. text, sub(text, 1, floor(bits / 8))
end

local function sweep(index)
  local key = bucket(at.from, index)
  local pairs_, over = call('HGETALL', key), {}
  for place = 1, #pairs_, 2 do
    local value = pairs_[place + 1]
    if value ~= '' and is_over(value) then over[#over + 1] = pairs_[place] end
  end
  if #over > 0 then call('HDEL', key, unpack(over)) end
  if #pairs_ == 0 then call('HSET', key, '', '') end
  call('PEXPIREAT', key, expire_at)
  return math.max(0, #pairs_ / 2 - 1 - #over), #over
end

-- Divides a bucket in two, or makes one of two. What stands under the new names is of requests that
-- met another layout than they took for granted: nobody owns by it.
local function move(index)
  local more = at.to > at.from
  local sources = more and {index} or {2 * index, 2 * index + 1}
  local targets = more and {2 * index, 2 * index + 1} or {index}
  local filled, keys, seen, over = {{'', ''}, {'', ''}}, {}, 0, 0
  for place, target in ipairs(targets) do
    keys[place] = bucket(at.to, target)
    call('DEL', keys[place])
  end
  -- The bit that more buckets have in their names is one of the first byte of the fields; the
  -- eighth takes that byte out of them, and the first of fewer brings it back.
  local bit, cut, head = 2 ^ (7 - at.from % 8), more and at.to % 8 == 0, ''
  for _, source in ipairs(sources) do
    local key, text = bucket(at.from, source)
    if not more and at.from % 8 == 0 then head = sub(text, -1) end
    local pairs_ = call('HGETALL', key)
    for place = 1, #pairs_, 2 do
      local field, value = pairs_[place], pairs_[place + 1]
      if value == '' then -- the field that every bucket has
      elseif is_over(value) then over = over + 1
      else
        local target = filled[more and 1 + floor(byte(field) / bit) % 2 or 1]
        if cut then field = sub(field, 2) elseif head ~= '' then field = head .. field end
        local last = #target
        target[last + 1], target[last + 2] = field, value
        seen = seen + 1
      end
    end
    call('DEL', key)
  end
  for place, key in ipairs(keys) do
    local fields = filled[place]
    for first = 1, #fields, 1000 do
      call('HSET', key, unpack(fields, first, math.min(#fields, first + 999)))
    end
    call('PEXPIREAT', key, expire_at)
  end
  return seen, over
end

local function begin_pass(to)
  set('to', to)
  set('cursor', 0)
  set('start', now_ms)
  set('alive_next', math.max(now_ms + LIVES * at.ttl, at.alive + 1))
  set('seen', 0)
  set('fresh', 0)
end

local function end_pass()
  set('from', at.to)
  set('alive', at.alive_next)
  -- Of the ids that came during the pass, it met about a half.
  set('count', at.seen + floor(at.fresh / 2))
  set('ttl', at.ttl_next)
  set('ttl_next', 0)
  if at.count < IDS_PER_BUCKET_MIN * 2 ^ at.from and at.from > BITS_MIN then
    begin_pass(at.from - 1)
  end
end

local function passed() return at.cursor >= 2 ^ math.min(at.from, at.to) end
local function ready() return at.alive >= now_ms + ENOUGH * at.ttl end
local function full() return at.count > IDS_PER_BUCKET_MAX * 2 ^ at.from end

local function steps_due(new)
  local left = 2 ^ math.min(at.from, at.to) - at.cursor
  local due = floor((left + at.cursor) * (now_ms - at.start) / at.ttl) - at.cursor
  if not ready() then due = 2 * STEPS_MAX end
  if at.from ~= at.to and full() then due = math.max(due, math.ceil(new / IDS_PER_STEP)) end
  if due < math.min(STEPS_MIN, left) and at.from == at.to then return 0 end
  return math.max(0, math.min(due, 2 * STEPS_MAX, left))
end

local function save()
  local writes = {}
  for name in pairs(changed) do
    writes[#writes + 1] = name
    writes[#writes + 1] = format('%.0f', at[name])
  end
  if #writes > 0 then call('HSET', meta, unpack(writes)) end
  changed = {}
end

local met = format('%d %d %d', at.from, at.to, at.cursor)
local new = tonumber(ARGV[4])
set('count', at.count + new)
set('fresh', at.fresh + new)
if at.from == at.to then
  if full() and at.from < BITS_MAX then begin_pass(at.from + 1)
  elseif passed() and (not ready() or now_ms >= at.start + at.ttl) then begin_pass(at.from) end
end
-- An error leaves behind what was written: buckets that moved must be known as such by then.
save()
for _ = 1, steps_due(new) do
  local moves = at.from ~= at.to
  local seen, over = (moves and move or sweep)(at.cursor)
  set('cursor', at.cursor + 1)
  if moves then call('HSET', meta, 'cursor', format('%.0f', at.cursor)) end
  set('seen', at.seen + seen)
  set('count', math.max(0, at.count - over))
end
if passed() and (at.from ~= at.to or at.alive ~= at.alive_next) then end_pass() end
save()

-- A number is taken by another topic once in 16 million pairs: then the next one is.
local numbers = {}
for place = 6, #ARGV, 2 do
  local number, topic = tonumber(ARGV[place]), ARGV[place + 1]
  local holder = call('HGET', meta, 'number:' .. number)
  while holder and holder ~= topic do
    number = (number + 1) % 2 ^ 24
    holder = call('HGET', meta, 'number:' .. number)
  end
  if not holder then call('HSET', meta, 'number:' .. number, topic) end
  numbers[#numbers + 1] = number
end

if ARGV[5] == '1' then
  local probe = prefix .. 'probe'
  call('HSETNX', probe, 'a', '')
  call('HSET', probe, 'b', '')
  call('HGET', probe, 'a')
  call('HGETALL', probe)
  call('HDEL', probe, 'a')
  call('PEXPIREAT', probe, format('%.0f', now_ms + 1000))
  call('DEL', probe)
  call('SET', base, '2')
end

local left = format('%d %d %d', at.from, at.to, at.cursor)
local numbers_of = format('%.0f %.0f %.0f %.0f', at.unit, at.ttl, at.alive, now_ms)
return {'2', epoch, known or '', met, left, numbers_of, numbers}
