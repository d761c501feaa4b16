"""The shapes of what is answered and posted, as JSON Schema: tables, for the OpenAPI document. Nothing is done here.

Answers may gain keys in later versions, so these schemas allow more than they name; what they name is always there.
"""

from typing import Any

from mqks.web.counters import COUNTERS
from mqks.web.gate import LONGEST_TOKEN

Schema = dict[str, Any]


def _of(kind: str) -> Schema:
    return {"type": kind}


def _or_null(kind: str) -> Schema:
    return {"type": [kind, "null"]}


def _list(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def _object(fields: dict[str, Schema]) -> Schema:
    return {"type": "object", "required": list(fields), "properties": fields}


def _all(kind: Schema, names: str) -> dict[str, Schema]:
    return dict.fromkeys(names.split(), kind)


def _named(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


TEXT, COUNT, NUMBER, TRUTH = _of("string"), {"type": "integer", "minimum": 0}, _of("number"), _of("boolean")
TEXT_OR_NULL, NUMBER_OR_NULL = _or_null("string"), _or_null("number")
LEVEL = {"enum": ["ok", "warning", "trouble"]}
NAME = {"name": TEXT, "key": TEXT}

ROW_FIELDS: dict[str, Schema] = {
    **NAME,
    "events": _list(TEXT),
    **_all(COUNT, "event_count ready unacked returned retries retrying consumers published delivered acked rejected"),
    **_all(COUNT, "dropped max_length max_bytes"),
    **_all(NUMBER, "in_rate out_rate"),
    **_all(NUMBER_OR_NULL, "age delete_when_unused"),
    "level": LEVEL,
    "why": TEXT_OR_NULL,
}
CONSUMER: Schema = _object(
    {
        **_all(TEXT, "id client queue key"),
        **_all(TRUTH, "manual_ack paused"),
        **_all(COUNT, "prefetch unacked delivered"),
    }
)
MESSAGE_FIELDS: dict[str, Schema] = {
    "position": COUNT,
    "time": TEXT_OR_NULL,
    "id": TEXT,
    "action": {"enum": ["publish", "send"]},
    **_all(TEXT, "event key data"),
    **_all(COUNT, "bytes retry"),
    "truncated": TRUTH,
    "nc": TEXT_OR_NULL,
}

NAMED: dict[str, Schema] = {
    "Error": _object({"error": TEXT}),
    "Row": _object(ROW_FIELDS),
    "Queue": _object(
        {
            **ROW_FIELDS,
            "pattern": TEXT_OR_NULL,
            "all_events": _list(TEXT),
            "consumers_list": _list(CONSUMER),
            "spark": _object(_all(_list(NUMBER), "ready in out")),
            "may_manage": TRUTH,
        }
    ),
    "Message": _object(MESSAGE_FIELDS),
    "Journal": _object(
        {
            "durability": {"enum": ["always", "interval", "never", "memory"]},
            **_all({"type": ["integer", "null"]}, "earliest written synced segments bytes syncs disk_free disk_total"),
            "full": TRUTH,
            **_all(NUMBER_OR_NULL, "last_sync sync_p50 sync_p99 days_left"),
            "pinned_by": TEXT_OR_NULL,
            "holds": _list(_object({"name": TEXT, **_all(COUNT, "position behind"), "seconds": NUMBER})),
        }
    ),
    "Pipeline": _object(
        {
            "jobs": _list(_object({"job": TEXT, "state": TEXT, "level": LEVEL, "why": TEXT_OR_NULL})),
            "minute": _or_null("object"),
            "minutes": _list(_object({"minute": TEXT, "count": NUMBER})),
        }
    ),
    "State": _object(
        {
            **_all(TEXT, "time version host"),
            "uptime": NUMBER,
            "health": _object(
                {
                    "level": LEVEL,
                    "sentence": TEXT,
                    "phrases": _list(_object({"text": TEXT, "link": TEXT_OR_NULL, "level": LEVEL, "kind": TEXT})),
                }
            ),
            "totals": _object(
                {
                    **dict.fromkeys(COUNTERS, COUNT),
                    **_all(COUNT, "connections consumers queues ready unacked memory max_memory"),
                    "rates": _object(dict.fromkeys(COUNTERS, NUMBER)),
                }
            ),
            "queues": _list(_named("Row")),
            "flow": _object(
                {
                    **_all(_list(_object({**NAME, "rate": NUMBER})), "events queues"),
                    "consumers": _list(
                        _object({**_all(TEXT, "key label queue"), "rate": NUMBER, "count": COUNT}),
                    ),
                    "links": _list(_object({"from": TEXT, "to": TEXT, "rate": NUMBER})),
                    "more": _object(_all(COUNT, "events queues consumers")),
                }
            ),
            "journal": _named("Journal"),
            "pipeline": _named("Pipeline"),
        }
    ),
}

ERROR, STATE, QUEUE = _named("Error"), _named("State"), _named("Queue")
MESSAGE, JOURNAL, PIPELINE = _named("Message"), _named("Journal"), _named("Pipeline")
HEALTH = _object({"status": TEXT})
QUEUES = _object({"total": COUNT, "queues": _list(_named("Row"))})
MESSAGES = _object({"ready": COUNT, "messages": _list(MESSAGE)})
CONSUMERS = _object({"total": COUNT, "consumers": _list(CONSUMER)})
CONNECTIONS = _object(
    {
        "total": COUNT,
        "connections": _list(
            _object(
                {
                    "client": TEXT,
                    "since": NUMBER,
                    **_all(COUNT, "consumers pending received sent"),
                    "publishes": TRUTH,
                    "level": LEVEL,
                    "why": TEXT_OR_NULL,
                }
            ),
        ),
    }
)
EVENTS = _object(
    {
        "total": COUNT,
        "events": _list(_object({**NAME, "count": COUNT, "rate": NUMBER, "queue_count": COUNT, "queues": _list(TEXT)})),
    }
)
SESSION = _object(
    {
        "name": TEXT_OR_NULL,
        "rights": _object({**_all(_list(TEXT), "publish queues events manage history"), **_all(TRUTH, "eval admin")}),
        "csrf": TEXT_OR_NULL,
    }
)
ENDED = _object({"ended": TRUTH})
LOGIN: Schema = {
    "type": "object",
    "required": ["token"],
    "additionalProperties": False,
    "properties": {"token": {"type": "string", "minLength": 1, "maxLength": LONGEST_TOKEN}},
}
DELETED = _object({"deleted": TEXT})
PURGED = _object({"purged": COUNT})
PUBLISHED = _object({"id": TEXT})
A_NAME = r"^([^ \t\r\n\u0000{-]|-[^ \t\r\n\u0000-])[^ \t\r\n\u0000]*$"  # as mqks.names has it
RETRIED = ",retry=[0-9]+$"
PUBLISH: Schema = {
    "type": "object",
    "required": ["event"],
    "additionalProperties": False,
    "properties": {
        "event": {"type": "string", "pattern": A_NAME, "not": {"pattern": RETRIED}, "examples": ["user.1.connected"]},
        "data": {"description": "a text goes as it is, on one line; anything else as its JSON"},
        "id": {"type": ["string", "null"], "pattern": A_NAME},
        "once": {
            "description": "take a message of this id once only: true, or a scope of your own",
            "anyOf": [_or_null("boolean"), {"type": "string", "pattern": A_NAME}],
        },
    },
}
