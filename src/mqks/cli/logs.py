"""The log of the commands: one line per record on stderr, `2026-01-02T03:04:05.678Z info message`.

Records quote what clients sent, so control characters are escaped: no client can forge a second line or reach
the terminal of whoever reads the log.
"""

import logging
from datetime import UTC, datetime

CONTROLS = {code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0))}


class LineFormatter(logging.Formatter):
    def formatMessage(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created, UTC).strftime("%Y-%m-%dT%H:%M:%S")
        return f"{time}.{int(record.msecs):03}Z {record.levelname.lower()} {record.message.translate(CONTROLS)}"


def set_up(level: str) -> None:
    handler = logging.StreamHandler()
    handler.setFormatter(LineFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler])
