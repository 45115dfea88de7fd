-- Claims one batch of ids in one step. claims/redis.py packs the request and describes the storage.
--
-- KEYS[1]  hash of the app: its epoch (the canary), its live segments, its topics by number
-- ARGV[1]  how long an id is remembered, ms
-- ARGV[2]  the epoch to begin if the store knows none: it is new, or was emptied
-- ARGV[3]  ids, 16 bytes each
-- ARGV[4]  offsets, the low 4 bytes of each, big endian
-- ARGV[5]  runs: topic (its place among the arguments) 2, partition 4, high 4 bytes of the offsets,
--          number of ids 4; all big endian
-- ARGV[6]  Kafka's id of the cluster that the offsets belong to; empty when it is not known
-- ARGV[7]  offsets and
-- ARGV[8]  runs, as above, of an owner for each id that is gone: where it owns the id, it is replaced
-- ARGV[9]… topics
--
-- Returns the epoch; the foreign owners (index 4, length 1, owner); number and name, in turn, of
-- every topic that these owners speak of; the cluster that the claims belong to; and the time, ms.
-- Without runs it only tries out what a claim needs permission for. Claims of another cluster are
-- left alone, and nothing is claimed.

local ID_BYTES = 16
local RUN_BYTES = 14
-- Every claim reads a bucket from its start, so a long one costs time and a short one memory.
local IDS_PER_BUCKET_MAX = 64
local IDS_PER_BUCKET_MIN = 4
local BITS_FIRST, BITS_MIN, BITS_MAX, BITS_STEP = 14, 10, 24, 2

local meta, ttl_ms, ids, offsets, runs = KEYS[1], tonumber(ARGV[1]), ARGV[3], ARGV[4], ARGV[5]
local cluster, gone_offsets, gone_runs = ARGV[6], ARGV[7], ARGV[8]
local call, sub, byte, char, floor = redis.call, string.sub, string.byte, string.char, math.floor

-- Before Redis 7 a script may write after asking for the time only if its effects are replicated.
if redis.replicate_commands then redis.replicate_commands() end

local time = call('TIME')
local now_ms = tonumber(time[1]) * 1000 + floor(tonumber(time[2]) / 1000)

-- Seven bits a byte. A number has one spelling only: owners are compared as bytes.
local function varint(number)
  local text = ''
  while number >= 128 do
    text = text .. char(number % 128 + 128)
    number = floor(number / 128)
  end
  return text .. char(number)
end

local function first_varint(text)
  local number, scale, place = 0, 1, 1
  local value = byte(text, place)
  while value >= 128 do
    number, scale, place = number + (value - 128) * scale, scale * 128, place + 1
    value = byte(text, place)
  end
  return number + value * scale
end

-- The first bits of an id name its bucket: ``whole`` bytes as they are, and of the next byte what
-- ``masked`` leaves. The id from that byte on is the field.
local function segment(epoch, number, bits, drop_ms)
  local whole, rest, masked = floor(bits / 8), bits % 8, {}
  for value = 0, 255 do
    masked[value] = rest == 0 and '' or char(value - value % 2 ^ (8 - rest))
  end
  local prefix = meta .. ':' .. epoch .. ':' .. number .. ':'
  return {
    number = number, bits = bits, drop_ms = drop_ms,
    prefix = prefix, whole = whole, masked = masked,
  }
end

local function read_segments(epoch, stored)
  local live, last = {}, 0
  for number, bits, drop_ms in string.gmatch(stored or '', '(%d+) (%d+) (%d+)') do
    last, bits, drop_ms = tonumber(number), tonumber(bits), tonumber(drop_ms)
    if drop_ms > now_ms then live[#live + 1] = segment(epoch, last, bits, drop_ms) end
  end
  return live, last
end

-- The newest segment takes the new ids, as long as it outlives them and is not too full.
local function open_segment(epoch, stored, count)
  local live, last = read_segments(epoch, stored)
  local newest, bits = live[#live], BITS_FIRST
  if newest then
    bits = newest.bits
    local full = count >= IDS_PER_BUCKET_MAX * 2 ^ bits
    if not full and newest.drop_ms - now_ms >= ttl_ms then return live end
    if full then bits = math.min(bits + BITS_STEP, BITS_MAX)
    elseif count < IDS_PER_BUCKET_MIN * 2 ^ bits then bits = math.max(bits - BITS_STEP, BITS_MIN) end
  end
  live[#live + 1] = segment(epoch, last + 1, bits, now_ms + 2 * ttl_ms)
  local texts = {}
  for place, each in ipairs(live) do
    texts[place] = string.format('%d %d %.0f', each.number, each.bits, each.drop_ms)
  end
  call('HSET', meta, 'segments', table.concat(texts, ','), 'count', 0)
  return live
end

local function topic_number(topic)
  local number = call('HGET', meta, 'topic:' .. topic)
  if not number then
    number = call('HINCRBY', meta, 'topics', 1)
    call('HSET', meta, 'topic:' .. topic, number, 'number:' .. number, topic)
  end
  return tonumber(number)
end

-- Calls ``each(head, from, to)`` for every run: what its owners have in common, and its ids.
local function read_runs(packed, each)
  local index = 0
  for at = 1, #packed, RUN_BYTES do
    local place, partition, high, length = struct.unpack('>I2I4I4I4', packed, at)
    local head = varint(topic_number(ARGV[place])) .. varint(partition) .. varint(high)
    each(head, index, index + length - 1)
    index = index + length
  end
end

-- Writes a claim to the newest segment, too: the old one, which is looked up first, may end soon.
local function renew(newest, first, owner, drop_ms)
  local split = first + newest.whole
  local key = newest.prefix .. sub(ids, first, split - 1) .. newest.masked[byte(ids, split)]
  local field = sub(ids, split, first + ID_BYTES - 1)
  if call('HSET', key, '', '', field, owner) == 2 then call('PEXPIREAT', key, drop_ms) end
end

-- Claims ids ``from`` to ``to``, counted from 0, for owners that differ in their last 4 bytes only.
-- Returns how many were new. This is the hot loop: locals and as few calls as possible.
local function claim_run(live, head, from, to, gone, foreign)
  local drop_ms, segments, new = string.format('%.0f', live[#live].drop_ms), #live, 0
  for index = from, to do
    local first = index * ID_BYTES + 1
    local owner = head .. sub(offsets, index * 4 + 1, index * 4 + 4)
    local key, field, claimed
    for place = 1, segments do
      local each = live[place]
      local split = first + each.whole
      key = each.prefix .. sub(ids, first, split - 1) .. each.masked[byte(ids, split)]
      field = sub(ids, split, first + ID_BYTES - 1)
      claimed = call('HGET', key, field)
      if claimed then break end
    end
    if not claimed then
      -- Key and field are now those of the newest segment. Two new fields mean that the empty one
      -- was new as well, hence the bucket: its time is set once, without a call that asks.
      if call('HSET', key, '', '', field, owner) == 2 then call('PEXPIREAT', key, drop_ms) end
      new = new + 1
    elseif claimed == gone[index] then
      call('HSET', key, field, owner)
      renew(live[segments], first, owner, drop_ms)
    elseif claimed ~= owner then
      foreign[#foreign + 1] = struct.pack('>I4B', index, #claimed) .. claimed
    end
  end
  return new
end

local function names_of(foreign)
  local names, seen = {}, {}
  for _, entry in ipairs(foreign) do
    local number = first_varint(sub(entry, 6))
    if not seen[number] then
      seen[number] = true
      names[#names + 1] = number
      names[#names + 1] = call('HGET', meta, 'number:' .. number) or ''
    end
  end
  return names
end

local epoch, stored, count, known = unpack(
  call('HMGET', meta, 'epoch', 'segments', 'count', 'cluster'))
if not epoch then
  epoch = ARGV[2]
  call('HSET', meta, 'epoch', epoch)
end
if not known and cluster ~= '' then
  known = cluster
  call('HSET', meta, 'cluster', cluster)
end
local now_text = string.format('%.0f', now_ms)
if known and cluster ~= '' and known ~= cluster then return {epoch, '', {}, known, now_text} end
local live = open_segment(epoch, stored, tonumber(count or 0))

if #runs == 0 then
  local probe = live[#live].prefix .. 'probe'
  call('HSET', probe, '', '')
  call('HGET', probe, '')
  call('PEXPIREAT', probe, string.format('%.0f', now_ms + 1000))
  call('HINCRBY', meta, 'count', 0)
end

local new, gone, foreign = 0, {}, {}
read_runs(gone_runs, function(head, from, to)
  for index = from, to do
    gone[index] = head .. sub(gone_offsets, index * 4 + 1, index * 4 + 4)
  end
end)
read_runs(runs, function(head, from, to)
  new = new + claim_run(live, head, from, to, gone, foreign)
end)
if new > 0 then call('HINCRBY', meta, 'count', new) end

return {epoch, table.concat(foreign), names_of(foreign), known or '', now_text}
