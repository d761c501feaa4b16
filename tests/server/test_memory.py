"""Freed memory is given back when it is much, and not again and again."""

import mmap

from mqks.server.memory import MUCH, Memory, resident


class Process:
    def __init__(self) -> None:
        self.resident = 100 << 20
        self.free = 0
        self.times = 0
        self.memory = Memory(lambda: self.resident, self.give_back)

    def give_back(self) -> None:
        self.times += 1
        self.resident -= self.free
        self.free = 0

    def look(self, used: int = 0) -> int:
        """How often memory was given back so far."""
        self.memory.look(used)
        return self.times


def test_what_the_broker_counts_was_freed() -> None:
    process = Process()
    assert process.look(2 * MUCH) == 0
    assert process.look(MUCH) == 0
    assert process.look(MUCH - 1) == 1
    assert process.look(0) == 1
    assert process.look(MUCH) == 1


def test_the_process_has_grown() -> None:
    process = Process()
    process.resident += MUCH
    assert process.look() == 0
    process.resident, process.free = process.resident + 1, MUCH // 2
    assert process.look() == 1
    assert process.look() == 1
    process.resident += MUCH
    assert process.look() == 1, "from where it was after that"
    process.resident += 1
    assert process.look() == 2, "once for each time that it has grown, though nothing was free"


def test_it_falls_by_itself_and_grows_again() -> None:
    process = Process()
    process.resident -= 3 * MUCH
    assert process.look() == 0
    process.resident += MUCH + 1
    assert process.look() == 1


def test_the_system_tells_how_much_there_is() -> None:
    before = resident()
    with mmap.mmap(-1, MUCH, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as much:  # not what was freed before
        much.write(b"x" * MUCH)
        assert resident() - before > MUCH // 2
