-- Replaces claims by comparison: of two that do it at once, one succeeds. claims/redis.py says when.
--
-- KEYS[1]  what the store's format is; KEYS[2]  hash of the app
-- ARGV[1]  epoch and layout that the rest takes for granted, as the turn returns them
-- ARGV[2]  when a bucket that is made here ends, ms
-- ARGV[3]… by turns bucket, field, the value that may be replaced, and the new one; empty: none
--
-- Returns nil if epoch or layout are others: nothing was done. Else, for each, what stands there
-- instead of the old value; empty where the claim was replaced, or made because there was none.

local call = redis.call
local epoch, from, to, cursor = unpack(call('HMGET', KEYS[2], 'epoch', 'from', 'to', 'cursor'))
if not epoch then return nil end
-- Only while buckets move does it matter how far they have.
local moved = from == to and '-' or cursor
if epoch .. ' ' .. from .. ' ' .. to .. ' ' .. moved ~= ARGV[1] then return nil end
local others = {}
for place = 3, #ARGV, 4 do
  local key, field, old, new = ARGV[place], ARGV[place + 1], ARGV[place + 2], ARGV[place + 3]
  local now = call('HGET', key, field)
  if now and now ~= old then others[#others + 1] = now
  else
    others[#others + 1] = ''
    if new == '' then call('HDEL', key, field)
    elseif call('HSET', key, '', '', field, new) == 2 then call('PEXPIREAT', key, ARGV[2]) end
  end
end
return others
