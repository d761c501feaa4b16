"""Planted bugs: small changes of the broker and its client that each break one promise of docs/GUARANTEES.md.

`old` stands exactly once in its file. `tool` is expected to catch the bug; mutations.py runs it first.
Names with * are violations that earlier versions really had.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Bug:
    name: str
    promise: str  # its number in docs/GUARANTEES.md, and what is broken
    file: str  # in src/mqks
    old: str
    new: str
    tool: str


BUGS = (
    # ── 1: `ok` means on disk ──
    Bug(
        "publish confirmed before the sync",
        "1: ok means synced",
        "journal/journal.py",
        "                self._sync()\n            else:\n                self._core.confirmations.release_replies",
        "                self._sync()\n            if True:\n                self._core.confirmations.release_replies",
        "power",
    ),
    Bug(
        "a sync confirms what was written after it began",
        "1: ok means synced",
        "journal/journal.py",
        "                self._synced(writes, position)\n\n        if not files:",
        "                self._synced(self._core.confirmations.written, self._core.log.written)\n\n"
        "        if not files:",
        "power",
    ),
    Bug(
        "rebind confirmed at once",
        "1: ok means synced",
        "broker/actions/consume.py",
        "    broker.definitions.write(queue)\n    if words.confirm:\n"
        "        broker.core.confirmations.confirm(client, request_id)\n",
        "    broker.definitions.write(queue)\n    if words.confirm:\n"
        '        broker.core.output.say(client, request_id + b" ok \\n")\n',
        "power",
    ),
    # ── 2: what a crash leaves ──
    Bug(
        "name of a new segment not synced",
        "2: a power loss loses nothing confirmed",
        "journal/segments.py",
        "        if self._folder_unsynced:\n            files.append(self._folder)",
        "        if False:\n            files.append(self._folder)",
        "power",
    ),
    Bug(
        "checkpoint named before it is synced",
        "2: a power loss loses nothing confirmed",
        "journal/journal.py",
        "            self._start_sync((*self.index.to_sync(), *files, self._logs.folder), synced, urgent=False)",
        "            rename()",
        "power",
    ),
    Bug(
        "limits of queues forgotten",
        "2: a restart keeps queues as they are",
        "broker/persistence/recovery.py",
        "        queue.bounds = told.bounds",
        "        queue.bounds = queue.bounds",
        "history",
    ),
    Bug(
        "ids of --once forgotten",
        "2: --once is in the journal once",
        "broker/persistence/once.py",
        "            self._seen.use_key(key)",
        "            pass",
        "history",
    ),
    Bug(
        "progress outlives its messages *",
        "2: progress never outlives the messages that it depends on",
        "journal/progress.py",
        "if record.needs > journal_end), default=len(data))",
        "if record.needs < 0), default=len(data))",
        "power",
    ),
    # ── 3: no holes, and damage is said ──
    Bug(
        "damage taken for a torn end",
        "3: damage is refused or said",
        "journal/recovery.py",
        "    return segments.view(start).proves_damage(bad, offset, segments.sizes[start])",
        "    return False",
        "sim",
    ),
    Bug(
        "missing progress log ignored *",
        "3: a missing progress log is refused",
        "journal/progress.py",
        "    if newest and checkpoint.has_log and heads.get(newest) is None:",
        "    if newest and checkpoint.has_log and heads.get(newest) == -1:",
        "damage",
    ),
    Bug(
        "salvage keeps nothing after the first damage",
        "3: exactly the damaged batches are missing",
        "journal/salvage.py",
        "        run = next((run for run in one.runs if run.offset == lost.end), None)",
        "        run = None",
        "damage",
    ),
    Bug(
        "salvaged segment of one line not passed *",
        "3: after a salvage every queue drains",
        "journal/segments.py",
        "            at = low + (line.size if line else 0)\n"
        "            for header, batch in Batches(_reading(found), low, at - low,",
        "            for header, batch in Batches(_reading(found), low, line.size if line else 0,",
        "damage",
    ),
    Bug(
        "history refused at a gap without messages *",
        "3: history goes on where nothing is missing",
        "journal/segments.py",
        "            or ranges.covers(self._empty, start, following)\n",
        "",
        "sim",
    ),
    Bug(
        "history passes over removed messages",
        "3: history says what retention removed",
        "journal/segments.py",
        "            self.follows_gap(following)\n            or ranges",
        "            True\n            or ranges",
        "sim",
    ),
    Bug(
        "two brokers share a folder",
        "3: two brokers never share a folder",
        "journal/disk.py",
        "fcntl.LOCK_EX | fcntl.LOCK_NB",
        "fcntl.LOCK_SH | fcntl.LOCK_NB",
        "history",
    ),
    # ── 4: `error` means not accepted ──
    Bug(
        "error for an accepted message *",
        "4: error means not accepted",
        "broker/actions/sevx.py",
        "        broker.capacity.check_room()\n"
        "        queues = broker.exchange.queues_for(content)\n"
        "        full = broker.core.router.send(client, request_id, text, queues, words.once)\n"
        "        broker.queue_limits.check_taken(full)\n",
        "        queues = broker.exchange.queues_for(content)\n"
        "        full = broker.core.router.send(client, request_id, text, queues, words.once)\n"
        "        broker.queue_limits.check_taken(full)\n"
        "        broker.capacity.check_room()\n",
        "history",
    ),
    Bug(
        "failed sync answered with ok *",
        "4: a failed sync is not answered",
        "journal/journal.py",
        '            log.error(Entry("{reason}", reason=reason))\n            self._owner.drop_held()',
        '            log.error(Entry("{reason}", reason=reason))\n'
        "            self._core.confirmations.release_replies(self._core.confirmations.written)",
        "sim",
    ),
    Bug(
        "failed sync tried again",
        "4: a failed sync is not tried again",
        "journal/journal.py",
        '                self.fail(f"a sync has failed, and what the disk has of the last messages is not known: '
        '{result.error}")',
        "                self._sync()",
        "sim",
    ),
    Bug(
        "what a full disk refuses counts as written",
        "4: what cannot be written is not answered",
        "journal/journal.py",
        "                self._waits_for_room = True\n                self._refuse()\n            return False",
        "                self._refuse()\n            return True",
        "history",
    ),
    # ── 5: deliveries ──
    Bug(
        "a closed connection keeps its messages",
        "5: at least once",
        "broker/queues/consumer_manager.py",
        "        for consumer in list((client.consumers or {}).values()):",
        "        for consumer in list((client.consumers or {}).values())[1:]:",
        "sim",
    ),
    Bug(
        "acks confirmed before progress is synced",
        "5: a confirmed ack never comes back",
        "journal/journal.py",
        "        if self._core.confirmations.settled_waits or not self._core.confirmations.waits_for_disk:",
        "        if not self._core.confirmations.waits_for_disk:",
        "power",
    ),
    Bug(
        "delivered though it cannot be recorded",
        "5: repeated deliveries carry retry=",
        "journal/journal.py",
        "        self._core.account.charge(len(words))\n        return False",
        "        self._core.account.charge(len(words))\n        return True",
        "sim",
    ),
    Bug(
        "a closed connection gets messages *",
        "5: order, also when a consumer closes and comes back",
        "core/delivery.pyx",
        "        return self.acks.end_deliveries(c)\n",
        "        return 0\n",
        "history",
    ),
    Bug(
        "messages of a checkpoint come after newer ones",
        "5: first in, first out",
        "core/snapshots.pyx",
        "                before.last.next = q.ready.first\n                q.ready.first = before.first\n"
        "                if q.ready.last == NULL:\n                    q.ready.last = before.last\n",
        "                if q.ready.first == NULL:\n                    q.ready.first = before.first\n"
        "                else:\n                    q.ready.last.next = before.first\n"
        "                q.ready.last = before.last\n",
        "history",
    ),
    Bug(
        "retention removes queued messages",
        "5: messages in a queue are never removed",
        "journal/retention.py",
        "            if start in self.unheld:",
        "            if start >= 0:",
        "sim",
    ),
    # ── 6: limits ──
    Bug(
        "full queue answers ok",
        "6: every limit answers with an error",
        "broker/queues/queue_limits.py",
        "            raise self._refused(full)",
        "            return",
        "sim",
    ),
    Bug(
        "full memory takes new queues",
        "6: memory is limited",
        "broker/capacity.py",
        '        if self._core.account.full:\n            raise self._limits.reached("max_memory")',
        "        return",
        "sim",
    ),
    # ── 7: the clients ──
    Bug(
        "consumers not stated again after a reconnect",
        "7: every consumer is alive again",
        "client/session.py",
        "            for wanted in list(self._wanted):\n                self._state(wanted)\n            waits",
        "            waits",
        "client",
    ),
    Bug(
        "publishes without an answer not sent again",
        "7: no publish reported as done is missing",
        "client/session.py",
        "            again = [request for id, request in self._pending.items() if id not in waits_in_out]",
        "            again = list(self._pending.values())[:0]",
        "client",
    ),
    # ── 8: Spark ──
    Bug(
        "hold ignored",
        "8: no segment goes that is held",
        "journal/retention.py",
        " or (held is not None and end > held)",
        "",
        "sim",
    ),
)  # fmt: skip
