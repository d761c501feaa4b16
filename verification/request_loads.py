"""Hostile loads that are made of requests: messages, ids, queues, events, patterns, holds, consumers, histories."""

import json
from collections.abc import Iterator

from verification.stage import Stage, take_messages, wait_until

OTHERS = ("idle", "witness")  # queues that the tool itself has

# ---- Messages


def publish(stage: Stage, event: str, size: int, total: int) -> list[str]:
    """Messages of this size until they are so many bytes, or refused."""
    return stage.flood(f"m{at} publish --confirm {event} {'x' * size}" for at in range(total // size))


def messages(stage: Stage) -> Iterator[None]:
    stage.must(["b rebind --confirm work job"])
    size = stage.rng.choice((1000, 30_000, 900_000))
    accepted = publish(stage, "job", size, 3 * stage.limit)
    yield
    stage.drain("work", accepted)


def unacked_messages(stage: Stage) -> Iterator[None]:
    """A consumer takes all and acks nothing; then it rejects them all, and takes them again."""
    stage.must(["b rebind --confirm work job"])
    accepted = publish(stage, "job", 20, 20 * stage.rng.randint(10_000, 40_000))
    line = stage.connect()
    line.send("c consume work --manual-ack")
    for _ in range(2):
        take_messages(line, len(accepted))
        line.send("r reject c --all")
    yield
    stage.release()
    stage.drain("work", accepted)


def ids(stage: Stage) -> Iterator[None]:
    """The oldest are forgotten instead of a refusal."""
    most = stage.limit // 8 // 64
    scope = "s" * stage.rng.choice((1, 50, 500))
    stage.flood(f"i{at} publish --once={scope} --confirm nobody d" for at in range(2 * most))
    remembered = stage.figures()["remembered"]
    if remembered > most:
        stage.failures.append(f"{remembered} ids are remembered, {most} may be")
    yield
    wait_until(lambda: not stage.figures()["remembered"], "the broker does not forget ids older than --dedup-window")


# ---- Definitions


def _delete(stage: Stage, queues: list[str]) -> None:
    """Exactly those that were confirmed are there; all can be deleted, also with full memory."""
    present = stage.figures()["queues"] - len(OTHERS)
    if present != len(queues):
        stage.failures.append(f"the broker confirmed {len(queues)} queues and has {present}")
    stage.must(f"d{name} delete_queue --confirm {name}" for name in queues)


def queues(stage: Stage) -> Iterator[None]:
    pad = "x" * stage.rng.choice((1, 100, 10_000))
    flags = stage.rng.choice(("", " --max-length=5 --overflow=drop-oldest"))
    names = stage.flood(f"q{at}.{pad} rebind --confirm q{at}.{pad} e{at}{flags}" for at in range(200_000))
    yield
    _delete(stage, names)


def events(stage: Stage) -> Iterator[None]:
    pad = "x" * stage.rng.choice((1, 50, 1000))
    count = min(10_000, 900_000 // (len(pad) + 12))

    def requests() -> Iterator[str]:
        for at in range(10_000):
            yield f"q{at} rebind --confirm q{at} " + " ".join(f"{at}.{event}.{pad}" for event in range(count))

    names = stage.flood(requests())
    yield
    _delete(stage, names)


def patterns(stage: Stage) -> Iterator[None]:
    pad = "x" * stage.rng.choice((1, 100, 1000))

    def request(at: int) -> str:
        values: list[object] = [stage.rng.choice((key, str(key), {}, None)) for key in range(100)]
        pattern = {f"{at}.{key}.{pad}": value for key, value in enumerate(values)}
        asked = {"queue": f"q{at}", "pattern": pattern, "delete_queue_when_unused": False}
        return f"q{at} recv {json.dumps(asked)}"

    names = stage.flood(map(request, range(10_000)))
    yield
    _delete(stage, names)


def holds(stage: Stage) -> Iterator[None]:
    pad = "x" * stage.rng.choice((1, 200))
    names = stage.flood(f"h{at}.{pad} hold h{at}.{pad} earliest --for=600 --confirm" for at in range(100_000))
    yield
    stage.must(f"{name} hold {name} earliest --for=0 --confirm" for name in names)


# ---- What a connection has


def consumers(stage: Stage) -> Iterator[None]:
    pad = "x" * stage.rng.choice((1, 100, 1000))
    shared = stage.rng.random() < 0.5
    stage.flood(
        f"c{at}{pad} consume --confirm {'shared' if shared else f'own{at}'} --delete-queue-when-unused"
        for at in range(200_000)
    )
    yield


def histories(stage: Stage) -> Iterator[None]:
    """More than a connection may have, on many connections."""
    masks = ",".join(f"e{at}.*" for at in range(stage.rng.choice((1, 10, 99))))
    flags = stage.rng.choice(("", f" --events={masks}"))
    for connection in range(200):
        line = stage.connect()
        line.send(*(f"h{at} history latest --follow{flags}" for at in range(20)), "end ping")
        answers = list(line.until(lambda reply: reply.startswith("end ")))
        errors = [reply.split(" ")[2] for reply in answers if " error " in reply]
        stage.created += 20 - len(errors)
        for error in errors:
            stage.refuse(error)
        if len(errors) == 20 and connection > 20:
            break
    yield
    stage.release()
