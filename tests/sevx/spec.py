"""The examples of SEVX's specification, line by line, and what reads them: Python, requests, answers."""

import re
import textwrap

FILE = "/opt/service2/events/test.py"  # where the functions of the examples live

SEND = """
    from sevx import send, send_prefix
    send_prefix({"src": "service1"})

    send({"obj": "user", "act": "updated", "data": {"id": 42, "name": "Kate"}})

    > 20161231235959123456uN1q send {"src": "service1", "act": "updated", "obj": "user", "data": {"id": 42, "name": "Kate"}}
    < 20161231235959123456uN1q ok 
"""  # noqa: E501, W291

RECV = """
    from sevx import on

    @on({"obj": "user", "act": "updated"})
    def on_event(event):
        event.id                    # 20161231235959123456uN1q
        event.dt                    # datetime(2016, 12, 31, 23, 59, 59, 123456)
        event.json                  # '{"src": "service1", "act": "updated", "obj": "user", "data": {"id": 42, "name": "Kate"}}'
        event.content.data.name     # 'Kate'

    > 20161231235959123456uN22 recv {"pattern": {"obj": "user", "act": "updated"}, "queue": "opt.service2.events.test.on_event.act=updated.obj=user"}
    < 20161231235959123456uN22 ok
    < 20161231235959123456uN22 ok 20161231235959123456uN1q {"src": "service1", "act": "updated", "obj": "user", "data": {"id": 42, "name": "Kate"}}
"""  # noqa: E501

RECV_WITH_OPTIONS = """
    @on(pattern,
        delete_queue_when_unused=
            True,   # default
            False,
            5.42,   # seconds
        manual_ack=True,
        wait=True,
    )
    def on_event(event):
        event.retry     # 0, 1, 2, etc

    > 20161231235959123456uN33 recv {"manual_ack": true, "delete_queue_when_unused": 5.42, "queue": "opt.service2.events.test.on_event.act=updated.obj=user", "pattern": {"obj": "user", "act": "updated"}}
    < 20161231235959123456uN33 ok 
    < 20161231235959123456uN33 ok 20161231235959123456uN1q {"retry": 1, "src": "service1", "act": "updated", "obj": "user", "data": {"id": 42, "name": "Kate"}}

        # Acknowledge that this (or all) events were processed by this receiver.
        event.ack()             # 20161231235959123456uN44 ack {"receiver_id": "20161231235959123456uN33", "event_id": "20161231235959123456uN1q"}
        event.ack_all()         # 20161231235959123456uN44 ack {"receiver_id": "20161231235959123456uN33", "all": true}

        # Reject this (or all) events - to return them to the queue with incremented "retry" counter.
        event.reject()          # 20161231235959123456uN55 reject {"receiver_id": "20161231235959123456uN33", "event_id": "20161231235959123456uN1q"}
        event.reject_all()      # 20161231235959123456uN55 reject {"receiver_id": "20161231235959123456uN33", "all": true}
"""  # noqa: E501, W291

DELETE_QUEUE = """
    on_event.delete_queue()     # 20161231235959123456uN66 delete_queue {"queue": "opt.service2.events.test.on_event.act=updated.obj=user"}
    # Server will not copy events to this queue any more.
"""  # noqa: E501

DELETE = """
    on_event.delete()           # 20161231235959123456uN77 delete_receiver {"receiver_id": "20161231235959123456uN33"}
    # Server will not send events to this receiver any more.
"""

INTERNAL = """
    import sevx

    sevx._ping('service1')  # Is used by sevx client for keep-alive.
    > 20161231235959123456uN00 _ping {"data": "service1"}
    < 20161231235959123456uN00 ok {"data": "service1"}

    sevx._eval('len(state.queues)')  # Backdoor to get any stats.
    > 20161231235959123456uN00 _eval {"code": "len(state.queues)"}
    < 20161231235959123456uN00 ok {"result": 42}
"""

REQUEST = re.compile(r"(?:^    > |# )(\d{20}\w{4} \w+ \{.*\})$", re.MULTILINE)
ANSWER = re.compile(r"^    < (.*)$", re.MULTILINE)
ALTERNATIVES = re.compile(r"(delete_queue_when_unused=)\s*True,.*?5\.42,", re.DOTALL)


def python(block: str, delete_queue_when_unused: object = 5.42) -> str:
    """The Python in it; where it lists alternatives, this one."""
    lines = [line for line in block.splitlines() if not line.startswith(("    > ", "    < "))]
    return ALTERNATIVES.sub(rf"\g<1>{delete_queue_when_unused},", textwrap.dedent("\n".join(lines)))


def telling(code: str) -> str:
    """The same, but its handlers tell what they look at."""
    return re.sub(r"^    (event\.[\w.]+)(?= )", r"    seen.put(\1)", code, flags=re.MULTILINE)


def redelivering(code: str) -> str:
    """The same, but each ack and reject is of an event that `again` gives back: they are alternatives."""
    return re.sub(r"^    (event\.(?:ack|reject)\w*\(\))", r"    again(event); \1", code, flags=re.MULTILINE)


def requests(block: str) -> list[str]:
    """What leaves the client, also where it stands in a comment."""
    return REQUEST.findall(block)


def answers(block: str) -> list[str]:
    return ANSWER.findall(block)
