"""The evaluator behind `_eval`: what it computes, what it refuses, and that nothing else ever happens."""

import json
import math
from collections import defaultdict
from collections.abc import Mapping
from typing import ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mqks.broker.eval.safe_eval import evaluate
from mqks.broker.eval.views import EvalError, Table, View, to_json, to_text


class Queue:
    """What the broker has, as a view must hide it: it changes when looked at in the wrong way."""

    def __init__(self, name: str, ready: int, events: set[str]) -> None:
        self.name, self.ready, self.events = name, ready, events


class QueueView(View):
    fields: ClassVar[Mapping[str, str]] = {
        "name": "its name",
        "ready": "messages that wait",
        "events": "what it is subscribed to",
        "state": "where it belongs",
        "_secret": "never shown, whatever this table says",
    }
    methods: ClassVar[Mapping[str, str]] = {"size": "ready"}
    hidden = "not in the table"
    _secret = "starts with an underscore"

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self.name, self.ready, self.events = queue.name, queue.ready, queue.events

    @property
    def state(self) -> "StateView":
        return STATE

    def delete(self) -> None:
        raise AssertionError("an expression called a method")


class StateView(View):
    fields: ClassVar[Mapping[str, str]] = {
        "queues": "by name",
        "counters": "a plain dict",
        "growing": "a dict that grows when it is read",
        "broken": "a field that fails",
        "odd": "a value of no known type",
    }

    def __init__(self, queues: Mapping[str, Queue]) -> None:
        self.queues = Table(queues, QueueView)
        self.counters = {"published": 7, "acked": 5}
        self.growing: defaultdict[str, int] = defaultdict(int)
        self.odd = b"bytes"

    @property
    def broken(self) -> int:
        raise RuntimeError("first line\nsecond line")


STATE = StateView(
    {
        "q1": Queue("q1", 3, {"e1", "e2"}),
        "q2": Queue("q2", 0, {"e1"}),
        "q3": Queue("q3", 9, set()),
    }
)
NAMES = {"state": STATE}

ALLOWED: list[tuple[str, object]] = [
    # literals and arithmetic
    ("42", 42),
    (" 1 + 2 * 3 ", 7),
    ("-7 // 2, -7 % 3, 7 / 2, 2 ** 10, +1.5", (-4, 2, 3.5, 1024, 1.5)),
    ("1 << 4 | 3 & 1 ^ 8, 256 >> 4", (25, 16)),
    ("2 ** -1", 0.5),
    ("'a' + 'b' * 3", "abbb"),
    ("2 * [1, 2] + [3]", [1, 2, 1, 2, 3]),
    ("(1,) + (2,)", (1, 2)),
    ("{'a': 1, 'b': [None, True]}", {"a": 1, "b": [None, True]}),
    ("{1, 1, 2}", {1, 2}),
    ("[]", []),
    (r"'\d'", r"\d"),
    # comparisons and logic
    ("1 < 2 <= 2 != 3", True),
    ("1 < 2 > 5", False),
    ("1 == 1.0, 'a' >= 'b', [1, 2] < [1, 3]", (True, False, True)),
    ("None is None, 1 is not None", (True, True)),
    ("0 or 'x' and 'y'", "y"),
    ("0 and nothing", 0),
    ("not []", True),
    ("'yes' if 2 > 1 else nothing", "yes"),
    ("2 in [1, 2], 2 not in (1, 2), 'b' in 'abc', 1 in {1: 2}, 3 in {1}", (True, False, True, True, False)),
    ("(1, 'a') in {(1, 'a')}", True),
    # subscripts and slices
    ("'hello'[1], [1, 2, 3][-1], {'k': 5}['k']", ("e", 3, 5)),
    ("'hello'[1:3], [1, 2, 3][::-1], (1, 2, 3)[1:]", ("el", [3, 2, 1], (2, 3))),
    # functions
    ("len('abc'), len({1: 2}), len([])", (3, 1, 0)),
    ("sum([1, 2, 3]), sum([0.5], 1), sum([[1], [2]], [])", (6, 1.5, [1, 2])),
    ("min(3, 1, 2), max([3, 1]), min([], default=9), max({'b', 'a'})", (1, 3, 9, "b")),
    ("sorted([3, 1, 2]), sorted('ba', reverse=True)", ([1, 2, 3], ["b", "a"])),
    ("any([0, 1]), all([0, 1]), any([]), all([])", (True, False, False, True)),
    ("round(2.567, 1), round(2.5), round(1234, -2), round(1.2, None)", (2.6, 2, 1200, 1)),
    # comprehensions
    ("[x * y for x in [1, 2, 3] if x > 1 for y in (10, 100) if y * x != 200]", [20, 30, 300]),
    ("{x % 2 for x in [1, 2, 3]}", {0, 1}),
    ("{k: v + 1 for k, (v, _) in [('a', (1, 2))]}", {"a": 2}),
    ("(x for x in [1, 2])", [1, 2]),
    ("[[y for y in [x, x]] for x in [1, 2]]", [[1, 1], [2, 2]]),
    ("[x for x in [x for x in [1, 2]]] + [0 for x in 'ab']", [1, 2, 0, 0]),
    ("any(1 / x > 0 for x in [1, 0])", True),  # stops before it would divide by zero
    ("all(x for x in [0, nothing] if 1) if 0 else 'lazy'", "lazy"),
    # views and tables
    ("len(state.queues)", 3),
    ("state.queues['q1'].ready", 3),
    ("sum(q.ready for q in state.queues.values())", 12),
    ("[name for name in state.queues]", ["q1", "q2", "q3"]),
    ("sorted(state.queues.keys(), reverse=True)[0]", "q3"),
    ("{name: q.ready for name, q in state.queues.items() if q.ready}", {"q1": 3, "q3": 9}),
    ("'q1' in state.queues, 'q9' in state.queues, 1 in state.queues", (True, False, False)),
    ("'q1' in state.queues.keys(), len(state.queues.values())", (True, 3)),
    ("state.queues.get('q9'), state.queues.get('q9', 0), state.queues.get('q2').name", (None, 0, "q2")),
    ("sorted(state.queues['q1'].events)", ["e1", "e2"]),
    ("[e for q in state.queues.values() for e in q.events if e == 'e1']", ["e1", "e1"]),
    ("state.counters['published'] - state.counters.get('acked')", 2),
    ("sorted(state.counters.items())", [("acked", 5), ("published", 7)]),
    ("max(q.ready for q in state.queues.values() if 'e1' in q.events)", 3),
    ("state.queues == state.queues, state == 1", (True, False)),
    # as the original's stats.py spells things
    ("set([1, 1, 2]), set('ab') == {'a', 'b'}", ({1, 2}, True)),
    ("', '.join(['a', 'b']), ''.join(x for x in 'ab')", ("a, b", "ab")),
    ("[q.size() for q in state.queues.itervalues()]", [3, 0, 9]),
    (
        "[n for n in state.counters.iterkeys()], [v for n, v in state.counters.iteritems()]",
        (["published", "acked"], [7, 5]),
    ),
]


@pytest.mark.parametrize(("code", "result"), ALLOWED)
def test_allowed(code: str, result: object) -> None:
    value = evaluate(code, NAMES)
    assert value == result
    assert type(value) is type(result)


# One line of expressions that are all refused, between double semicolons, for each way to go wrong.
REFUSED_LINES = r"""
().__class__.__bases__[0].__subclasses__() ;; ''.__class__ ;; len.__self__ ;; __builtins__ ;; __import__('os')
state.__class__ ;; state.__dict__ ;; state.fields ;; state.queues.__init__ ;; state.queues.__class__.__mro__
state.queues._mapping ;; state.queues._wrap ;; state.queues['q1']._queue ;; state.queues['q1']._secret
state.queues['q1'].hidden ;; state.queues['q1'].delete ;; state.queues['q1'].delete() ;; state.queues.q1
state.queues.keys ;; state.queues.keys().mapping ;; state.queues.values()._mapping ;; state.queues.pop('q1')
state.counters.clear() ;; state.counters.update({}) ;; state.counters.__setitem__('a', 1)
(x for x in [1]).gi_frame ;; (x for x in [1]).gi_frame.f_globals ;; (x for x in [1]).send(None)
'{0.__class__}'.format(state) ;; '{}'.format_map({}) ;; '%s' % state ;; '%(a)s' % {'a': 1} ;; 'a'.upper()
f'{state}' ;; f'{state.__class__}' ;; f'{1:>1000000000}' ;; 'a' f'{1}' ;; 'a'.join([1]) ;; 'a'.encode() ;; [].join('a')
state.queues['q1'].size(1) ;; state.queues['q1'].ready() ;; state.queues['q1'].size
[].append(1) ;; [1].sort() ;; {1}.add(2) ;; {}.setdefault(1, 2) ;; {1: 2}.pop(1) ;; (1).to_bytes(9, 'big')
len ;; [len][0]('a') ;; (len)('a')('b') ;; 1() ;; state() ;; state.queues() ;; (lambda: 1)() ;; lambda: 1
(x := 1) ;; [(x := y) for y in [1]] ;; [*[1]] ;; {**{}} ;; {1: 2, **{}}
len(*['a']) ;; sorted(**{'key': len}) ;; sorted([1], key=len) ;; max([1], key=len) ;; sum([1], start=1)
type(1) ;; getattr(state, 'queues') ;; setattr(state, 'queues', 1) ;; vars(state) ;; globals() ;; dir()
open('x') ;; eval('1') ;; exec('1') ;; print(1) ;; str(1) ;; list('a') ;; range(3) ;; map(len, 'a') ;; input()
len() ;; len('a', 'b') ;; {}.keys(1) ;; {}.get() ;; {}.get(1, 2, 3) ;; {}.get(key=1) ;; round(ndigits=1)
[0 for state.queues in [1]] ;; [0 for state.counters['acked'] in [1]] ;; [0 for *x, y in [[1, 2]]]
[x async for x in [1]] ;; await state ;; (yield 1) ;; (yield from [1]) ;; 1j ;; ... ;; b'a' ;; ~1 ;; 1 @ 2
x = 1 ;; del state ;; import os ;; 1; 2 ;; for x in []: pass ;; @len ;; def f(): pass ;; 1 + ;; (
nothing ;; state.nothing ;; state.queues['q9'] ;; state.queues[1:2] ;; state.counters[['a']]
state.growing['x'] ;; state.growing.get('x') ;; state.growing.keys() ;; state.broken
state.odd + state.odd ;; state.odd == 1
[1][5] ;; [1]['a'] ;; [1][1:2, 3] ;; [1][::0] ;; [1]['a':] ;; {1}[0] ;; 1[0] ;; [x for x in [1]] + [x]
1 / 0 ;; 1 % 0 ;; 0 ** -1 ;; 1 << -1 ;; 1e308 * 10 ** 400 ;; (-8) ** 0.5 ;; -'a' ;; 1 + 'a' ;; 'a' - 'a'
{1} | {2} ;; 1 < 'a' ;; 1 in 1 ;; {[1]} ;; {{}: 1} ;; [x for x in 1] ;; [x for x, y in [(1,)]]
[x for x, y in [(1, 2, 3)]] ;; len(1) ;; len(x for x in [1]) ;; sum(['a']) ;; min([]) ;; sorted([1, 'a'])
sorted(q for q in state.queues.values()) ;; round('a') ;; round(1, 'a') ;; round(1e999)
"""
REFUSED = [code for line in REFUSED_LINES.strip().splitlines() for code in line.split(" ;; ")]
REFUSED += [
    "",
    "   ",
    "1\n2",
    "@len\ndef f(): pass",
    "'a\nb'",
    "\x00",
    "1 + \x00",
    "'\ud800' + \ud800",
    "\ufeff\ufeff1",
]


@pytest.mark.parametrize("code", REFUSED)
def test_refused(code: str) -> None:
    with pytest.raises(EvalError) as error:
        evaluate(code, NAMES)
    reason = str(error.value)
    assert reason
    assert reason.isprintable()
    assert len(reason) < 1000


DOUBLING = "".join(f" for x{i + 1} in [(x{i}, x{i})]" for i in range(60))  # 2 ** 60 leaves, 60 tuples
ATTACKS = [
    "9 ** 9 ** 9",
    "2 ** 100000",
    "1 << 10 ** 10",
    "(1 << 4000) * (1 << 4000)",
    "[x * x * x * x for x in [2 ** 2000]]",
    "0x" + "f" * 9000,
    "9" * 9000,
    "round(1, -10 ** 9)",
    "round(1, -(1 << 4000))",
    "'a' * 10 ** 9",
    "10 ** 9 * 'a'",
    "[0] * 10 ** 10",
    "(0,) * 10 ** 10",
    "'a' * (1 << 4000)",
    "[0] * 600000 + [0] * 600000",
    "['a' * 100000 for x in [0] * 1000]",
    "[('a' * 100000)[1:] for x in [0] * 1000]",
    "[s[:] for s in ['a' * 100000] for x in [0] * 1000]",
    "[1 << 4000 for x in [0] * 24000]",
    "'%1000000000d' % 1",
    "'%*d' % (1000000000, 1)",
    "sum([[0] * 1000] * 10000, [])",
    "sum(['a' * 1000] * 10000, '')",
    "sum([1] * 500000)",
    "any([0] * 500000)",
    "max([1] * 500000)",
    "sorted([1] * 500000)",
    "[x for x in [0] * 500000]",
    "{x for x in [0] * 500000}",
    "1 in [0] * 500000",
    "[0] * 500000 == [0] * 500000",
    "[0 in s for s in [[1] * 1000] for x in [0] * 1000]",
    "['a' * 400000 == s for s in ['a' * 400000] for x in [0] * 50]",
    "[t in s for s in ['a' * 400000] for t in ['b' * 10] for x in [0] * 5000]",
    "sorted(['a' * 10000 + x for x in 'ab' * 1000])",
    "sorted([[s, x] for s in ['a' * 100000] for x in 'ab' * 1000])",
    "[0 " + "for x in [0] * 1000 " * 4 + "]",
    "sum(1 for a in [0] * 10000 for b in [0] * 10000 for c in [0] * 10000)",
    "any(x for y in [0] * 10000 for x in [0] * 10000)",
    "[[[[0 for d in [0] * 1000] for c in [0] * 1000] for b in [0] * 1000] for a in [0] * 1000]",
    "[n in h for n in ['a' * 600 + 'b' + 'a' * 600] for h in ['a' * 2400] for x in [0] * 10000]",
    "[[0 for y in ''] for " + "".join(f"x{i}," for i in range(900)) + " in [[0] * 900] for x in [0] * 30000]",
    # one part shared many times: small to hold, endless to go through
    f"[x60 == x60 for x0 in [0]{DOUBLING}]",
    f"[x60 < x60 for x0 in [0]{DOUBLING}]",
    f"{{x60 for x0 in [0]{DOUBLING}}}",
    f"[x60 in [x60] for x0 in [0]{DOUBLING}]",
    f"[x60 in {{}} for x0 in [0]{DOUBLING}]",
    f"[{{}}[x60] for x0 in [0]{DOUBLING}]",
    f"[{{}}.get(x60) for x0 in [0]{DOUBLING}]",
    f"[state.queues[x60] for x0 in [0]{DOUBLING}]",
    f"[min([x60, x60]) for x0 in [0]{DOUBLING}]",
    f"[sorted([x60, x60]) for x0 in [0]{DOUBLING}]",
    # every key has the same hash: hash(-1) == hash(-2), and integers wrap at 2 ** 61 - 1
    "{(" + "".join(f"x{i}, " for i in range(11)) + ") " + "".join(f"for x{i} in (-1, -2) " for i in range(11)) + "}",
    "len({(a + b * 10) * (2 ** 61 - 1) for a in " + str(list(range(10))) + " for b in " + str(list(range(300))) + "})",
    # deep and long source
    "(" * 100_000 + ")" * 100_000,
    "(" * 201 + "1" + ")" * 201,
    "(" * 4000 + "1" + ")" * 4000,
    "[" * 4999 + "]" * 4999,
    "[" * 150 + "]" * 150,
    "{1:" * 3000,
    "-" * 9999 + "1",
    "not " * 2400 + "1",
    "1" + "+1" * 4900,
    "1" + "**1" * 3000,
    "state" + ".queues" * 1400,
    "state" + "[0]" * 3000,
    "len(" * 1900 + ")" * 1900,
    "lambda:" * 1400 + "1",
    "1 if 1 else " * 800 + "1",
    "[x for x in " * 800,
    "f'{" * 3000,
    "[0" + " for x in [0]" * 700 + "]",
    "1 " * 1_000_000,
    "'" + "a" * 1_000_000 + "'",
]


@pytest.mark.parametrize("code", ATTACKS, ids=lambda code: code[:40])
def test_attacks_end_in_an_error(code: str) -> None:
    with pytest.raises(EvalError):
        evaluate(code, NAMES)


@pytest.mark.parametrize(
    "code",
    [
        "[[[0] * 1000] * 1000] * 1000",
        "['a' * 1000] * 10000",
        "[state] * 900000",
        f"[x60 for x0 in [0]{DOUBLING}]",
        "'\\n' * 900000",
        "[{1: x} for x in [[[0] * 1000] * 1000]] * 1000",
    ],
    ids=lambda code: code[:30],
)
def test_results_are_bounded(code: str) -> None:
    result = evaluate(code, NAMES)
    with pytest.raises(EvalError):
        to_text(result)
    with pytest.raises(EvalError):
        to_json(result, max_size=100_000)


def test_nesting_of_results_is_bounded() -> None:
    nested: list[object] = []
    nested.append(nested)
    for show in (to_text, to_json):
        with pytest.raises(EvalError):
            show(nested)
    with pytest.raises(EvalError):
        evaluate("x == x", {"x": nested})


BUDGETS: list[tuple[str, int, int]] = [  # the fewest steps, and the least size, with which each is computed
    ("sum([1] * 50)", 5 + 50, 50),
    ("sum(x for x in [1] * 50)", 6 + 3 * 50, 50),
    ("sorted([[1] * 50] * 40)", 8 + 40 + 40 * 51 + 40 * 51 * 6 // 16, 90),  # go through, weigh, sort
    ("[1 << 4000 for x in 'abcdefgh']", 2 + 8 * 4, 8 * 62),
    ("'abc'[1:] + 'd'", 6, 2 + 3),
    ("long.lines == 0", 4 + 100 // 2 + 101 + 1, 0),
]


class LongView(View):
    fields: ClassVar[Mapping[str, str]] = {"lines": "a long list, made anew each time"}

    @property
    def lines(self) -> list[int]:
        return [0] * 100


@pytest.mark.parametrize(("code", "steps", "size"), BUDGETS)
def test_budgets(code: str, steps: int, size: int) -> None:
    names = {"state": STATE, "long": LongView()}
    evaluate(code, names, max_steps=steps, max_size=size)
    with pytest.raises(EvalError, match="steps"):
        evaluate(code, names, max_steps=steps - 1)
    if size:
        with pytest.raises(EvalError, match="too large"):
            evaluate(code, names, max_size=size - 1)


def test_tables_are_lazy() -> None:
    """Of 10,000 queues: their number costs nothing, an early end little, and each is made when looked at."""
    made: list[str] = []

    def wrap(queue: Queue) -> QueueView:
        made.append(queue.name)
        return QueueView(queue)

    table = Table({f"q{i}": Queue(f"q{i}", i, set()) for i in range(10_000)}, wrap)
    names = {"queues": table}
    assert evaluate("len(queues), 'q77' in queues, len(queues.values())", names, max_steps=20) == (
        10_000,
        True,
        10_000,
    )
    assert made == []
    assert evaluate("any(q.ready == 2 for q in queues.values())", names, max_steps=50) is True
    assert made == ["q0", "q1", "q2"]
    with pytest.raises(EvalError):
        evaluate("[q for q in queues]", names, max_steps=9_999)
    assert evaluate("sum(q.ready for q in queues.values() if q.ready)", names) == 49_995_000
    assert evaluate("sorted(q.name for q in queues.values())[1]", names) == "q1"


def test_nothing_changes() -> None:
    names: dict[str, object] = {"state": STATE, "z": 1}
    assert evaluate("[z for z in [5, 6]] + [z]", names) == [5, 6, 1]
    assert names == {"state": STATE, "z": 1}
    for code in REFUSED:
        with pytest.raises(EvalError):
            evaluate(code, names)
    assert STATE.counters == {"published": 7, "acked": 5}
    assert not STATE.growing
    assert sorted(STATE.queues) == ["q1", "q2", "q3"]


REASONS = [
    ("lambda: 1", "'lambda' is not allowed here"),
    ("[y := 1]", "':=' is not allowed here"),
    ("f'{1}'", "'f-string' is not allowed here"),
    ("len(*[1])", "'*' is not allowed here"),
    ("{**{}}", "'**' is not allowed here"),
    ("'a'.upper", "attribute access is only possible on views, not on str"),
    ("state.x", "no field 'x' here; there is: queues, counters, growing, broken, odd"),
    ("open('x')", "'open' cannot be called here"),
    ("x", "the name 'x' is not known"),
    ("state.queues['q9']", "there is no 'q9'"),
    ("state.broken", r"RuntimeError: first line\nsecond line"),
    ("1 / 0", "ZeroDivisionError: division by zero"),
]


@pytest.mark.parametrize(("code", "reason"), REASONS)
def test_reasons(code: str, reason: str) -> None:
    with pytest.raises(EvalError) as error:
        evaluate(code, NAMES)
    assert str(error.value) == reason


TEXTS: list[tuple[str, str]] = [
    ("42", "42"),
    ("'text'", "text"),
    (r"'two\nlines\r\t\0'", r"two\nlines\r\t\x00"),
    (r"'\ud800 é €'", r"\ud800 é €"),
    (r"['a\n', 1.5, None, (1,), (), {}, {1}]", r"['a\n', 1.5, None, (1,), (), {}, {1}]"),
    ("state", "<state>"),
    ("state.queues['q1']", "<queue q1>"),
    ("state.queues", "{'q1': <queue q1>, 'q2': <queue q2>, 'q3': <queue q3>}"),
    ("state.queues.keys()", "['q1', 'q2', 'q3']"),
    ("state.counters.items()", "[('published', 7), ('acked', 5)]"),
    ("state.odd", "b'bytes'"),
    ("[(x for x in [1])]", "['<generator>']"),
]


@pytest.mark.parametrize(("code", "text"), TEXTS)
def test_text(code: str, text: str) -> None:
    result = to_text(evaluate(code, NAMES))
    assert result == text
    result.encode()


QUEUE_JSON = {"name": "q3", "ready": 9, "events": [], "state": "<state>"}
JSONS: list[tuple[str, object]] = [
    ("42", 42),
    ("None, True, 1.5, 'é'", [None, True, 1.5, "é"]),
    ("1e999, -1e999, 1e999 - 1e999", ["inf", "-inf", "nan"]),
    (r"'a\nb', '\ud800'", ["a\nb", r"\ud800"]),
    ("{1}, {'a': (1, 2), 2: [], (1, 2): {}}", [[1], {"a": [1, 2], "2": [], "(1, 2)": {}}]),
    ("[x for x in state.queues.values() if x.ready == 9]", [QUEUE_JSON]),
    ("{q: v for q, v in state.queues.items() if q == 'q3'}", {"q3": QUEUE_JSON}),
    ("state.queues.keys()", ["q1", "q2", "q3"]),
    ("state.odd", "b'bytes'"),
    ("[(x for x in [1])]", ["<generator>"]),
]


@pytest.mark.parametrize(("code", "value"), JSONS)
def test_json(code: str, value: object) -> None:
    result = to_json(evaluate(code, NAMES))
    assert result == value
    json.dumps(result, allow_nan=False).encode()


WORDS = r"""
state queues q1 x y len sum min max sorted any all round keys values items get for in if else not and or is
lambda async await yield None True 0 1 -1 7 2.5 1e308 10**9 'a' '%s' f'{x}' ( ) [ ] { } , : . + - * ** / // %
<< >> & | ^ ~ @ == != < <= > >= := = _ __class__ gi_frame format reverse=True default=0 key=len ... \ é
"""
LEAVES = r"""
0 1 -2 3.5 1e308 10**9 (1<<4000) '' 'abc' 'é\n' None True [] () {} state state.queues state.counters x y
state.odd state.queues['q1'] state.queues['q1'].events state.queues.values()
"""
SHAPES = r"""
({0}+{1}) ({0}*{1}) ({0}**{1}) ({0}-{1}) ({0}%{1}) ({0}<<{1}) ({0}/{1}) ({0}<{1}) ({0}=={1}) ({0}~in~{1})
({0}~and~{1}) (not~{0}) (-{0}) ({0}~if~{1}~else~x) {0}[{1}] {0}[{1}:{0}] {0}[::{1}] ({0},{1}) [{0},{1}]
{{{0}:{1}}} {{{0},{1}}} [{0}~for~x~in~{1}] ({0}~for~x~in~{1}~if~x) {{x:{0}~for~x~in~{1}}}
{{{0}~for~x,y~in~{1}}}
len({0}) sum({0}) sum({0},{1}) min({0}) max({0},{1}) sorted({0}) any({0}) all({0}) round({0},{1})
{0}.get({1}) {0}.items() {0}.name {0}.ready {0}.__class__
"""
EXPRESSIONS = st.recursive(
    st.sampled_from(LEAVES.split()),
    lambda inner: st.builds(
        lambda shape, a, b: shape.replace("~", " ").format(a, b),
        st.sampled_from(SHAPES.split()),
        inner,
        inner,
    ),
    max_leaves=12,
)


def only_returns_or_refuses(code: str) -> None:
    try:
        result = evaluate(code, NAMES, max_steps=5_000, max_size=20_000)
        text = to_text(result, max_size=20_000)
        value = to_json(result, max_size=20_000)
    except EvalError as error:
        assert str(error).isprintable()
    else:
        assert text.isprintable()
        text.encode()
        json.dumps(value, allow_nan=False).encode()


@settings(max_examples=1000, deadline=None)
@given(EXPRESSIONS)
def test_expressions_only_return_or_refuse(code: str) -> None:
    only_returns_or_refuses(code)


@settings(max_examples=500, deadline=None)
@given(st.lists(st.sampled_from(WORDS.split()), max_size=25).map(" ".join))
def test_words_only_return_or_refuse(code: str) -> None:
    only_returns_or_refuses(code)


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=60))
def test_any_text_only_returns_or_is_refused(code: str) -> None:
    only_returns_or_refuses(code)


@settings(max_examples=300, deadline=None)
@given(
    st.integers(-1000, 1000),
    st.integers(-50, 50),
    st.sampled_from(["+", "-", "*", "//", "%", "^", "<", "=="]),
)
def test_agrees_with_python(a: int, b: int, sign: str) -> None:
    code = f"{a} {sign} {b}"
    if b == 0 and sign in ("//", "%"):
        with pytest.raises(EvalError):
            evaluate(code, {})
    else:
        assert evaluate(code, {}) == eval(code)


def test_floats_stay_floats() -> None:
    zero = evaluate("-0.0", {})
    assert isinstance(zero, float)
    assert math.copysign(1, zero) == -1
