"""Columns of tables, in Delta's JSON, which is also Spark's: plain dicts, so that a table needs no Spark."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from deltalake import Schema

Field = dict[str, Any]
MAP_OF_STRINGS = {"type": "map", "keyType": "string", "valueType": "string", "valueContainsNull": True}
NAMES = {"map<string,string>": MAP_OF_STRINGS, "int": "integer", "bigint": "long"}
DATE = "date"  # what tables are partitioned by


def fields_of(columns: Mapping[str, str]) -> list[Field]:
    """Of columns as our code has them: name → type in Spark's words."""
    return [field(name, NAMES.get(kind, kind)) for name, kind in columns.items()]


def field(name: str, kind: object) -> Field:
    return {"name": name, "type": kind, "nullable": True, "metadata": {}}


def nullable(fields: Iterable[Mapping[str, Any]]) -> list[Field]:
    """Those of a Spark schema's JSON; each may be null, since a file may lack a column that came later."""
    return [field(one["name"], one["type"]) for one in fields]


def schema_of(fields: Iterable[Field]) -> Schema:
    return Schema.from_json(json.dumps({"type": "struct", "fields": list(fields)}))


def fields_in(schema: Schema) -> list[Field]:
    found: list[Field] = json.loads(schema.to_json())["fields"]
    return found
