"""The ids that were published with --once, by their scopes: so many of the newest, and none older than the window.

An id is a digest of 128 bits; its text is not kept. Entries stand in the order in which they came, in parts that are full but for
the last one and never change; a table of slots finds them. An entry is 32 bytes, its slots are 11 to 32: a remembered id costs 64
bytes at most. What is old leaves a little with each id that comes, and by `forget_old`. Parts have copies on disk, so that a
checkpoint need only name them; who makes them is not known here. It touches nothing but its own memory.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport uint32_t, uint64_t
from libc.string cimport memcmp, memcpy, memmove, memset

from mqks.core.account cimport Account
from mqks.core.digest cimport Digest, digest_of
from mqks.core.memory cimport Memory, give_back, resize, take
from mqks.core.text cimport Flags, after_flag, scope_of

cdef enum:
    SMALLEST = 64               # slots
    OLD_AT_ONCE = 2             # that leave when one comes

cdef size_t NOWHERE = <size_t>-1
cdef uint64_t IN_USE = <uint64_t>1 << 63


cdef inline uint64_t slot_of(Digest digest, uint64_t number) noexcept:
    """31 bits of the digest, by which the slot is found, and 32 of the number."""
    return IN_USE | (digest.high >> 32 << 32) | <uint32_t>number


@cython.final
cdef class Seen:
    def __init__(self, Account account):
        self.account = account
        self.memory = &account.memory
        self.left = []

    def __dealloc__(self):
        cdef Memory uncounted = Memory(0)       # the account may be gone already
        cdef size_t i
        for i in range(self.part_count):
            give_back(&uncounted, self.parts[i].entries, sizeof(Entry) << self.shift)
        give_back(&uncounted, self.parts, self.part_capacity * sizeof(Part))
        give_back(&uncounted, self.slots, self.capacity * sizeof(uint64_t))

    def open(self, bytes key, *, size_t most, double window, int shift, clock, begun):
        """With a key of 16 bytes; `begun` is called whenever the first id comes."""
        self.most = most
        self.window = window
        self.shift = shift
        self.clock = clock
        self.begun = begun
        self.use_key(key)

    # ── ids ──

    def use_key(self, bytes key):
        """Another one, before there are ids."""
        memcpy(&self.secret, PyBytes_AS_STRING(key), sizeof(Digest))

    @property
    def key(self):
        return PyBytes_FromStringAndSize(<char*>&self.secret, sizeof(Digest))

    def __len__(self):
        return self.next - self.first

    def knows(self, bytes scope, bytes id):
        """Is this id remembered?"""
        return self.knows_at(self.find(self.digest(
            PyBytes_AS_STRING(scope), PyBytes_GET_SIZE(scope), PyBytes_AS_STRING(id), PyBytes_GET_SIZE(id)
        )))

    def count_duplicate(self):
        self.duplicates += 1

    cdef Digest digest(self, const char* scope, size_t scope_size, const char* id, size_t id_size) noexcept:
        return digest_of(id, id_size, digest_of(scope, scope_size, self.secret))

    cdef bint knows_at(self, size_t at) except -1:
        """Is what stands in this slot still within the window?"""
        self.now = self.clock()
        if at == NOWHERE:
            return False
        return self.now - self.entry(self.first + <uint32_t>(self.slots[at] - self.first)).time <= self.window

    cdef bint admit(self, Digest digest) except -1:
        """Is this id new? Then there is room for it, and `add` is to follow; else it is counted."""
        if self.knows_at(self.find(digest)):
            self.duplicates += 1
            return False
        self.make_room()
        return True

    cdef void add(self, Digest digest, uint64_t position, double time) noexcept:
        """Remember an id for which there is room."""
        cdef size_t at = self.find(digest)
        cdef Entry* entry = self.entry(self.next)
        entry.digest = digest
        entry.position = position
        entry.time = time
        if at == NOWHERE:               # else it was known long ago
            self.taken += 1
            at = (digest.high >> 32) & (self.capacity - 1)
            while self.slots[at]:
                at = (at + 1) & (self.capacity - 1)
        self.slots[at] = slot_of(digest, self.next)
        self.next += 1

    cdef char* replay(self, uint64_t position, char* line, char* after_id, char* flag, char* end, double time) except NULL:
        """A message of the log from before a restart, which may have the flag. Answers what follows."""
        cdef Flags flags = Flags(False, flag, after_flag(flag, end) - flag)
        cdef char* scope
        cdef size_t size
        cdef double now
        if flags.once_size and (flags.once_size < 7 or flag[flags.once_size - 1] != 32 or memcmp(flag, b"--once", 6) != 0):
            raise ValueError("a message with an unknown flag")
        if flags.once_size and self.most:
            scope = scope_of(&flags, &size)
            now = self.clock()
            self.now = min(time, now)           # a clock that was ahead has made none old
            self.make_room()
            self.add(self.digest(scope, size, line, after_id - line), position, time)
        return flag + flags.once_size

    cdef int make_room(self) except -1:
        cdef size_t capacity
        cdef int i
        for i in range(OLD_AT_ONCE):
            if self.next != self.first and self.now - self.entry(self.first).time > self.window:
                self.forget_first()
        while self.next != self.first and self.next - self.first >= self.most:
            self.forget_first()
        if (self.next >> self.shift) - (self.first >> self.shift) == self.part_count:
            if self.part_count == self.part_capacity:
                capacity = 2 * self.part_capacity if self.part_capacity else 8
                self.parts = <Part*>resize(
                    self.memory, self.parts, self.part_capacity * sizeof(Part), capacity * sizeof(Part),
                    self.part_count * sizeof(Part),
                )
                self.part_capacity = capacity
            self.parts[self.part_count] = Part(<Entry*>take(self.memory, sizeof(Entry) << self.shift), 0)
            self.part_count += 1
        if 4 * (self.taken + 1) > 3 * self.capacity:
            self.rebuild(2 * self.capacity if self.capacity else SMALLEST)
        if self.next == self.first:
            self.begun()
        return 0

    cdef Entry* entry(self, uint64_t number) noexcept:
        cdef Part* part = &self.parts[(number >> self.shift) - (self.first >> self.shift)]
        return &part.entries[number & (((<uint64_t>1) << self.shift) - 1)]

    # ── slots ──

    cdef size_t find(self, Digest digest) noexcept:
        """The slot of this id."""
        cdef uint64_t wanted = slot_of(digest, 0)
        cdef size_t at = (digest.high >> 32) & (self.capacity - 1)
        cdef Entry* entry
        if self.capacity == 0:
            return NOWHERE
        while self.slots[at]:
            if self.slots[at] >> 32 << 32 == wanted:
                entry = self.entry(self.first + <uint32_t>(self.slots[at] - self.first))
                if entry.digest.high == digest.high and entry.digest.low == digest.low:
                    return at
            at = (at + 1) & (self.capacity - 1)
        return NOWHERE

    cdef void vacate(self, size_t hole) noexcept:
        """Free a slot, and close the gap that it would leave for those who look on from slot to slot."""
        cdef size_t at = hole
        cdef size_t last = self.capacity - 1
        self.taken -= 1
        while True:
            at = (at + 1) & last
            if self.slots[at] == 0:
                break
            if ((at - (self.slots[at] >> 32)) & last) >= ((at - hole) & last):
                self.slots[hole] = self.slots[at]
                hole = at
        self.slots[hole] = 0

    cdef int rebuild(self, size_t capacity) except -1:
        """More slots, or fewer."""
        cdef uint64_t* old = self.slots
        cdef uint64_t* fresh = <uint64_t*>take(self.memory, capacity * sizeof(uint64_t))
        cdef size_t i
        cdef size_t at
        memset(fresh, 0, capacity * sizeof(uint64_t))
        for i in range(self.capacity):
            if old[i]:
                at = (old[i] >> 32) & (capacity - 1)
                while fresh[at]:
                    at = (at + 1) & (capacity - 1)
                fresh[at] = old[i]
        give_back(self.memory, old, self.capacity * sizeof(uint64_t))
        self.slots = fresh
        self.capacity = capacity
        return 0

    # ── forgetting ──

    cdef int forget_first(self) except -1:
        """Forget the oldest; there must be one."""
        cdef Digest digest = self.entry(self.first).digest
        cdef size_t at = self.find(digest)
        if at != NOWHERE and <uint32_t>self.slots[at] == <uint32_t>self.first:      # else a later one has its slot
            self.vacate(at)
        self.first += 1
        if self.first == self.next:
            self.release()
            return 0
        if self.first & (((<uint64_t>1) << self.shift) - 1) == 0:
            if self.parts[0].place:
                self.left.append(self.parts[0].place)
            give_back(self.memory, self.parts[0].entries, sizeof(Entry) << self.shift)
            self.part_count -= 1
            memmove(self.parts, self.parts + 1, self.part_count * sizeof(Part))
        if self.capacity > SMALLEST and 4 * self.taken < self.capacity:
            self.rebuild(self.capacity // 2)
        return 0

    cdef void release(self) noexcept:
        """Forget all. The next entry begins a part."""
        cdef size_t i
        for i in range(self.part_count):
            if self.parts[i].place:
                self.left.append(self.parts[i].place)
            give_back(self.memory, self.parts[i].entries, sizeof(Entry) << self.shift)
        give_back(self.memory, self.slots, self.capacity * sizeof(uint64_t))
        self.slots = NULL
        self.part_count = self.capacity = self.taken = 0
        self.first = self.next = ((self.next >> self.shift) + 1) << self.shift

    def forget_old(self, size_t most, uint64_t before):
        """Forget some of those that are older than the window, or came before the one of this number, whatever their times say.
        Answers how long the next is within the window; None: there is none."""
        cdef double left
        self.now = self.clock()
        while self.next != self.first:
            left = self.entry(self.first).time + self.window - self.now
            if left >= 0 and self.first >= before:
                return left
            if most == 0:
                return 0.0
            self.forget_first()
            most -= 1
        return None

    def forget_between(self, uint64_t start, uint64_t end):
        """The messages at these positions are lost: their ids may come again."""
        cdef uint64_t number
        cdef size_t at
        for number in range(self.first, self.next):
            if start <= self.entry(number).position < end:
                at = self.find(self.entry(number).digest)
                if at != NOWHERE and <uint32_t>self.slots[at] == <uint32_t>number:
                    self.vacate(at)

    # ── the disk ──

    def kept(self):
        """The places of the parts, oldest first; 0: it has none."""
        cdef size_t i
        return [self.parts[i].place for i in range(self.part_count)]

    def entries(self, size_t part):
        """Those of a part, as the disk has them. The oldest part begins with some that are forgotten: the next start will do so too."""
        cdef uint64_t size = (<uint64_t>1) << self.shift
        if part + 1 == self.part_count:
            size = self.next - (((self.first >> self.shift) + part) << self.shift)
        return PyBytes_FromStringAndSize(<char*>self.parts[part].entries, size * sizeof(Entry))

    def is_full(self, size_t part):
        return part + 1 < self.part_count or self.next & (((<uint64_t>1) << self.shift) - 1) == 0

    def put(self, size_t part, uint64_t place):
        """This part, which is full, has a copy there."""
        self.parts[part].place = place

    def adopt(self, bytes entries, uint64_t place):
        """A part as it was before a restart; the older ones came before."""
        cdef Entry* from_disk = <Entry*>PyBytes_AS_STRING(entries)
        cdef size_t count = PyBytes_GET_SIZE(entries) // sizeof(Entry)
        cdef uint64_t begin = self.next
        cdef size_t i
        self.now = 0                    # so that none leaves for its age: they would no longer stand as in the copy
        for i in range(count if self.most else 0):
            self.make_room()
            self.add(from_disk[i].digest, from_disk[i].position, from_disk[i].time)
        if place == 0:
            return
        if count >> self.shift == 1 and self.next == begin + count and begin & (count - 1) == 0:
            self.parts[self.part_count - 1].place = place
        else:
            self.left.append(place)

    def take_left(self):
        """The places of the parts that have gone since the last time."""
        cdef list left = self.left
        self.left = []
        return left
