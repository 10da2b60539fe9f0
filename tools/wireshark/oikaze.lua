-- Wireshark dissector for Oikaze's datagrams (spec/wire.md; the heads of messages: spec/memory.md, MEM-2).
--
--   wireshark -X lua_script:tools/wireshark/oikaze.lua capture.0.pcapng
--   tshark    -X lua_script:tools/wireshark/oikaze.lua -r capture.0.pcapng -Y oikaze.ack.refused
--
-- Of a sealed job (--seal full), record the keys, too, and open the capture first (docs/OBSERVING.md):
--
--   OIKAZE_PCAP=x.pcapng OIKAZE_KEY_LOG=keys oikaze run -n 2 -- ./program
--   python3 tools/open_capture.py --keys keys x.0.pcapng opened.pcapng
--
-- Or put it into the folder of personal plugins (Help > About > Folders). Datagrams are recognised by their form, on any port.

local oikaze = Proto("oikaze", "Oikaze")

local HEADER, PREFIX = 24, 4
local KEY_AND_COOKIE = 88
local SEALS = { [0] = "CRC32C of header and frames", [1] = "CRC32C end to end", [2] = "handshake MAC", [3] = "encrypted", [4] = "authenticated" }
local TAG_LEN = { [0] = 4, [1] = 4, [2] = 16, [3] = 16, [4] = 16 }
local KINDS = { "PING", "ACK", "MESSAGE", "OPEN", "FRAGMENT", "WITHDRAW", "CLOSE", "HELLO", "REFUSE", "PAD", "COOKIE", "GROUP", "GROUP_ACK", "SETTLED" }
local CLASSES = { [0] = "ordered", [1] = "unordered", [2] = "synchronous" }
local REFUSALS = {
  "unknown key", "out of bounds", "not permitted", "misaligned", "malformed", "unknown name", "no room", "unknown object", "not asked",
  "full", "no FIFO", "too long", "not present", "lost", "no memory", "withdrawn", "barred", "moved",
}
local MISFITS = { "version", "nodes", "page size", "byte order", "architecture", "rank", "seal" }
local ARCHITECTURES = { [0] = "other", "x86-64", "AArch64", "RISC-V 64" }
local ORDERS = { "little-endian", "big-endian" }
local HEADS = {
  [0x01] = "put", [0x02] = "put with signal", [0x03] = "get", [0x04] = "atomic", [0x05] = "lookup", [0x06] = "accumulate",
  [0x07] = "push", [0x08] = "put block", [0x09] = "put block with signal", [0x0a] = "get block", [0x0b] = "put with notice",
  [0x10] = "user message",
  [0x11] = "parcel", [0x20] = "coherence", [0x30] = "stream", [0x81] = "data", [0x82] = "old value", [0x83] = "found", [0x84] = "missing", [0x85] = "gone",
}
local PURPOSES = { [0] = "data", "notice", "failed", "credit", "view", "disorder", "not whole" }
local COLLECTIVES = {
  "broadcast", "gather", "all_gather", "scatter", "reduce", "all_reduce", "reduce_scatter", "scan", "exclusive_scan", "all_to_all",
  "shrink",
}
local ATOMICS = { "add", "compare-and-swap", "swap", "and", "or", "xor", "min", "max", "signed min", "signed max" }
for operation = 1, 10 do ATOMICS[operation + 128] = ATOMICS[operation] .. ", 32 bits" end

local F = {
  connection = ProtoField.uint64("oikaze.connection", "Connection", base.HEX),
  number = ProtoField.uint64("oikaze.number", "Datagram number"),
  ack_now = ProtoField.bool("oikaze.ack_now", "Acknowledge at once", 8, nil, 1),
  bulk = ProtoField.bool("oikaze.bulk", "Bulk", 8, nil, 2),
  ack_lane = ProtoField.uint8("oikaze.ack.lane", "Lane", base.DEC, { [0] = "small", [1] = "bulk" }),
  bulk_lane = ProtoField.bool("oikaze.flags.bulk_lane", "Bulk lane", 8, nil, 4),
  seal = ProtoField.uint8("oikaze.seal", "Seal", base.DEC, SEALS),
  frames_len = ProtoField.uint16("oikaze.frames_len", "Bytes of frames"),
  payload_len = ProtoField.uint16("oikaze.payload_len", "Bytes of payload"),
  payload = ProtoField.bytes("oikaze.payload", "Payload"),
  tag = ProtoField.bytes("oikaze.tag", "Tag"),
  frame = ProtoField.none("oikaze.frame", "Frame"),
  kind = ProtoField.uint8("oikaze.kind", "Kind", base.DEC, KINDS),
  frame_flags = ProtoField.uint8("oikaze.frame_flags", "Flags", base.HEX),
  frame_len = ProtoField.uint16("oikaze.frame_len", "Bytes of the frame"),
  class = ProtoField.uint8("oikaze.class", "Class", base.DEC, CLASSES, 3),
  credited = ProtoField.bool("oikaze.credited", "Credited", 8, nil, 4),
  message = ProtoField.uint64("oikaze.message", "Message number"),
  message_low = ProtoField.uint32("oikaze.message_low", "Message number, low half"),
  members = ProtoField.uint32("oikaze.group.members", "Members", base.HEX),
  stream = ProtoField.uint64("oikaze.group.stream", "Stream", base.HEX),
  offset = ProtoField.uint64("oikaze.offset", "Offset in the body"),
  head_len = ProtoField.uint8("oikaze.head_len", "Bytes of the head"),
  body_len = ProtoField.uint64("oikaze.body_len", "Bytes of the body"),
  body = ProtoField.bytes("oikaze.body", "Body"),
  largest = ProtoField.uint64("oikaze.ack.largest", "Largest"),
  credit = ProtoField.uint64("oikaze.credit", "Credit granted in all"),
  delay = ProtoField.uint32("oikaze.ack.delay", "Delay (ns)"),
  ranges = ProtoField.uint8("oikaze.ack.ranges", "Ranges"),
  refusals = ProtoField.uint8("oikaze.ack.refusals", "Refusals"),
  marked = ProtoField.uint32("oikaze.ack.marked", "Came marked (CE)"),
  share = ProtoField.uint32("oikaze.ack.share", "Share of the receiver's buffer"),
  range = ProtoField.string("oikaze.ack.range", "Received"),
  refused = ProtoField.uint64("oikaze.ack.refused", "Refused message"),
  refusal = ProtoField.uint8("oikaze.refusal", "Refusal", base.DEC, REFUSALS),
  version = ProtoField.uint16("oikaze.hello.version", "Lowest version"),
  highest = ProtoField.uint16("oikaze.hello.highest", "Highest version"),
  byte_order = ProtoField.uint8("oikaze.hello.byte_order", "Byte order", base.DEC, ORDERS),
  architecture = ProtoField.uint8("oikaze.hello.architecture", "Architecture", base.DEC, ARCHITECTURES),
  parcel_purpose = ProtoField.uint8("oikaze.parcel.purpose", "Purpose", base.DEC, PURPOSES),
  team = ProtoField.uint64("oikaze.parcel.team", "Team", base.HEX),
  collective_number = ProtoField.uint64("oikaze.parcel.number", "Number of the collective"),
  round = ProtoField.uint32("oikaze.parcel.round", "Round", base.HEX),
  collective = ProtoField.uint8("oikaze.parcel.collective", "Collective", base.DEC, COLLECTIVES),
  uneven = ProtoField.uint8("oikaze.parcel.uneven", "Unequal counts"),
  operator = ProtoField.uint8("oikaze.parcel.operator", "Operator"),
  type_name = ProtoField.uint32("oikaze.parcel.type_name", "Sum of the type's name", base.HEX),
  type_size = ProtoField.uint32("oikaze.parcel.type_size", "Bytes of an element"),
  root = ProtoField.uint32("oikaze.parcel.root", "Root"),
  elements = ProtoField.uint64("oikaze.parcel.elements", "Elements"),
  rank = ProtoField.uint32("oikaze.rank", "Rank"),
  nodes = ProtoField.uint32("oikaze.hello.nodes", "Nodes"),
  page_size = ProtoField.uint32("oikaze.hello.page_size", "Page size"),
  incarnation = ProtoField.uint64("oikaze.hello.incarnation", "Incarnation"),
  mine = ProtoField.uint64("oikaze.hello.connection", "Sender's id for the connection", base.HEX),
  receive_buffer = ProtoField.uint32("oikaze.hello.receive_buffer", "Receive buffer"),
  bulk_port = ProtoField.uint16("oikaze.hello.bulk_port", "Port of its bulk lane"),
  datagram_max = ProtoField.uint16("oikaze.hello.datagram_max", "Largest datagram"),
  to = ProtoField.uint32("oikaze.hello.to", "To rank"),
  path = ProtoField.uint8("oikaze.hello.path", "Path"),
  your_path = ProtoField.uint8("oikaze.hello.your_path", "Receiver's path"),
  yours = ProtoField.uint64("oikaze.hello.your_connection", "Receiver's id, as heard", base.HEX),
  your_incarnation = ProtoField.uint64("oikaze.hello.your_incarnation", "Receiver's incarnation"),
  wanted = ProtoField.bool("oikaze.hello.answer_wanted", "Answer wanted", 8, nil, 1),
  misfit = ProtoField.uint8("oikaze.refuse.what", "Does not fit", base.DEC, MISFITS),
  refuse_mine = ProtoField.uint64("oikaze.refuse.mine", "Sender's value"),
  your_number = ProtoField.uint64("oikaze.cookie.your_number", "Number of the HELLO"),
  refuse_yours = ProtoField.uint64("oikaze.refuse.yours", "Receiver's value"),
  head = ProtoField.uint8("oikaze.head", "Head", base.HEX, HEADS),
  key = ProtoField.uint64("oikaze.key", "Key", base.HEX),
  region_offset = ProtoField.uint64("oikaze.region_offset", "Offset in the region"),
  len = ProtoField.uint64("oikaze.len", "Bytes"),
  signal_key = ProtoField.uint64("oikaze.signal.key", "Signal's key", base.HEX),
  signal_offset = ProtoField.uint64("oikaze.signal.offset", "Signal's offset"),
  row = ProtoField.uint32("oikaze.block.row", "Bytes of a row"),
  rows = ProtoField.uint32("oikaze.block.rows", "Rows"),
  planes = ProtoField.uint32("oikaze.block.planes", "Planes"),
  row_stride = ProtoField.uint64("oikaze.block.row_stride", "Row stride"),
  plane_stride = ProtoField.uint64("oikaze.block.plane_stride", "Plane stride"),
  signal_add = ProtoField.uint64("oikaze.signal.add", "Signal adds"),
  token = ProtoField.uint64("oikaze.ticket.token", "Ticket: token"),
  serial = ProtoField.uint64("oikaze.ticket.serial", "Ticket: serial"),
  atomic = ProtoField.uint8("oikaze.atomic", "Operation", base.DEC, ATOMICS),
  first = ProtoField.uint64("oikaze.atomic.first", "First operand"),
  second = ProtoField.uint64("oikaze.atomic.second", "Second operand"),
  user_tag = ProtoField.uint64("oikaze.user_tag", "User's tag"),
  old = ProtoField.uint64("oikaze.old", "Old value"),
  rights = ProtoField.uint8("oikaze.rights", "Rights (1 read, 2 write, 4 atomic)"),
  count = ProtoField.uint32("oikaze.count", "Names"),
  rest = ProtoField.bytes("oikaze.rest", "Further bytes"),
}
local fields = {}
for _, field in pairs(F) do fields[#fields + 1] = field end
oikaze.fields = fields

local E = {
  malformed = ProtoExpert.new("oikaze.malformed", "Malformed", expert.group.MALFORMED, expert.severity.ERROR),
  refused = ProtoExpert.new("oikaze.refusal.told", "A message was refused", expert.group.RESPONSE_CODE, expert.severity.NOTE),
}
oikaze.experts = { E.malformed, E.refused }

-- Bytes of a field, by its type.
local WIDTH = {
  [ftypes.UINT8] = 1, [ftypes.BOOLEAN] = 1, [ftypes.UINT16] = 2, [ftypes.UINT32] = 4, [ftypes.UINT64] = 8,
}

-- Reads fields one behind the other; what is missing is said, once.
local Cursor = {}
Cursor.__index = Cursor

local function cursor(tvb, tree) return setmetatable({ tvb = tvb, tree = tree, at = 0, ok = true }, Cursor) end

function Cursor:left() return self.tvb:len() - self.at end

function Cursor:take(len)
  if not self.ok or len > self:left() then
    if self.ok then self.tree:add_proto_expert_info(E.malformed, "Cut short") end
    self.ok = false
    return nil
  end
  local range = self.tvb(self.at, len)
  self.at = self.at + len
  return range
end

-- One little-endian number of so many bytes; its value if it is there.
function Cursor:number(field, width)
  local range = self:take(width)
  if not range then return nil end
  self.tree:add_le(field, range)
  if width > 4 then return range:le_uint64() end
  return range:le_uint()
end

function Cursor:skip(len) self:take(len) end

function Cursor:bytes(field, len)
  if len <= 0 then return end
  local range = self:take(len)
  if range then self.tree:add(field, range) end
end

local function u8(c, field) return c:number(field, 1) end
local function u16(c, field) return c:number(field, 2) end
local function u32(c, field) return c:number(field, 4) end
local function u64(c, field) return c:number(field, 8) end
local function u48(c, field) return c:number(field, 6) end
local function block(c)
  u48(c, F.region_offset); u32(c, F.row); u32(c, F.rows); u32(c, F.planes); u48(c, F.row_stride); u48(c, F.plane_stride)
end
local function ticket(c) u64(c, F.token); u64(c, F.serial) end

-- MEM-2.1, after the first byte.
local HEAD = {
  [0x01] = function(c) u64(c, F.key); u64(c, F.region_offset) end,
  [0x02] = function(c)
    u64(c, F.key); u64(c, F.region_offset); u64(c, F.signal_key); u64(c, F.signal_offset); u64(c, F.signal_add)
  end,
  [0x03] = function(c) ticket(c); u64(c, F.key); u64(c, F.region_offset); u64(c, F.len) end,
  [0x04] = function(c)
    ticket(c); u64(c, F.key); u64(c, F.region_offset); u8(c, F.atomic); u64(c, F.first); u64(c, F.second)
  end,
  [0x05] = ticket,
  [0x08] = function(c) u64(c, F.key); block(c) end,
  [0x09] = function(c)
    u64(c, F.key); block(c); u64(c, F.signal_key); u64(c, F.signal_offset); u64(c, F.signal_add)
  end,
  [0x0a] = function(c) ticket(c); u64(c, F.key); block(c) end,
  [0x0b] = function(c) u64(c, F.key); u64(c, F.region_offset); u64(c, F.user_tag) end,
  [0x10] = function(c) u64(c, F.user_tag) end,
  [0x11] = function(c)
    u8(c, F.parcel_purpose); u64(c, F.team); u64(c, F.collective_number); u32(c, F.round); u8(c, F.collective)
    u8(c, F.uneven); u8(c, F.operator); u32(c, F.type_name); u32(c, F.type_size); u32(c, F.root); u64(c, F.elements)
  end,
  [0x81] = ticket,
  [0x82] = function(c) ticket(c); u64(c, F.old) end,
  [0x83] = function(c) ticket(c); u64(c, F.key); u64(c, F.len); u8(c, F.rights) end,
  [0x84] = function(c) ticket(c); u32(c, F.count) end,
  [0x85] = function(c) ticket(c); u8(c, F.refusal) end,
}

-- A message's head; what it is about, in a word.
local function head(c, len)
  if len == 0 then return "no head" end
  local range = c:take(len)
  if not range then return "" end
  local kind = range(0, 1):uint()
  local inner = cursor(range:tvb(), c.tree:add(F.head, range(0, 1)))
  inner:skip(1)
  if HEAD[kind] then HEAD[kind](inner) end
  inner:bytes(F.rest, inner:left())
  return HEADS[kind] or string.format("head %02x", kind)
end

local function flags_of_message(c, flags)
  c.tree:add(F.class, flags)
  c.tree:add(F.credited, flags)
  return CLASSES[flags:uint() % 4] or "?"
end

local FRAME = {}

FRAME[1] = function() return "" end

FRAME[2] = function(c)
  local largest = u64(c, F.largest)
  u64(c, F.credit)
  u32(c, F.delay)
  local ranges, refusals = u8(c, F.ranges), u8(c, F.refusals)
  u8(c, F.ack_lane)
  c:skip(1)
  u32(c, F.marked)
  u32(c, F.share)
  local below = c:take(4)
  if not below then return "" end
  local text, high, low = {}, largest, largest - UInt64(below:le_uint())
  local function add(from)
    local range = high == low and tostring(high) or string.format("%s-%s", tostring(low), tostring(high))
    text[#text + 1] = range
    c.tree:add(F.range, from, range)
  end
  if ranges > 0 then add(below) end
  for _ = 2, ranges do
    local pair = c:take(8)
    if not pair then break end
    high = low - UInt64(pair(0, 4):le_uint()) - UInt64(1)
    low = high - UInt64(pair(4, 4):le_uint())
    add(pair)
  end
  for _ = 1, refusals do
    local number, code = u64(c, F.refused), u8(c, F.refusal)
    if not code then break end
    c.tree:add_proto_expert_info(E.refused)
    text[#text + 1] = string.format("refuses %s (%s)", tostring(number), REFUSALS[code] or code)
  end
  return table.concat(text, " ")
end

FRAME[3] = function(c, flags)
  local class = flags_of_message(c, flags)
  local number, len = u64(c, F.message), u8(c, F.head_len)
  c:skip(3)
  local what = head(c, len or 0)
  local body = c:left()
  c:bytes(F.body, body)
  return string.format("%s %s, %s, %d bytes", tostring(number), class, what, body)
end

FRAME[4] = function(c, flags)
  local class = flags_of_message(c, flags)
  local number, body, len = u64(c, F.message), u64(c, F.body_len), u8(c, F.head_len)
  c:skip(3)
  return string.format("%s %s, %s, %s bytes", tostring(number), class, head(c, len or 0), tostring(body))
end

FRAME[5] = function(c)
  local number, offset = u32(c, F.message_low), u64(c, F.offset)
  return string.format("%s from %s", tostring(number), tostring(offset))
end

FRAME[6] = function(c, flags)
  c.tree:add(F.credited, flags)
  local number = u64(c, F.message)
  u64(c, F.body_len)
  return tostring(number)
end

FRAME[7] = function() return "" end

FRAME[8] = function(c, flags)
  c.tree:add(F.wanted, flags)
  u16(c, F.version)
  u8(c, F.byte_order)
  u8(c, F.architecture)
  local rank, nodes = u32(c, F.rank), u32(c, F.nodes)
  u32(c, F.page_size)
  u64(c, F.incarnation)
  u64(c, F.mine)
  u64(c, F.credit)
  u32(c, F.receive_buffer)
  u16(c, F.datagram_max)
  u8(c, F.seal)
  u16(c, F.bulk_port)
  c:skip(3)
  local to = u32(c, F.to)
  u8(c, F.path)
  u8(c, F.your_path)
  c:skip(2)
  u64(c, F.yours)
  u64(c, F.your_incarnation)
  -- Message of the key exchange and cookie, and then what only some versions have.
  c:bytes(F.rest, math.min(c:left(), KEY_AND_COOKIE))
  if c:left() >= 4 then
    u16(c, F.highest)
    c:bytes(F.rest, c:left())
  end
  return string.format("rank %s of %s to %s", tostring(rank), tostring(nodes), tostring(to))
end

FRAME[9] = function(c)
  local rank, what = u32(c, F.rank), u8(c, F.misfit)
  c:skip(3)
  u64(c, F.refuse_mine)
  u64(c, F.refuse_yours)
  u64(c, F.your_incarnation)
  return string.format("by rank %s: %s", tostring(rank), MISFITS[what] or "?")
end

FRAME[11] = function(c)
  local rank = u32(c, F.rank)
  c:skip(4)
  u64(c, F.your_incarnation)
  return string.format("by rank %s for HELLO %s", tostring(rank), tostring(u64(c, F.your_number)))
end

FRAME[10] = function(c)
  local len = c:left()
  c:skip(len)
  return string.format("%d bytes", len)
end

FRAME[12] = function(c)
  local members = u32(c, F.members)
  if c:left() == 0 then return string.format("probe of %08x", members or 0) end
  local numbers = {}
  while c.ok and c:left() >= 4 do numbers[#numbers + 1] = tostring(u32(c, F.message_low)) end
  return string.format("for %08x: %s", members or 0, table.concat(numbers, " "))
end

FRAME[13] = function(c)
  local stream = u64(c, F.stream)
  return string.format("of %s: %s", tostring(stream), FRAME[2](c))
end

FRAME[14] = function(c)
  return string.format("below %s", tostring(u64(c, F.message)))
end

-- WIRE-2: do the lengths add up, and has every field a meaning? What is not a datagram of Oikaze hardly ever passes.
local function is_oikaze(tvb)
  if tvb:len() < HEADER + 4 then return false end
  local flags, seal = tvb(16, 1):uint(), tvb(17, 1):uint()
  local frames, payload = tvb(18, 2):le_uint(), tvb(20, 2):le_uint()
  if flags > 7 or seal > 4 or tvb(22, 2):le_uint() ~= 0 then return false end
  local handshake = tvb(0, 8):le_uint64() == UInt64(0)
  if handshake ~= (seal == 2) or (flags % 4 >= 2) ~= (payload > 0) then return false end
  return HEADER + frames + payload + TAG_LEN[seal] == tvb:len()
end

-- One frame; its summary, and where the next begins (nil if that cannot be known).
local function frame(tvb, at, tree)
  local left = tvb:len() - at
  local len = left >= PREFIX and tvb(at + 2, 2):le_uint() or 0
  if len < PREFIX or len > left then
    tree:add_proto_expert_info(E.malformed, "A frame is cut short")
    return "malformed", nil
  end
  local kind = tvb(at, 1):uint()
  local name = KINDS[kind] or string.format("frame %d", kind)
  local branch = tree:add(F.frame, tvb(at, len))
  branch:add(F.kind, tvb(at, 1))
  branch:add(F.frame_flags, tvb(at + 1, 1))
  branch:add_le(F.frame_len, tvb(at + 2, 2))
  local summary = ""
  if FRAME[kind] then
    local inner = len > PREFIX and tvb(at + PREFIX, len - PREFIX):tvb() or ByteArray.new(""):tvb("nothing")
    local c = cursor(inner, branch)
    summary = FRAME[kind](c, tvb(at + 1, 1))
    c:bytes(F.rest, c.ok and c:left() or 0)
  else
    branch:add_proto_expert_info(E.malformed, "Unknown kind")
  end
  local text = summary == "" and name or name .. " " .. summary
  branch:set_text(text)
  return text, at + len
end

function oikaze.dissector(tvb, info, root)
  if not is_oikaze(tvb) then return 0 end
  local seal, frames, payload = tvb(17, 1):uint(), tvb(18, 2):le_uint(), tvb(20, 2):le_uint()
  info.cols.protocol = "Oikaze"
  local tree = root:add(oikaze, tvb())
  tree:add_le(F.connection, tvb(0, 8))
  tree:add_le(F.number, tvb(8, 8))
  tree:add(F.ack_now, tvb(16, 1))
  tree:add(F.bulk, tvb(16, 1))
  tree:add(F.bulk_lane, tvb(16, 1))
  tree:add(F.seal, tvb(17, 1))
  tree:add_le(F.frames_len, tvb(18, 2))
  tree:add_le(F.payload_len, tvb(20, 2))
  local summaries, at = {}, HEADER
  local all = tvb(0, HEADER + frames)
  -- Without the keys, nothing more is to be seen.
  if seal == 3 then summaries, at = { "encrypted" }, nil end
  while at and at < HEADER + frames do
    local summary
    summary, at = frame(all:tvb(), at, tree)
    summaries[#summaries + 1] = summary
  end
  if payload > 0 then tree:add(F.payload, tvb(HEADER + frames, payload)) end
  tree:add(F.tag, tvb(HEADER + frames + payload, TAG_LEN[seal]))
  local mark = tvb(16, 1):uint() % 2 == 1 and "!" or ""
  local number = tostring(tvb(8, 8):le_uint64())
  local text = string.format("#%s%s %s", number, mark, table.concat(summaries, ", "))
  tree:append_text(", " .. text)
  info.cols.info = text
  return tvb:len()
end

oikaze:register_heuristic("udp", function(tvb, info, root)
  if not is_oikaze(tvb) then return false end
  oikaze.dissector(tvb, info, root)
  return true
end)
DissectorTable.get("udp.port"):add_for_decode_as(oikaze)
