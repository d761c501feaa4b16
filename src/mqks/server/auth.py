"""Who a token belongs to: the auth file in memory, and checks that are slow on purpose.

A check takes scrypt's time, in one thread beside the event loop, for any token and for any name; of each address one
stands in line, so that all addresses have their turn. A wrong one is answered late, later each time; a right one never
waits for that, and none is refused since there are many. Each is of a connection, and those have a limit: a check for
which nobody waits any more is dropped before it begins. One that has begun counts, whoever goes meanwhile. What was
accepted once is remembered by its HMAC as long as its entry stands in the file: thousands of clients that come back at
once cost nothing, and no attempts of others keep them waiting. No log line and no error has a token.
"""

import asyncio
import hashlib
import hmac
import logging
import secrets
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from mqks.broker.auth.access import Rights
from mqks.broker.auth.authentication import Decided, Drop
from mqks.broker.connections.client import origin
from mqks.broker.errors import BadRequest, Fault
from mqks.logs import Entry
from mqks.server import tokens
from mqks.server.config import ConfigError
from mqks.server.tokens import Hash, Token, name_of

log = logging.getLogger(__name__)

FIRST_PENALTY = 1.0  # seconds that a wrong token waits for its answer
MOST_PENALTY = 30.0
FORGET_AFTER = 600.0  # seconds without a wrong token
MOST_ADDRESSES = 10_000  # whose wrong tokens are remembered
MOST_ACCEPTED = 10_000  # tokens that are remembered

UNKNOWN = "the token is not one that is known"
NOT_THERE = "its name is not in the file"  # and is not told: what is no token of ours may be a secret from its start
Failed = Callable[[str, BadRequest], bytes]
Key = tuple[str, bytes]  # an address, and a token's HMAC


class Penalties:
    """How late wrong tokens are answered, by the address that they come from."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._known: OrderedDict[str, tuple[float, float]] = OrderedDict()  # the last penalty, and when it was given

    def next(self, place: str) -> float:
        """One more wrong token came from there: seconds until it is answered."""
        now = self._clock()
        last, when = self._known.pop(place, (0.0, now))
        if now - when > FORGET_AFTER:
            last = 0.0
        seconds = min(max(FIRST_PENALTY, 2 * last), MOST_PENALTY)
        self._known[place] = seconds, now
        if len(self._known) > MOST_ADDRESSES:
            self._known.popitem(last=False)
        return seconds

    def __len__(self) -> int:
        return len(self._known)


@dataclass
class Turn:
    """Of one address one stands in line, and the others behind it."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    waiting: int = 0


@dataclass(frozen=True)
class Wrong:
    why: BadRequest
    error_id: bytes  # under which the log says it
    penalty: asyncio.Task[None]  # what it waits for before it is told


@dataclass
class Check:
    """Of one token, for all who come with it from one address."""

    answer: asyncio.Task[Rights | Wrong] = field(init=False)
    waiting: int = 0
    begun: bool = False  # it will be answered, whoever is there to hear it


class Authority:
    def __init__(
        self,
        path: Path,
        failed: Failed,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """`failed` logs and counts, and answers an error_id. ConfigError: what is wrong with the file."""
        self._path = path
        self._failed = failed
        self._sleep = sleep
        self._penalties = Penalties(clock)
        self._turns: dict[str, Turn] = {}
        self._line = asyncio.Lock()  # not the thread's own queue, which nobody can leave
        self._thread = ThreadPoolExecutor(1, "scrypt")
        self._asked: set[asyncio.Task[None]] = set()
        self._going_on: dict[Key, Check] = {}
        self._key = secrets.token_bytes(32)
        self._accepted: OrderedDict[bytes, Rights] = OrderedDict()
        self._tokens = self._read()

    # ── the file ──

    def reload(self) -> bool:
        """Read the file anew; if that cannot be, say so and keep what there was. Answers whether it was read."""
        try:
            self._tokens = self._read()
        except ConfigError as error:
            log.error(Entry("tokens stay as they were: {reason}", reason=error))
            return False
        now = ((digest, self.current(rights)) for digest, rights in self._accepted.items())
        self._accepted = OrderedDict((digest, rights) for digest, rights in now if rights)
        self._going_on.clear()  # a token that was wrong may be right now
        log.info(Entry("tokens were read anew: {count}", count=len(self._tokens)))
        return True

    def by_name(self, name: str) -> Rights | None:
        token = self._tokens.get(name)
        return token.rights if token else None

    def current(self, rights: Rights) -> Rights | None:
        """What one who was given these rights may do now; None: its token is gone, or is another one."""
        found = self.by_name(rights.name)
        return found if found and found.proof == rights.proof else None

    def _read(self) -> dict[str, Token]:
        found = tokens.read(self._path)
        if tokens.is_open_to_others(self._path):
            said = "{file} is open to others: chmod 600 {file}"
            log.warning(Entry(said, file=str(self._path)))
        if not found:
            said = "{file} has no tokens: nobody is let in; make one with mqks token new, then send SIGHUP"
            log.warning(Entry(said, file=str(self._path)))
        self._nobody = _of_nobody(found)
        return found

    # ── tokens ──

    def ask(self, token: str, peer: str, decided: Decided) -> Drop | None:
        """For the broker: `decided` is called with the rights or an error_id, whatever happens, unless it is
        dropped."""
        if rights := self.remembered(token):
            decided(rights)
            return None
        task = asyncio.get_running_loop().create_task(self._ask(token, peer, decided))
        self._asked.add(task)
        task.add_done_callback(self._asked.discard)
        return task.cancel

    async def _ask(self, token: str, peer: str, decided: Decided) -> None:
        decided(await self.decide(token, peer))

    async def check(self, token: str, address: str) -> Rights | Awaitable[None]:
        """The rights of a token that comes from this address; if it has none, which is logged and counted, what to wait
        for before that is told."""
        answer = await self._look(token, address)
        return answer if isinstance(answer, Rights) else asyncio.shield(answer.penalty)

    async def decide(self, token: str, peer: str) -> Rights | bytes:
        """The rights of a token, or, after a while, the error_id under which the log says why it has none."""
        answer = await self._look(token, peer)
        if isinstance(answer, Rights):
            return answer
        await asyncio.shield(answer.penalty)
        return answer.error_id

    async def _look(self, token: str, peer: str) -> Rights | Wrong:
        """Who comes with the same token from the same address meanwhile shares the answer: a crowd is one check. Each
        who hears that it is wrong is logged and counted, beside the one that the check was begun for."""
        if rights := self.remembered(token):
            return rights
        key = place, _ = origin(peer), self._digest(token)
        shared = self._going_on.get(key)
        check = shared or self._begin(key, token, peer)
        check.waiting += 1
        try:
            answer = await asyncio.shield(check.answer)
        finally:
            check.waiting -= 1
            if not check.waiting and not check.begun:
                check.answer.cancel()
                self._forget(key, check)
        if isinstance(answer, Rights):
            # The loop took steps since the check was over, and the file may have been read anew in one of them.
            return self.current(answer) or self._wrong(peer, place, BadRequest(UNKNOWN, NOT_THERE))
        return replace(answer, error_id=self._failed(peer, answer.why)) if shared else answer

    def _begin(self, key: Key, token: str, peer: str) -> Check:
        check = Check()
        check.answer = asyncio.get_running_loop().create_task(self._in_turn(check, token, peer, key[0]))
        check.answer.add_done_callback(partial(self._answered, key, check))
        self._going_on[key] = check
        return check

    def _answered(self, key: Key, check: Check, done: asyncio.Task[Rights | Wrong]) -> None:
        """Who comes with a wrong token while another waits for its answer, waits for the same."""
        answer = None if done.cancelled() or done.exception() else done.result()
        if isinstance(answer, Wrong):
            answer.penalty.add_done_callback(lambda _: self._forget(key, check))
        else:
            self._forget(key, check)

    def _forget(self, key: Key, check: Check) -> None:
        if self._going_on.get(key) is check:
            del self._going_on[key]

    async def _in_turn(self, check: Check, token: str, peer: str, place: str) -> Rights | Wrong:
        turn = self._turns.setdefault(place, Turn())
        turn.waiting += 1
        try:
            async with turn.lock, self._line:
                check.begun = True
                return self.remembered(token) or await self._check(token, peer, place)
        except Exception as error:  # of whatever kind: its text may have the token
            return self._wrong(peer, place, Fault("a token could not be checked", type(error).__name__))
        finally:
            turn.waiting -= 1
            if not turn.waiting:
                self._turns.pop(place, None)

    def remembered(self, token: str) -> Rights | None:
        """The rights of a token that was accepted before and stands in the file still; None says nothing."""
        return self._accepted.get(self._digest(token))

    async def _check(self, token: str, peer: str, place: str) -> Rights | Wrong:
        name = name_of(token)
        known = self._tokens.get(name)
        wanted = known.hash if known else self._nobody
        right = await asyncio.get_running_loop().run_in_executor(self._thread, wanted.matches, token)
        # Meanwhile the file may have been read anew: what counts is what it says now.
        found = self._tokens.get(name)
        if right and known and found and found.hash == known.hash:
            self._accepted[self._digest(token)] = found.rights
            if len(self._accepted) > MOST_ACCEPTED:
                self._accepted.popitem(last=False)
            return found.rights
        return self._wrong(peer, place, BadRequest(UNKNOWN, f"it is named {name!r}" if found else NOT_THERE))

    def _wrong(self, peer: str, place: str, bad: BadRequest) -> Wrong:
        seconds = 0.0 if isinstance(bad, Fault) else self._penalties.next(place)
        return Wrong(bad, self._failed(peer, bad), asyncio.get_running_loop().create_task(self._wait(seconds)))

    async def _wait(self, seconds: float) -> None:
        await self._sleep(seconds)

    def _digest(self, token: str) -> bytes:
        return hmac.digest(self._key, token.encode("utf-8", "surrogatepass"), hashlib.sha256)

    def close(self) -> None:
        self._thread.shutdown(cancel_futures=True)


def _of_nobody(found: dict[str, Token]) -> Hash:
    """A hash that no token has, and that takes as long to look at as the slowest that there is."""
    slowest = max((token.hash for token in found.values()), key=Hash.work, default=None)
    random = Hash(*tokens.STRENGTH, secrets.token_bytes(tokens.SALT_BYTES), secrets.token_bytes(32))
    return random if slowest is None else random.as_slow_as(slowest)
