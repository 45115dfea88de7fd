-- Claims a batch of ids, or finds claims; claims/redis.py describes what is stored.
--
-- KEYS[1]  the format of what is stored
-- KEYS[2]  hash of the app: epoch, cluster, generations, topics by number
-- ARGV[1]  'claim'; 'find': who owns the ids, and until when; 'forget': those that belong to ARGV[7],
--          or to anybody where that is empty; 'try': claim nothing, but try out all commands
-- ARGV[2]  how long an id is remembered, ms
-- ARGV[3]  the epoch that the digests were made for
-- ARGV[4]  the epoch to begin where the store has none: it is new, or was emptied
-- ARGV[5]  Kafka's id of the cluster that the offsets belong to; empty: not known
-- ARGV[6]  digests of the ids, 16 bytes each
-- ARGV[7]  their owners, 14 bytes each
-- ARGV[8]  empty, or for each id an owner that gives way: it owns nothing any more
-- ARGV[9]… topics of the owners, by turns the number that stands for it and the name
--
-- Returns the format; the epoch; the cluster; the time, ms; the numbers of the topics; and of each id
-- that another record owns its index and that owner, 18 bytes; until when ('find') or how many
-- ('forget'). Of another cluster no more than three; of another epoch, or where a number is taken,
-- five: nothing was claimed.

local FORMAT, SHARDS, AT_ONCE = '3', 16, 3500
-- Parts of the time to live: ids are claimed in a generation for half of it, so that the last of them
-- is over after one and a half. Its keys end by themselves later than that, should the app be gone.
local CLAIMED, LIVES, ENDS = 0.5, 1.5, 2.5
local GENERATIONS_MAX = 4 -- beyond them a shorter time to live begins no further one

local base, meta = KEYS[1], KEYS[2]
local what, ttl_ms, cluster = ARGV[1], tonumber(ARGV[2]), ARGV[5]
local digests, owners, gone = ARGV[6], ARGV[7], ARGV[8]
local call, sub, byte, min, format = redis.call, string.sub, string.byte, math.min, string.format
local claims = what == 'claim' or what == 'try'

-- Before Redis 7 a script may write after asking for the time only if its effects are replicated.
if redis.replicate_commands then redis.replicate_commands() end

local mark = call('GET', base)
if mark and mark ~= FORMAT then return {mark} end
local time = call('TIME')
local now_ms = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local epoch, known, listed = unpack(call('HMGET', meta, 'epoch', 'cluster', 'generations'))

if claims then
  if not mark then call('SET', base, FORMAT) end
  if not epoch then
    epoch = ARGV[4]
    call('HSET', meta, 'epoch', epoch)
  end
  if not known and cluster ~= '' then
    known = cluster
    call('HSET', meta, 'cluster', cluster)
  end
  if known and cluster ~= '' and known ~= cluster then return {FORMAT, epoch, known} end
end

-- A number is taken by another topic once in 16 million pairs: then the next one is.
local numbers, right = {}, epoch == ARGV[3]
for place = 9, #ARGV, 2 do
  local number, topic = tonumber(ARGV[place]), ARGV[place + 1]
  local holder = call('HGET', meta, 'number:' .. number)
  while holder and holder ~= topic do
    number, right = (number + 1) % 2 ^ 24, false
    holder = call('HGET', meta, 'number:' .. number)
  end
  if not holder then call('HSET', meta, 'number:' .. number, topic) end
  numbers[#numbers + 1] = number
end
local answer = {FORMAT, epoch or '', known or '', format('%.0f', now_ms), numbers}
if not right then return answer end

local function key_of(generation, shard)
  return base .. ':' .. epoch .. ':' .. generation.number .. ':' .. shard
end

local function end_later(generation, shard)
  local ends_ms = generation.start_ms + ENDS * generation.ttl_ms
  call('PEXPIREAT', key_of(generation, shard), format('%.0f', ends_ms))
end

-- The generations that are not over, the newest first.
local generations, last, changed = {}, 0, false
for number, start_ms, lives_ms in string.gmatch(listed or '', '(%d+) (%d+) (%d+)') do
  local each = {number = tonumber(number), start_ms = tonumber(start_ms), ttl_ms = tonumber(lives_ms)}
  last = math.max(last, each.number)
  -- Of the future: the clock was set back, and nobody knows how long ago it began.
  if each.start_ms > now_ms then each.start_ms, changed = now_ms, true end
  if claims and each.ttl_ms < ttl_ms then
    each.ttl_ms, changed = ttl_ms, true
    for shard = 0, SHARDS - 1 do end_later(each, shard) end
  end
  if now_ms - each.start_ms < LIVES * each.ttl_ms then
    generations[#generations + 1] = each
  elseif claims then
    changed = true
    for shard = 0, SHARDS - 1 do call('UNLINK', key_of(each, shard)) end
  end
end

local function is_full(generation)
  local age_ms = now_ms - generation.start_ms
  return age_ms >= CLAIMED * generation.ttl_ms
    or age_ms >= CLAIMED * ttl_ms and #generations < GENERATIONS_MAX
end

if claims then
  if #generations == 0 or is_full(generations[1]) then
    changed = true
    table.insert(generations, 1, {number = last + 1, start_ms = now_ms, ttl_ms = ttl_ms})
  end
  if changed then
    local texts = {}
    for place, each in ipairs(generations) do
      texts[place] = format('%.0f %.0f %.0f', each.number, each.start_ms, each.ttl_ms)
    end
    call('HSET', meta, 'generations', table.concat(texts, ' '))
  end
end

if what == 'try' then
  local key = base .. ':try'
  call('HSET', key, 'a', '')
  call('HLEN', key)
  call('HMGET', key, 'a')
  call('HGET', key, 'a')
  call('HDEL', key, 'a')
  call('PEXPIREAT', key, format('%.0f', now_ms))
  call('UNLINK', key)
  call('SET', base, FORMAT)
end

-- Ids by shard, as lists of what is to be asked for next: the digest, and the index of the id.
local ids, indices, counts, owner = {}, {}, {}, {}
for shard = 0, SHARDS - 1 do ids[shard], indices[shard], counts[shard] = {}, {}, 0 end
for index = 1, #digests / 16 do
  local at = 16 * index
  local shard = byte(digests, at) % SHARDS
  local count = counts[shard] + 1
  counts[shard] = count
  ids[shard][count] = sub(digests, at - 15, at)
  indices[shard][count] = index
  owner[index] = sub(owners, 14 * index - 13, 14 * index)
end

local others, extra = {}, 0

local function belongs_to(index, other)
  others[#others + 1] = struct.pack('>I4', index - 1) .. other
end

-- Returns whether the id is to be claimed: its owner gives way.
local function meets(generation, key, id, index, value)
  if what == 'find' then
    belongs_to(index, value)
    extra = generation.start_ms + LIVES * generation.ttl_ms - now_ms
  elseif what == 'forget' then
    if owners == '' or value == owner[index] then extra = extra + call('HDEL', key, id) end
  elseif gone ~= '' and value == sub(gone, 14 * index - 13, 14 * index) then
    call('HDEL', key, id)
    return true
  else
    belongs_to(index, value)
  end
  return false
end

-- Returns ids that have no claim in a generation, and how many they are.
local function without_claim(generation, key, asked, of, count)
  local left, left_of, n = {}, {}, 0
  for first = 1, count, AT_ONCE do
    local to = min(count, first + AT_ONCE - 1)
    local values = call('HMGET', key, unpack(asked, first, to))
    for place = first, to do
      local value, index = values[place - first + 1], of[place]
      if not value then
        n = n + 1
        left[n], left_of[n] = asked[place], index
      elseif value ~= owner[index] or not claims then
        if meets(generation, key, asked[place], index, value) then
          n = n + 1
          left[n], left_of[n] = asked[place], index
        end
      end
    end
  end
  return left, left_of, n
end

-- Of two records with one id the first owns it; HSET has taken the last.
local function settle_twice(key, asked, of, count)
  local first_of = {}
  for place = 1, count do
    local id, index = asked[place], of[place]
    local first = first_of[id]
    if not first then
      first_of[id] = index
    else
      call('HSET', key, id, owner[first])
      if owner[index] ~= owner[first] then belongs_to(index, owner[first]) end
    end
  end
end

local function write(key, asked, of, count)
  local made = 0
  for first = 1, count, AT_ONCE do
    local fields, n = {}, 0
    for place = first, min(count, first + AT_ONCE - 1) do
      fields[n + 1], fields[n + 2] = asked[place], owner[of[place]]
      n = n + 2
    end
    made = made + call('HSET', key, unpack(fields))
  end
  if made < count then settle_twice(key, asked, of, count) end
end

for shard = 0, SHARDS - 1 do
  local asked, of, count = ids[shard], indices[shard], counts[shard]
  local is_new = false
  for place, generation in ipairs(generations) do
    if count == 0 then break end
    local key = key_of(generation, shard)
    if call('HLEN', key) > 0 then
      asked, of, count = without_claim(generation, key, asked, of, count)
    elseif place == 1 then
      is_new = true
    end
  end
  if claims and count > 0 then
    write(key_of(generations[1], shard), asked, of, count)
    if is_new then end_later(generations[1], shard) end
  end
end

answer[6], answer[7] = table.concat(others), format('%.0f', extra)
return answer
