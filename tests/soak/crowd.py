"""The crowd: connections that do anything that either dialect has, in any order, and check that they are answered.

What they may say is a table. A field in braces is filled at random; all of it is legal, so an error is a finding, but
for a message that a full queue refuses. They have queues and events of their own, which nobody counts.
"""

import asyncio
import random
import re
from collections import Counter

from tests.soak.link import PATIENCE, Speaker, Stage, within

EVENTS, NAMES = 40, 60  # of the crowd's events and queues
FULL = 5  # queues that reject what is too much: each of an event that no other queue wants

# How a request is answered. A SILENT one is only when it fails; SOME: many lines, the last of which has `--end`.
SILENT, ONE, SOME = range(3)
CONSUMER = "c-{name}-{queue}"  # always of the same queue, and of this connection alone: else it would be a mistake
RECEIVER = "r-{name}-{queue}"
RECV = '{"queue": "{queue}", "pattern": {pattern}{unused}{manual}}'

# action → how often, how it is answered, the line
ACTIONS: dict[str, tuple[int, int, str]] = {
    "publish": (30, SILENT, "{id} publish {event} {data}"),
    "publish --confirm": (30, ONE, "{id} publish --confirm {event} {data}"),
    "publish --once": (6, SILENT, "{id} publish --once={event} {event} {data}"),
    "publish --once --confirm": (6, ONE, "{same} publish --once --confirm {event} {data}"),
    "consume": (4, SILENT, CONSUMER + " consume {queue} {events}{flags}"),
    "consume --confirm": (6, ONE, CONSUMER + " consume --confirm {queue} {events}{flags}"),
    "consume --add": (3, ONE, CONSUMER + " consume {queue} --add {events} --confirm{flags}"),
    "rebind": (3, SILENT, "{id} rebind {queue} {events}"),
    "rebind --remove --add": (3, ONE, "{id} rebind {queue} --remove {event} --add {events} --confirm"),
    "rebind --remove-mask": (3, ONE, "{id} rebind --confirm {queue} --remove-mask noise.*  --add {event}"),
    "subscribe": (3, ONE, "{id} subscribe --confirm {queue} {events}"),
    "pause": (3, ONE, "{id} pause --confirm " + CONSUMER),
    "resume": (6, ONE, "{id} resume --confirm " + CONSUMER),
    "ack": (20, SILENT, "{id} ack {taken}"),
    "ack --confirm": (20, ONE, "{id} ack --confirm {taken}"),
    "ack --all": (6, ONE, "{id} ack --confirm " + CONSUMER + " --all"),
    "reject": (3, ONE, "{id} reject --confirm {taken}"),
    "reject --all": (2, ONE, "{id} reject " + CONSUMER + " --all --confirm"),
    "delete_consumer": (5, ONE, "{id} delete_consumer --confirm " + CONSUMER),
    "delete_queue": (6, ONE, "{id} delete_queue --confirm {queue}"),
    "delete_queue --when-unused": (3, ONE, "{id} delete_queue {queue} --when-unused={seconds} --confirm"),
    "ping": (6, ONE, "{id} ping {data}"),
    "stats": (1, ONE, "{id} stats"),
    "history": (2, SOME, "{id} history earliest --limit=20"),
    "history --events": (2, SOME, "{id} history latest --events=noise.*,{event} --follow --limit=3"),
    "hold": (1, ONE, "{id} hold crowd-{n} latest --for={seconds} --confirm"),
    "_eval": (3, ONE, "{id} _eval [len(state.queues), sum(q.ready for q in state.queues.values())]"),
    "send": (20, ONE, "{id} send {json}"),
    "send --once": (5, ONE, "{same} send --once {json}"),
    "recv": (6, ONE, RECEIVER + " recv --prefetch={n} " + RECV),
    "delete_receiver": (3, ONE, '{id} delete_receiver {"receiver_id": "' + RECEIVER + '"}'),
    "ack, SEVX": (6, ONE, '{id} ack {"receiver_id": "' + RECEIVER + '", "all": true}'),
    "reject, SEVX": (2, ONE, '{id} reject {"receiver_id": "' + RECEIVER + '", "all": true}'),
    "delete_queue, SEVX": (2, ONE, '{id} delete_queue {"queue": "{queue}"}'),
    "auth": (1, ONE, "{id} auth nobody.{word}"),
    "_ping": (4, ONE, '{id} _ping {"data": "{data}"}'),
    "publish, to a full queue": (10, ONE, "{id} publish --confirm {refused} {data}"),
    "publish --once, to a full queue": (4, ONE, "{id} publish --once --confirm {refused} {data}"),
    "send, to a full queue": (4, ONE, '{id} send {"event": "{refused}", "data": "{data}"}'),
    "consume, what is full": (4, ONE, "c-{name}-{full} consume --confirm {full} {refused} --manual-ack {limit}"),
    "rebind, what is full": (1, ONE, "{id} rebind --confirm {full} {refused} {limit}"),
    "ack --all, what is full": (6, ONE, "{id} ack --confirm c-{name}-{full} --all"),
    "delete_consumer, what is full": (2, ONE, "{id} delete_consumer --confirm c-{name}-{full}"),
    "delete_queue, what is full": (1, ONE, "{id} delete_queue --confirm {full}"),
    "_eval, SEVX": (2, ONE, '{id} _eval {"code": "[state.published, state.errors]"}'),
}
FLAGS = (
    "",
    " --manual-ack",
    " --manual-ack --prefetch={n}",
    " --delete-queue-when-unused={seconds}",
    " --max-length=50 --overflow=drop-oldest",
    " --max-bytes=5000 --overflow=drop-oldest",
    " --max-length=0 --max-bytes=0",
)
LIMITS = ("--max-length=20", "--max-bytes=5000", "--max-length=20 --max-bytes=5000")
FIELD = re.compile(r"\{(\w+)\}")
REFUSED = re.compile(r'\S+ (publish (--once )?--confirm |send \{"event": ")full\.')  # what may be


class Member(Speaker):
    def __init__(self, stage: Stage, name: str, rng: random.Random, rate: float) -> None:
        super().__init__(stage, name, rng)
        self.rate = rate
        self.pending: Counter[bytes] = Counter()  # answers to come, by request_id
        self.asked: dict[bytes, str] = {}  # of late, for the report
        self.answered = asyncio.Event()
        self._number = 0
        self._taken = ""  # a consumer and a message that it got

    def begin(self) -> None:
        self.pending.clear()
        self.asked.clear()
        self.answered.set()

    async def act(self) -> None:
        names, weights = list(ACTIONS), [weight for weight, *_ in ACTIONS.values()]
        while True:
            if len(self.asked) > 100:
                self.asked.clear()
            for action in self.rng.choices(names, weights, k=self.rng.randint(1, 8)):
                self._say(action)
            if not await within(self.answered.wait(), PATIENCE) and not self.lost.is_set():
                unanswered = [self.asked.get(request_id, "?") for request_id in self.pending]
                if not self.stage.full:  # else nothing comes that a history could follow
                    self.stage.findings.add("unanswered", f"{self.name}: {unanswered[:3]}")
                return
            await asyncio.sleep(self.rng.expovariate(self.rate / 4.5))
            chance = self.rng.random()
            if chance < 0.01:
                await self.rest(self.rng.uniform(0.5, 4.0))
            elif chance < 0.03:
                self.hang_up(at_once=chance < 0.02)
                return

    # ---- What it says

    def _say(self, action: str) -> None:
        _, answers, form = ACTIONS[action]
        line = self.fill(form)
        if not line:
            return
        request_id = line.partition(" ")[0].encode()
        self.asked[request_id] = line[:150]
        self.stage.done[action] += 1
        if answers != SILENT:
            self.pending[request_id] += 1
            self.answered.clear()
        self.send(line.encode() + b"\n")

    def fill(self, form: str) -> str:
        """The form with its fields filled; empty where there is nothing to fill one with."""
        self._number += 1
        queue, rng = self.rng.randrange(NAMES), self.rng
        event = f"noise.{rng.randrange(EVENTS)}"
        data = "x" * int(rng.paretovariate(0.8) * 10 % 4000)
        fields = {
            "id": f"{self.name}-{self._number}",
            "same": f"{self.name}-same-{self._number // 50}",
            "event": event,
            "events": " ".join(f"noise.{rng.randrange(EVENTS)}" for _ in range(rng.randint(1, 4))),
            "queue": f"noise-{queue}",
            "data": data,
            "n": str(rng.choice((1, 10, 100))),
            "seconds": str(rng.choice((1, 2.5, 10))),
            "json": f'{{"event": "{event}", "kind": {queue % 5}, "to": {{"n": {queue}}}, "data": "{data}"}}',
            "pattern": rng.choice(
                (f'{{"event": "{event}"}}', f'{{"kind": {queue % 5}, "to": {{"n": {queue}}}}}', '{"kind": "none"}')
            ),
            "unused": rng.choice(("", ', "delete_queue_when_unused": false', ', "delete_queue_when_unused": 2.5')),
            "full": f"full-{queue % FULL}",
            "refused": f"full.{queue % FULL}",
            "limit": f"{rng.choice(LIMITS)} --overflow=reject",
            "manual": rng.choice(("", ', "manual_ack": true')),
            "name": self.name,
            "taken": self._taken,
            "word": "" if self.stage.door.token else "asks",  # where tokens are asked for, it has said its own
        }
        if any(f"{{{needed}}}" in form and not fields[needed] for needed in ("taken", "word")):
            return ""
        fields["flags"] = FIELD.sub(lambda found: fields[found[1]], rng.choice(FLAGS))
        return FIELD.sub(lambda found: fields[found[1]], form)

    # ---- What it hears

    def line(self, line: bytes) -> None:
        request_id, _, rest = line.partition(b" ")
        if rest.startswith(b"error "):
            asked = self.asked.get(request_id, "?")
            if REFUSED.match(asked):
                self.stage.done["refused by a full queue"] += 1
            else:
                self.stage.error(self.name, asked, line)
            self._settle(request_id)
        elif request_id.startswith((b"c-", b"r-")):
            if rest == b"ok ":
                self._settle(request_id)
            elif not rest.startswith((b"ok --update", b'ok {"update"')):
                self.stage.done["delivered to the crowd"] += 1
                if request_id.startswith(b"c-"):
                    self._taken = f"{request_id.decode()} {rest.split(b' ', 2)[1].decode()}"
        elif request_id not in self.pending:
            self.stage.findings.add("unexpected", f"{self.name} got {line[:200]!r}")
        elif " history " not in self.asked.get(request_id, "") or rest.startswith(b"ok --end"):
            self._settle(request_id)

    def _settle(self, request_id: bytes) -> None:
        self.pending[request_id] -= 1
        if self.pending[request_id] <= 0:
            del self.pending[request_id]
        if not self.pending:
            self.answered.set()
