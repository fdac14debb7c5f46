"""Scripts that change one key of a block where it lies, if all of the block can be read.

A script looks at the whole block first and ends with its one write, so that whatever refuses it
has left all as it was. What it takes for JSON is less than what the decoders take: where it is not
sure it answers nothing, and the caller reads and exchanges instead. Keys of others are never met.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence


class Script:
    """The text of a script, and the digest that a server knows it by."""

    def __init__(self, text: str) -> None:
        self.text = text.encode()
        self.digest = hashlib.sha1(self.text, usedforsecurity=False).hexdigest().encode()


# cjson takes more than JSON, which is looked for where no text is: hexadecimal and octal numbers,
# infinities, numbers that begin or end with a point or have no digit, or are out of range. It does
# not look at UTF-8. Everything is decoded as one text, and between the pieces stands what nobody
# can guess (the first argument), so that no two halves make a whole. The patterns are those that
# Lua is quick with: this takes some 10 microseconds for 300 bytes. A script holds up the whole
# server, so of a block it takes what it is done with in a few milliseconds.
_SURE = r"""
local find, gsub = string.find, string.gsub

local function is_utf8(text)
  if find(text, '^[\1-\127]*$') then return true end
  for _, good in ipairs({
    '[\194-\223][\128-\191]', '\224[\160-\191][\128-\191]', '\237[\128-\159][\128-\191]',
    '[\225-\236\238\239][\128-\191][\128-\191]', '\240[\144-\191][\128-\191][\128-\191]',
    '[\241-\243][\128-\191][\128-\191][\128-\191]', '\244[\128-\143][\128-\191][\128-\191]'}) do
    text = gsub(text, good, ' ')
  end
  return find(text, '^[\1-\127]*$') ~= nil
end

local function is_odd(bare)
  if find(bare, '[%uix+.-]') and (find(bare, '[A-DF-Zix+]') or find(bare, '%-%D')
    or find(bare, '%.%D') or find(bare, 'E%-?%d%d%d')) then return true end
  if find(bare, 'na', 1, true) then return true end
  if find(bare, 'e', 1, true) and find(bare, 'e%-?%d%d%d') then return true end
  if find(bare, '0%d') and find(bare, '[^%d.eE+-]%-?0%d') then return true end
  if #bare < 300 then return false end
  if find(bare, '%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d') then return true end
  for _ = 1, 9 do
    if #bare < 300 then return false end
    bare = gsub(gsub(bare, '{[^%[%]{}]*}', ''), '%[[^%[%]{}]*%]', '')
  end
  return true
end

local function is_long(command, key)
  return redis.call(command, key) > 300
end

local between = ',"' .. ARGV[1] .. '",'

local function decoded(texts, n)
  if n == 0 then return {} end
  local all = '[' .. table.concat(texts, between) .. ']'
  if #all > 32768 then return nil end
  local done, held = pcall(cjson.decode, all)
  if not done or #held ~= 2 * n - 1 then return nil end
  for i = 2, 2 * n - 2, 2 do
    if held[i] ~= ARGV[1] then return nil end
  end
  local bare = all
  if find(bare, '\\', 1, true) then bare = gsub(bare, '\\.', '') end
  if is_odd((gsub(bare, '%b""', ''))) or not is_utf8(all) then return nil end
  return held
end
"""

# Of all scripts the first argument is what nobody guesses, the second says which of the keys is to
# be written, the third by which command, and the others what that takes. Nothing follows it that
# a server may refuse.
_WRITE = "redis.call(ARGV[3], KEYS[tonumber(ARGV[2])], unpack(ARGV, 4))\n"

_SOME, _ANY = "#{0} > 0", "{0}"
_VALUES = "n = n + #{0} / 2\nfor i = 2, #{0}, 2 do texts[#texts + 1] = {0}[i] end\n"
_ITEMS = "if #{0} > 0 then n, texts[#texts + 1] = n + #{0}, table.concat({0}, between) end\n"
_NAMES = """for i = 1, #{0} do
  local seen, entry = {{}}, {0}[i][2]
  for j = 1, #entry, 2 do
    if seen[entry[j]] then return false end
    seen[entry[j]] = true
  end
end
"""
_INTEGER = (
    "if {0} and {0} ~= '0' and (#{0} > 20 or not find({0}, '^%-?[1-9]%d*$')) then "
    "return false end\n"
)
# By type: what counts the elements of a part, what asks for it, whether it is there, and whether it
# can be read.
_PARTS = {
    "hash": ("HLEN", "'HGETALL', {}", _SOME, ""),
    "hash of json": ("HLEN", "'HGETALL', {}", _SOME, _VALUES),
    "list": ("LLEN", "'LRANGE', {}, 0, -1", _SOME, ""),
    "list of json": ("LLEN", "'LRANGE', {}, 0, -1", _SOME, _ITEMS),
    "set": ("SCARD", "'SMEMBERS', {}", _SOME, ""),
    "sorted set": ("ZCARD", "'ZRANGE', {}, 0, -1, 'WITHSCORES'", _SOME, ""),
    "stream": ("XLEN", "'XRANGE', {}, '-', '+'", _SOME, _NAMES),
    "string": ("", "'GET', {}", _ANY, ""),
    "json": ("", "'GET', {}", _ANY, "if {0} then n, texts[#texts + 1] = n + 1, {0} end\n"),
    "integer": ("", "'GET', {}", _ANY, _INTEGER),
}


def of_parts(parts: Mapping[str, str]) -> Script | None:
    """Changes one key of a block whose parts, names and their types, lie under keys of their own.

    The first is the one that a block is known by; the empty name is the record itself. It answers
    what lay there before, and the deadline, and nothing where it did nothing. None where a type
    can't be looked at.
    """
    if not all(type_ in _PARTS for type_ in parts.values()):
        return None
    lines = [_SURE, "local texts, n = {}, 0\n"]
    for at, type_ in enumerate(parts.values(), 1):
        (counts, asks, there, looks), held, key = _PARTS[type_], f"p{at}", f"KEYS[{at}]"
        ends = f"redis.call('PEXPIRETIME', {key})"
        if counts:
            lines.append(f"if is_long('{counts}', {key}) then return false end\n")
        lines.append(f"local {held} = redis.call({asks.format(key)})\n")
        if at == 1:
            lines.append(f"if not ({there.format(held)}) then return false end\n")
            lines.append(f"local ends = {ends}\n")
        else:
            lines.append(f"if {there.format(held)} then if {ends} ~= ends then return false end\n")
            # What begins only now would have to be given the deadline as well.
            lines.append(f"elseif ARGV[2] == '{at}' and ends >= 0 then return false end\n")
        lines.append(looks.format(held))
    lines.append("local held = decoded(texts, n)\nif not held then return false end\n")
    if "" in parts:
        lines.append(_apart(parts[""], [name for name in parts if name]))
    answer = ", ".join(f"p{at}" for at in range(1, len(parts) + 1))
    return Script("".join([*lines, _WRITE, f"return {{{answer}, ends}}\n"]))


def _apart(type_: str, names: Sequence[str]) -> str:
    """The lines that see that the record has no field that is a part."""
    taken = f"local taken = {{{', '.join(f'[{_quoted(name)}] = true' for name in names)}}}\n"
    if type_ == "json":
        return taken + (
            "if not find(p1, '^{') then return false end\n"
            "for name in pairs(held[1]) do if taken[name] then return false end end\n"
        )
    return taken + "for i = 1, #p1, 2 do if taken[p1[i]] then return false end end\n"


def _quoted(name: str) -> str:
    """A text of Lua."""
    return "'" + "".join(f"\\{byte:03}" for byte in name.encode()) + "'"


# The key of a block with a field for each entry. The second argument is what to do: "set" fields
# and their values, add an "element" to a list by its name and value, or one to a list that is the
# text of a "field". Names are those of fields of the record and of elements of its lists alone.
HASH = Script(
    _SURE
    + r"""
if is_long('HLEN', KEYS[1]) then return false end
local all = redis.call('HGETALL', KEYS[1])
local side, rest
local whole, count, most, names = {}, {}, {}, {}
for i = 1, #all, 2 do
  local name = all[i]
  if name == '_migrator' then side = all[i + 1]
  elseif name == '' then rest = all[i + 1]
  else
    names[#names + 1] = name
    if not find(name, '[%.%[%]\\*%z]') then whole[name] = all[i + 1]
    else
      local of, at = string.match(name, '^([^%.%[%]\\*%z]+)%[(%d+)%]$')
      if not of or #at > 9 or find(at, '^0%d') then return false end
      count[of] = (count[of] or 0) + 1
      most[of] = math.max(most[of] or 0, tonumber(at) + 1)
    end
  end
end
if not side or not is_utf8(table.concat(names, ' ')) then return false end
for of, n in pairs(count) do
  if n ~= most[of] or whole[of] then return false end
end
local tags = {}
if side ~= '{}' then
  local done, held = pcall(cjson.decode, side)
  if not done or type(held) ~= 'table' or type(held.tags) ~= 'table' then return false end
  tags = held.tags
end
local left = {}
if rest then
  local note, held = tags[''], decoded({rest}, 1)
  if not held or rest == '{}' or not find(rest, '^{') then return false end
  if note ~= nil and (type(note) ~= 'table' or note[''] ~= nil) then return false end
  left = held[1]
  for name in pairs(left) do
    if whole[name] or count[name] then return false end
  end
end
local change = {unpack(ARGV, 3)}
if ARGV[2] == 'element' then
  if not count[change[1]] then return false end
  change[1] = change[1] .. '[' .. count[change[1]] .. ']'
elseif ARGV[2] == 'field' then
  local text = whole[change[1]]
  local held = text and find(text, '^%[.*%]$') and decoded({text}, 1)
  if not held or (#held[1] == 0 and text ~= '[]') then return false end
  change[2] = string.sub(text, 1, -2) .. (text == '[]' and '' or ',') .. change[2] .. ']'
end
for i = 1, #change, 2 do
  local name = change[i]
  if tags[name] ~= nil or left[name] ~= nil or count[name] then return false end
end
local ends = redis.call('PEXPIRETIME', KEYS[1])
redis.call('HSET', KEYS[1], unpack(change))
return {all, ends}
"""
)
