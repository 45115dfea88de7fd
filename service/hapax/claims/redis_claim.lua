-- Claims a batch of ids, or finds claims; claims/redis.py describes what is stored.
--
-- KEYS[1]  the format of what is stored
-- KEYS[2]  hash of the app: epoch, cluster, generations, topics by number
-- ARGV[1]  'claim'; 'find': who owns the ids, and until when; 'forget': those that belong to ARGV[8],
--          or to anybody where that is empty; 'try': claim nothing, but try out all commands
-- ARGV[2]  how long an id is remembered, ms
-- ARGV[3]  the epoch that the digests were made for
-- ARGV[4]  the epoch to begin where the store has none: it is new, or was emptied
-- ARGV[5]  Kafka's id of the cluster that the offsets belong to; empty: not known
-- ARGV[6]  how many ids each shard has
-- ARGV[7]  digests of the ids by shard, 14 bytes each
-- ARGV[8]  their owners, 14 bytes each
-- ARGV[9]  empty, or for each id an owner that gives way: it owns nothing any more
-- ARGV[10]… topics of the owners, by turns the number that stands for it and the name
--
-- Returns the format; the epoch; the cluster; the time, ms; the numbers of the topics; and of each id
-- that another record owns its place and that owner, 18 bytes; until when ('find') or how many
-- ('forget'). Of another cluster no more than three; of another epoch, or where a number is taken,
-- five: nothing was claimed.

local FORMAT, SHARDS, AT_ONCE, SIZE = '3', 16, 3500, 14
-- Parts of the time to live: ids are claimed in a generation for half of it, so that the last of them
-- is over after one and a half. Its keys end by themselves later than that, should the app be gone.
local CLAIMED, LIVES, ENDS = 0.5, 1.5, 2.5
local GENERATIONS_MAX = 4 -- beyond them a shorter time to live begins no further one

local base, meta = KEYS[1], KEYS[2]
local what, ttl_ms, cluster = ARGV[1], tonumber(ARGV[2]), ARGV[5]
local counts, digests, owners, gone = ARGV[6], ARGV[7], ARGV[8], ARGV[9]
local call, sub, min, format = redis.call, string.sub, math.min, string.format
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
for place = 10, #ARGV, 2 do
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
  -- Of the future: the clock was set back, and how long ago it began is not known.
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

-- Of all ids, by shard; the first place is 0.
local function part(packed, place) return sub(packed, SIZE * place + 1, SIZE * place + SIZE) end

local others, extra = {}, 0

local function belongs_to(place, other)
  others[#others + 1] = struct.pack('>I4', place) .. other
end

-- Returns whether the id is to be claimed: its owner gives way.
local function meets(generation, key, id, place, value)
  if what == 'find' then
    belongs_to(place, value)
    extra = generation.start_ms + LIVES * generation.ttl_ms - now_ms
  elseif what == 'forget' then
    if owners == '' or value == part(owners, place) then extra = extra + call('HDEL', key, id) end
  elseif value == part(owners, place) then
    return false
  elseif gone ~= '' and value == part(gone, place) then
    call('HDEL', key, id)
    return true
  else
    belongs_to(place, value)
  end
  return false
end

-- Returns whether the values are the owners of the ids at all of these places; the value of an id
-- without a claim is false, which cannot be joined.
local function are_own(values, first, last)
  if last - first + 1 ~= #values then return false end
  local has_all, packed = pcall(table.concat, values)
  return has_all and packed == sub(owners, SIZE * first + 1, SIZE * last + SIZE)
end

-- Returns ids that have no claim in a generation, and their places.
local function without_claim(generation, key, asked, places)
  local left, left_places, n = {}, {}, 0
  for first = 1, #asked, AT_ONCE do
    local last = min(#asked, first + AT_ONCE - 1)
    local values = call('HMGET', key, unpack(asked, first, last))
    if not (claims and are_own(values, places[first], places[last])) then
      for index = first, last do
        local value = values[index - first + 1]
        if not value or meets(generation, key, asked[index], places[index], value) then
          n = n + 1
          left[n], left_places[n] = asked[index], places[index]
        end
      end
    end
  end
  return left, left_places
end

-- Of two records with one id the first owns it; HSET has taken the last.
local function settle_twice(key, asked, places)
  local first_of = {}
  for index, id in ipairs(asked) do
    local place, first = places[index], first_of[id]
    if not first then
      first_of[id] = place
    else
      local owner = part(owners, first)
      call('HSET', key, id, owner)
      if part(owners, place) ~= owner then belongs_to(place, owner) end
    end
  end
end

local function write(key, asked, places)
  local made = 0
  for first = 1, #asked, AT_ONCE do
    local fields, n = {}, 0
    for index = first, min(#asked, first + AT_ONCE - 1) do
      fields[n + 1], fields[n + 2] = asked[index], part(owners, places[index])
      n = n + 2
    end
    made = made + call('HSET', key, unpack(fields))
  end
  if made < #asked then settle_twice(key, asked, places) end
end

local function serve(shard, asked, places)
  local is_new = false
  for age, generation in ipairs(generations) do
    local key = key_of(generation, shard)
    if call('HLEN', key) > 0 then
      asked, places = without_claim(generation, key, asked, places)
    elseif age == 1 then
      is_new = true
    end
    if #asked == 0 then return end
  end
  if claims then
    write(key_of(generations[1], shard), asked, places)
    if is_new then end_later(generations[1], shard) end
  end
end

local shard, place = 0, 0
for count in string.gmatch(counts, '%d+') do
  local asked, places = {}, {}
  for index = 1, tonumber(count) do
    asked[index], places[index] = part(digests, place), place
    place = place + 1
  end
  if #asked > 0 then serve(shard, asked, places) end
  shard = shard + 1
end

answer[6], answer[7] = table.concat(others), format('%.0f', extra)
return answer
