"""The targets by name. `words` are what an input is likely made of: a fuzzer tries them besides what it makes up."""

from collections.abc import Callable
from typing import NamedTuple

from mqks.broker.actions import MQKS, SEVX
from mqks.server.config import OPTIONS
from tests.fuzz.clients import clients
from tests.fuzz.configs import HASH, authfiles, configs
from tests.fuzz.evals import evals
from tests.fuzz.httpd import httpd
from tests.fuzz.journals import journals
from tests.fuzz.kept import kept
from tests.fuzz.lines import lines
from tests.fuzz.masks import masks
from tests.fuzz.sealed import sealed
from tests.fuzz.sevx import sevx
from tests.fuzz.strangers import TOKEN, strangers


class Target(NamedTuple):
    function: Callable[[bytes], None]
    words: tuple[str, ...]
    longest: int = 1024  # bytes of an input


FLAGS = """
--confirm --add --remove --remove-mask --all --manual-ack --prefetch= --delete-queue-when-unused --when-unused=1
--once --once= --to= --events= --limit= --follow --raw --for= --worker=0 earliest latest q1 q2 e1 e2 a.* *.b
--max-length= --max-bytes= --max-length=1 --max-bytes=10 --overflow= --overflow=reject --overflow=drop-oldest
"""
JSON = r"""
{ } [ ] : , " \ \u \ud800 \udc00 "event" "data" "queue" "pattern" "manual_ack" "delete_queue_when_unused"
"receiver_id" "event_id" "all" "code" true false null NaN Infinity -0.0 1e999 1E400 123456789012345678901234567890
"""
WRITTEN = """\
 rebind q1 e1 --max-length=5 --max-bytes=5 --overflow=reject
 rebind q1 --sticky --overflow=drop-oldest --pattern {}
 delete_queue q1
 hold h1 17 1700000000.000"""
EVAL = """
state queues q1 ready name events odd len( sum( min( max( sorted( any( all( round( .keys() .values() .items() .get(
set( .itervalues() .iteritems() .qsize() .join(
for x in if else not and or is lambda None True ** // << >> == <= := __class__ _secret secret reverse= default=
"""
AUTH = """
[tokens.worker] hash publish consume queues events manage history eval admin true false = { } [ ] "**" "a.*" scrypt:
"""
HTTP = """
GET POST DELETE HEAD /api/ /api/publish /api/queues/ /api/messages/ /purge /healthz /metrics /page/ HTTP/1.1 host:
content-length: content-type: application/json transfer-encoding: chunked origin: sec-fetch-site: 100-continue accept:
/api/session /login cookie:mqks_session_80=$session x-csrf-token:$csrf authorization:Bearer limited boss
expect: %2F %00 ? & limit= offset= sort= name= mask= {"event":"e1","data": "once": "id":
"""

LINES = (*map(bytes.decode, (*MQKS, *SEVX)), *FLAGS.split(), *JSON.split())

TARGETS: dict[str, Target] = {
    "lines": Target(lines, LINES, 2048),
    "kept": Target(kept, LINES, 2048),
    "sevx": Target(sevx, tuple(JSON.split())),
    "masks": Target(masks, ("*", "**", ".", "*.", ".*", "e1"), 200),
    "evals": Target(evals, tuple(EVAL.split()), 400),
    "journals": Target(
        journals,
        (" publish ", " send ", "--once", "--once=", " batch ", " segment 1 always", "event", *WRITTEN.splitlines()),
    ),
    "httpd": Target(httpd, (*HTTP.split(), "\r\n", "\r\n\r\n"), 2048),
    "clients": Target(
        clients,
        (" ok ", " error ", "--update ", "--end ", " event=", ",retry=", *map(bytes.decode, MQKS), *JSON.split()),
    ),
    "strangers": Target(strangers, (*map(bytes.decode, (*MQKS, *SEVX)), *FLAGS.split(), TOKEN, '{"token": "', "auth ")),
    "sealed": Target(sealed, ("\x16\x03\x01", "\x17\x03\x03", "\x15\x03\x03", "\x14\x03\x03\x00\x01\x01", "localhost")),
    "authfiles": Target(authfiles, (*AUTH.split(), f"scrypt:16384:8:1:{HASH}:{HASH}", HASH), 400),
    "configs": Target(configs, tuple(option.name for option in OPTIONS), 400),
}
