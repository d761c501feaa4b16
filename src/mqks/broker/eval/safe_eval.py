"""The evaluator behind `_eval`: one expression over a read-only view of the broker, within a budget.

It exists so that an operator can ask `len(state.queues)` and nothing worse: no expression can hang, crash or
fill the broker, or change anything in it. Ready-made evaluators do not promise that: simpleeval and asteval
forbid by list, have been escaped again and again (generator frames, `str.format`, modules behind attributes),
and leave time or memory unbounded.

- The source is parsed by `ast`, never compiled. A node, operator, function, method or field that is not in
  one of the tables at the end does not exist. Functions are not values; attributes exist on a `View` only.
- Operators and loops work on exact built-in types, so they never run an object's own code.
- Every node, and every element that is looped over, compared or hashed, costs a step. What `+`, `*` or a
  slice makes is taken from the size budget before it is made. Integers stay below MAX_BITS.

It touches nothing but what it is given, and only reads that.
"""

import ast
import operator
import reprlib
import warnings
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, KeysView, Mapping
from typing import Any

from mqks.broker.eval.views import (
    LAZY,
    LISTS,
    MAX_DEPTH,
    MAX_SIZE,
    MAX_STEPS,
    Budget,
    EvalError,
    Rows,
    Table,
    View,
    limit,
    only_eval_errors,
)

MAX_SOURCE = 10_000  # characters
MAX_BITS = 4096  # of an integer: any operation is cheap, and Python agrees to print it
MAX_DIGITS = 400  # that round() may be asked for: more than a float has

Env = dict[str, object]


def evaluate(code: str, names: Mapping[str, object], *, max_steps: int = MAX_STEPS, max_size: int = MAX_SIZE) -> object:
    """The value of the expression `code`, in which `names` are known; raises EvalError and nothing else.

    `max_size` bounds the total of what the expression makes on its way.
    """
    with only_eval_errors():
        run = _Interpreter(max_steps, max_size)
        result = run.eval(_parse(code), dict(names))
        return list(run.iterate(result)) if isinstance(result, Generator) else result


_NUMBERS = frozenset({bool, int, float})
_SCALARS = _NUMBERS | {str, type(None)}
_SEQUENCES = frozenset({str, list, tuple})
_SIZED = LISTS | {str, dict}


def _parse(code: str) -> ast.expr:
    limit(len(code), MAX_SOURCE, "characters")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about odd escapes and the like: nobody would read them
        tree = ast.parse(code.strip(), mode="eval").body
    nodes: list[tuple[ast.AST, int]] = [(tree, 1)]
    while nodes:
        node, depth = nodes.pop()
        limit(depth, MAX_DEPTH, "levels")
        # Each `for` of a comprehension runs inside the one before it.
        deeper = depth + len(getattr(node, "generators", "1"))
        nodes += [(child, deeper) for child in ast.iter_child_nodes(node)]
    return tree


class _Interpreter(Budget):
    """Walks the tree. `env` is the names in sight; a comprehension gets a copy and adds its own to it."""

    def eval(self, node: ast.expr | None, env: Env) -> Any:
        self.spend()
        if type(node) not in _NODES:
            word = _WORDS.get(type(node), type(node).__name__.lower())
            raise EvalError(f"'{word}' is not allowed here")
        return _NODES[type(node)](self, node, env)

    def constant(self, node: ast.Constant, _: Env) -> object:
        if type(node.value) not in _SCALARS:
            raise EvalError(f"a literal {type(node.value).__name__} is not allowed here")
        if isinstance(node.value, int):
            limit(node.value.bit_length(), MAX_BITS, "bits")
        return node.value

    def name(self, node: ast.Name, env: Env) -> object:
        if node.id not in env:
            raise EvalError(f"the name '{node.id}' is not known")
        return env[node.id]

    def attribute(self, node: ast.Attribute, env: Env) -> object:
        value = self.eval(node.value, env)
        if not isinstance(value, View):
            raise EvalError(f"attribute access is only possible on views, not on {type(value).__name__}")
        if node.attr.startswith("_") or node.attr not in value.fields:
            raise EvalError(f"no field '{node.attr}' here; there is: {', '.join(value.fields) or 'none'}")
        field = getattr(value, node.attr)
        if type(field) in _SIZED:
            self.spend(len(field) >> 1)  # it may be made anew each time
        return field

    def subscript(self, node: ast.Subscript, env: Env) -> object:
        value, key = self.eval(node.value, env), self.eval(node.slice, env)
        if isinstance(value, Rows):
            value = list(self.iterate(value))
        if type(value) is dict or isinstance(value, Table):
            self.weigh(key)
            if key not in value:
                raise EvalError(f"there is no {reprlib.repr(key)}")
        elif type(value) in _SEQUENCES and type(key) is slice:
            self.take(len(range(*key.indices(len(value)))))
        elif type(value) not in _SEQUENCES or type(key) not in (int, bool):
            raise EvalError(f"{type(value).__name__} cannot be indexed by {type(key).__name__}")
        return value[key]

    def unary(self, node: ast.UnaryOp, env: Env) -> object:
        value = self.eval(node.operand, env)
        if type(node.op) not in _UNARY or (type(value) not in _NUMBERS and not isinstance(node.op, ast.Not)):
            raise EvalError(f"'{type(node.op).__name__.lower()}' is not possible on {type(value).__name__}")
        return _UNARY[type(node.op)](value)

    def binary(self, op: type[ast.operator], a: Any, b: Any) -> object:
        kinds = {type(a), type(b)}
        if kinds <= {int, bool}:
            bits = _BITS[op](a, b) if op in _BITS else max(a.bit_length(), b.bit_length())
            limit(bits, MAX_BITS, "bits")
            self.take(bits >> 6)
        elif op is ast.Add and len(kinds) == 1 and kinds <= _SEQUENCES:
            self.take(len(a) + len(b))
        elif op is ast.Mult and kinds & _SEQUENCES and kinds & {int, bool}:
            self.take(len(a) * b if type(a) in _SEQUENCES else a * len(b))
        elif not kinds <= _NUMBERS:
            raise EvalError(f"no such arithmetic with {type(a).__name__} and {type(b).__name__}")
        result: object = _ARITHMETIC[op](a, b)
        if isinstance(result, complex):
            raise EvalError("the result is a complex number")
        return result

    def boolean(self, node: ast.BoolOp, env: Env) -> object:
        for operand in node.values:
            value = self.eval(operand, env)
            if bool(value) is isinstance(node.op, ast.Or):
                break
        return value

    def comparison(self, node: ast.Compare, env: Env) -> bool:
        left = self.eval(node.left, env)
        for op, operand in zip(node.ops, node.comparators, strict=True):
            right = self.eval(operand, env)
            if not self.compare(type(op), left, right):
                return False
            left = right
        return True

    def compare(self, op: type[ast.cmpop], a: object, b: object) -> bool:
        if op in (ast.In, ast.NotIn):
            return self.contains(b, a) is (op is ast.In)
        if op not in (ast.Is, ast.IsNot):
            self.weigh(a)
            self.weigh(b)
        return bool(_COMPARISONS[op](a, b))

    def contains(self, container: Any, item: Any) -> bool:
        self.weigh(item)
        if type(container) is type(item) is str:
            self.spend(len(container) * len(item) >> 12)  # a search can be this slow
            return item in container
        if type(container) in (set, frozenset, dict) or isinstance(container, Table | KeysView):
            return item in container
        return any(item is each or self.compare(ast.Eq, item, each) for each in self.iterate(container))

    def weigh(self, value: Any, depth: int = 0) -> None:
        """Pay ahead for a comparison or a hash: lists that share their parts are huge to go through."""
        limit(depth, MAX_DEPTH, "levels")
        self.spend(1 + (len(value) >> 6 if type(value) is str else 0))
        if type(value) in LISTS or type(value) is dict:
            for item in value.items() if type(value) is dict else value:
                self.weigh(item, depth + 1)
        elif type(value) not in _SCALARS and not isinstance(value, View):
            raise EvalError(f"{type(value).__name__} cannot be compared")

    def iterate(self, value: Any) -> Iterator[Any]:
        if type(value) not in _SIZED and not isinstance(value, (*LAZY, Generator)):
            raise EvalError(f"{type(value).__name__} cannot be gone through")
        for item in value:
            self.spend()
            yield item

    def make_dict(self, pairs: Iterable[tuple[Any, Any]]) -> dict[Any, Any]:
        """A key costs as many steps as others have its hash: tuples of -1 and -2 all have the same one."""
        made: dict[Any, Any] = {}
        hashes = Counter[int]()
        for key, value in pairs:
            self.weigh(key)
            self.spend(hashes[hash(key)])
            if key not in made:
                hashes[hash(key)] += 1
            made[key] = value
        return made

    def make_set(self, items: Iterable[Any]) -> set[Any]:
        return set(self.make_dict((item, None) for item in items))

    def elements(self, node: ast.GeneratorExp | ast.ListComp | ast.SetComp, env: Env) -> Iterator[Any]:
        return (self.eval(node.elt, scope) for scope in self.scopes(node.generators, env))

    def scopes(self, clauses: list[ast.comprehension], env: Env) -> Iterator[Env]:
        self.spend(len(env) >> 4)
        return self.loop(clauses, {**env})

    def loop(self, clauses: list[ast.comprehension], env: Env) -> Iterator[Env]:
        if not clauses:
            yield env
            return
        if clauses[0].is_async:
            raise EvalError("'async' is not allowed here")
        for item in self.iterate(self.eval(clauses[0].iter, env)):
            self.bind(clauses[0].target, item, env)
            if all(self.eval(condition, env) for condition in clauses[0].ifs):
                yield from self.loop(clauses[1:], env)

    def bind(self, target: ast.expr, value: object, env: Env) -> None:
        if isinstance(target, ast.Name):
            env[target.id] = value
        elif isinstance(target, ast.Tuple | ast.List):
            for part, item in zip(target.elts, self.iterate(value), strict=True):
                self.bind(part, item, env)
        else:
            raise EvalError("only names can be set by 'for'")

    def call(self, node: ast.Call, env: Env) -> object:
        known: Mapping[str, tuple[Any, ...]] = _FUNCTIONS
        args: list[object] = []
        word = node.func.id if isinstance(node.func, ast.Name) else "that"
        if isinstance(node.func, ast.Attribute):
            word, args = node.func.attr, [self.eval(node.func.value, env)]
            known = _methods_of(args[0])
        if word not in known:
            raise EvalError(f"'{word}' cannot be called here")
        function, least, most, *keywords = known[word]
        if not least <= len(node.args) <= most or any(each.arg not in keywords for each in node.keywords):
            raise EvalError(f"'{word}' does not take these arguments")
        args += [self.eval(arg, env) for arg in node.args]
        return function(self, *args, **{str(each.arg): self.eval(each.value, env) for each in node.keywords})

    def gather(self, *items: Any) -> list[Any]:
        """The items, or those of the only one, paid for as sorting them costs."""
        values = list(self.iterate(items[0] if len(items) == 1 else items))
        before = self.steps
        for value in values:
            self.weigh(value)
        self.spend((before - self.steps) * len(values).bit_length() // 16)
        return values

    def total(self, items: object, start: object = 0) -> object:
        for item in self.iterate(items):
            start = self.binary(ast.Add, start, item)
        return start

    def round(self, number: Any, digits: Any = None) -> object:
        if type(number) not in _NUMBERS or not (digits is None or -MAX_DIGITS <= digits <= MAX_DIGITS):
            raise EvalError("'round' takes a number and a small count of digits")
        return round(number, digits)

    def get(self, mapping: Any, key: object, default: object = None) -> object:
        return mapping[key] if self.contains(mapping, key) else default

    def join(self, separator: str, items: object) -> str:
        parts = list(self.iterate(items))
        if any(type(part) is not str for part in parts):
            raise EvalError("'join' takes texts only")
        self.take(sum(map(len, parts)) + len(separator) * len(parts))
        return separator.join(parts)


def _methods_of(value: object) -> Mapping[str, tuple[Any, ...]]:
    if type(value) is dict or isinstance(value, Table):
        return _METHODS
    if isinstance(value, View):
        return {name: (lambda _, view, f=field: getattr(view, f), 0, 0) for name, field in value.methods.items()}
    return _TEXT_METHODS if type(value) is str else {}


# What there is; everything else is refused.

_NODES: dict[type, Callable[[_Interpreter, Any, Env], object]] = {
    ast.Constant: _Interpreter.constant,
    ast.Name: _Interpreter.name,
    ast.Attribute: _Interpreter.attribute,
    ast.Subscript: _Interpreter.subscript,
    ast.Slice: lambda run, n, env: slice(*[p and run.eval(p, env) for p in (n.lower, n.upper, n.step)]),
    ast.Call: _Interpreter.call,
    ast.UnaryOp: _Interpreter.unary,
    ast.BinOp: lambda run, n, env: run.binary(type(n.op), run.eval(n.left, env), run.eval(n.right, env)),
    ast.BoolOp: _Interpreter.boolean,
    ast.Compare: _Interpreter.comparison,
    ast.IfExp: lambda run, n, env: run.eval(n.body if run.eval(n.test, env) else n.orelse, env),
    ast.List: lambda run, n, env: [run.eval(item, env) for item in n.elts],
    ast.Tuple: lambda run, n, env: tuple([run.eval(item, env) for item in n.elts]),
    ast.Set: lambda run, n, env: run.make_set(run.eval(item, env) for item in n.elts),
    ast.Dict: lambda run, n, env: run.make_dict(
        (run.eval(key, env), run.eval(value, env)) for key, value in zip(n.keys, n.values, strict=True)
    ),
    ast.GeneratorExp: _Interpreter.elements,
    ast.ListComp: lambda run, n, env: list(run.elements(n, env)),
    ast.SetComp: lambda run, n, env: run.make_set(run.elements(n, env)),
    ast.DictComp: lambda run, n, env: run.make_dict(
        (run.eval(n.key, scope), run.eval(n.value, scope)) for scope in run.scopes(n.generators, env)
    ),
}
_FUNCTIONS: dict[str, tuple[Any, ...]] = {  # each with its least and most arguments, and its keywords
    "len": (lambda _, value: len(value), 1, 1),
    "sum": (_Interpreter.total, 1, 2),
    "min": (lambda run, *items, **options: min(run.gather(*items), **options), 1, 100, "default"),
    "max": (lambda run, *items, **options: max(run.gather(*items), **options), 1, 100, "default"),
    "sorted": (lambda run, items, **options: sorted(run.gather(items), **options), 1, 1, "reverse"),
    "any": (lambda run, items: any(run.iterate(items)), 1, 1),
    "all": (lambda run, items: all(run.iterate(items)), 1, 1),
    "round": (_Interpreter.round, 1, 2),
    "set": (lambda run, items: run.make_set(run.iterate(items)), 1, 1),
}
_METHODS: dict[str, tuple[Any, ...]] = {
    "keys": (lambda _, mapping: mapping.keys(), 0, 0),
    "values": (lambda _, mapping: mapping.values(), 0, 0),
    "items": (lambda _, mapping: mapping.items(), 0, 0),
    "get": (_Interpreter.get, 1, 2),
}
_METHODS |= {
    f"iter{name}": _METHODS[name] for name in ("keys", "values", "items")
}  # as the original's Python spells them
_TEXT_METHODS: dict[str, tuple[Any, ...]] = {"join": (_Interpreter.join, 1, 1)}
_BITS: dict[type[ast.operator], Callable[[int, int], int]] = {  # of the result, where it can be large
    ast.Mult: lambda a, b: a.bit_length() + b.bit_length(),
    ast.Pow: lambda a, b: a.bit_length() * b,
    ast.LShift: lambda a, b: a.bit_length() + b,
}
# fmt: off
_ARITHMETIC: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod, ast.Pow: operator.pow,
    ast.LShift: operator.lshift, ast.RShift: operator.rshift,
    ast.BitAnd: operator.and_, ast.BitOr: operator.or_, ast.BitXor: operator.xor,
    ast.MatMult: operator.matmul,  # which no number has
}
_COMPARISONS: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Is: operator.is_, ast.IsNot: operator.is_not,
    ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge,
}
_UNARY: dict[type[ast.unaryop], Callable[[Any], Any]] = {
    ast.Not: operator.not_, ast.USub: operator.neg, ast.UAdd: operator.pos,
}
_WORDS: dict[type, str] = {  # for what is refused, where its class is not named like it
    ast.NamedExpr: ":=", ast.JoinedStr: "f-string", ast.Starred: "*", type(None): "**",
}
# fmt: on
