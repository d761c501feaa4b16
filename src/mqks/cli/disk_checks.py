"""The checks of `mqks doctor` on the data folder and the disk below it.

The one file that is written, to see how quick the disk is, has no name and goes with the check. No lock is taken.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

from mqks.cli.case import Case, Finding, bad, mount_of, ok, warn
from mqks.formatting import counted, duration_in_two_units, size_in_tenths

SYNCS, SYNCING = 200, 1.0  # so many, or for so many seconds
SYNCED_SIZE = 4096
SLOW_SYNC, TERRIBLE_SYNC = 0.02, 0.5  # seconds, median
LITTLE_LEFT = 0.05  # of the disk; the dashboard has the same
FEW_DAYS = 1.0

# Where a data folder is not safe, and what to do about it.
ON_DISK = "choose a --data on a disk of this machine"
FILE_SYSTEMS = {
    "tmpfs": ("in memory: a reboot loses all", ON_DISK),
    "ramfs": ("in memory: a reboot loses all", ON_DISK),
    "overlay": ("in the container's own layer, which goes with the container", "mount a volume there"),
    **dict.fromkeys(
        ("nfs", "nfs4", "cifs", "smb3", "9p", "fuse.sshfs"),
        ("on the network: a sync and a lock are worth what that makes of them", ON_DISK),
    ),
}


def folder(case: Case) -> Finding:
    if case.config.memory:
        return ok("none is used: --memory")
    if case.told and not case.is_seen:
        advice = "run this where the broker is, or name a folder with --data"
        return warn(f"{case.folder.absolute()} is looked at, not {case.told} of the broker at {case.url}", advice)
    if not case.folder.exists():
        if os.access(case.existing, os.W_OK | os.X_OK):
            return ok(f"{case.folder} will be made by the first start")
        return bad(f"{case.folder} is not there, and cannot be made", f"let this user write to {case.existing}")
    if not case.folder.is_dir():
        return bad(f"{case.folder} is no folder", "choose another --data")
    if not os.access(case.folder, os.R_OK | os.W_OK | os.X_OK):
        return bad(f"{case.folder} may not be written by this user", "run this as the broker's user, or chown it")
    if case.folder.stat().st_mode & 0o007:
        return warn(f"{case.folder} is open to other users of this machine", f"chmod o= {case.folder}")
    used = {None: "free", 0: "in use by a process that cannot be seen from here"}
    return ok(f"{case.folder}, {used.get(case.owner, f'in use by process {case.owner}')}")


def filesystem(case: Case) -> Finding:
    kind, place, _ = mount_of(case.existing.resolve())
    if kind in FILE_SYSTEMS and not case.config.memory:
        why, advice = FILE_SYSTEMS[kind]
        return warn(f"{case.folder} is on {kind}, {why}", advice)
    return ok(f"{kind} at {place}")


def disk(case: Case) -> Finding:
    from mqks.journal.retention import bytes_to_retain

    told = os.statvfs(case.existing)
    free, total = told.f_bavail * told.f_frsize, told.f_blocks * told.f_frsize
    text = f"{size_in_tenths(free)} free of {size_in_tenths(total)} for {case.folder.absolute()}"
    most = bytes_to_retain(case.config.retain_bytes, total)
    advice = f"free some space, move --data, or lower --retain-bytes ({size_in_tenths(most)} now)"
    if free < case.config.min_free_disk:
        return bad(f"{text}: less than --min-free-disk, so no messages are taken", advice)
    if free < 2 * case.config.segment_size:
        return bad(f"{text}: not enough for two segments", advice)
    size, rate = growth(case)
    if rate:
        text += f"; the journal has {size_in_tenths(size)} and grows by {size_in_tenths(rate * 86400)} a day"
        text += f", up to {size_in_tenths(most)}" if size < most else ""
    if free < LITTLE_LEFT * total:
        return warn(text, advice)
    if rate and most - size > free and free / rate < FEW_DAYS * 86400:
        return warn(f"{text}: full in {duration_in_two_units(free / rate)}", advice)
    return ok(text)


def growth(case: Case) -> tuple[int, float]:
    """The size of the journal, and bytes per second over its last day; 0 where that is not known."""
    found = case.segments
    now = datetime.now(UTC)
    of_late = [one for one in found if one.first and one.last and one.last > now - timedelta(days=1)]
    seconds = (now - min(one.first for one in of_late if one.first)).total_seconds() if of_late else 0.0
    size = sum(one.size for one in found)
    return size, sum(one.size for one in of_late) / seconds if seconds > 60 else 0.0


def fsync(case: Case) -> Finding:
    if case.config.memory:
        return ok("not needed: --memory")
    try:
        times = sync_times(case.existing)
    except OSError as error:
        return bad(f"a file in {case.existing} cannot be written: {error.strerror}", "see `folder` and `disk`")
    p50, p99 = statistics.median(times), statistics.quantiles(times, n=100, method="inclusive")[98]
    text = f"p50 {1000 * p50:.2f} ms, p99 {1000 * p99:.2f} ms, {counted(len(times), 'sync')} of 4 KiB"
    advice = "each ok waits for one: use a quicker disk, or --fsync=interval if the last second may be lost"
    return bad(text, advice) if p50 > TERRIBLE_SYNC else warn(text, advice) if p50 > SLOW_SYNC else ok(text)


def sync_times(place: Path) -> list[float]:
    """Seconds that each took."""
    times: list[float] = []
    data = os.urandom(SYNCED_SIZE)
    with tempfile.TemporaryFile(dir=place, prefix=".mqks-doctor-") as file:
        while len(times) < 2 or (len(times) < SYNCS and sum(times) < SYNCING):
            begun = time.perf_counter()
            os.pwrite(file.fileno(), data, SYNCED_SIZE * len(times))
            os.fdatasync(file.fileno())
            times.append(time.perf_counter() - begun)
    return times


def journal(case: Case) -> Finding:
    from mqks.journal import JournalError, Reader
    from mqks.journal.files import ASIDE, SEGMENTS

    if not (case.folder / SEGMENTS).is_dir():
        return ok("there is none yet")
    try:
        reader = Reader(case.folder)
        earliest, latest, found = reader.earliest, reader.latest, reader.segments()
    except JournalError as error:
        return bad(str(error), "docs/OPERATIONS.md, the broker does not start")
    size = f"{size_in_tenths(sum(one.size for one in found))} in {counted(len(found), 'segment')}"
    text = f"{size}, from {earliest} to {latest}"
    aside = list((case.folder / ASIDE).iterdir()) if (case.folder / ASIDE).is_dir() else []
    if aside:
        advice = f"see what the broker's log says of it, then delete {case.folder / ASIDE}"
        return warn(f"{text}; {counted(len(aside), 'file')} put aside after a crash or a salvage", advice)
    return ok(f"{text}; `mqks journal verify` checks every byte")
