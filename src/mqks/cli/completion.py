"""`mqks completion`: scripts for shells, made from the table of commands.

Names of queues come from the broker at the moment of the TAB. Anybody may have made them, so no script lets the shell
expand them: `compgen -W` would run `$(…)` in a name.
"""

from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator
from typing import NamedTuple

from mqks.cli.command import Command, Family, Table, parser_of
from mqks.cli.connection import add_url, broker

HELP = "print a script that completes commands for a shell"
EXAMPLE = "source <(mqks completion bash)"
PATIENCE = 0.5  # seconds for a broker to answer somebody who pressed TAB


class Words(NamedTuple):
    """What may follow the words of `path`."""

    path: tuple[str, ...]
    words: dict[str, str]  # commands and choices → what they do
    flags: dict[str, str]
    queues: bool = False  # may the first word be a queue?
    folders: bool = False


def tree(table: Table, path: tuple[str, ...] = ()) -> Iterator[Words]:
    """All commands, families before what is in them."""
    flags = {"--help": "show the help", **({} if path else {"--version": "show the version"})}
    yield Words(path, {name: entry.help for name, entry in table.items()}, flags)
    for name, entry in table.items():
        below = (*path, name)
        if isinstance(entry, Family):
            yield from tree(entry.commands(), below)
        else:
            yield of_command(below, entry)


def of_command(path: tuple[str, ...], command: Command) -> Words:
    flags: dict[str, str] = {}
    words: dict[str, str] = {}
    metavars = []
    for action in parser_of(" ".join(path), command)._actions:
        if action.help == "==SUPPRESS==":
            continue
        flags |= {flag: action.help or "" for flag in action.option_strings if flag.startswith("--")}
        if not action.option_strings:
            metavars.append(action.metavar)
            words |= dict.fromkeys(action.choices or (), "")
    return Words(path, words, flags, metavars[:1] == ["QUEUE"], metavars[:1] == ["DIR"])


# ── bash ──

BASH = """\
# mqks for bash: source <(mqks completion bash)
_mqks() {
    local cur=${COMP_WORDS[COMP_CWORD]} cmd= at=0 words= queues= folders= i name
    for ((i = 1; i < COMP_CWORD; i++)); do
        case "$cmd ${COMP_WORDS[i]}" in
            %(paths)s) cmd="$cmd ${COMP_WORDS[i]}" at=$i ;;
        esac
    done
    case "$cmd" in
%(cases)s
    esac
    COMPREPLY=($(compgen -W "$words" -- "$cur"))
    if [[ $folders ]]; then
        while IFS= read -r name; do COMPREPLY+=("$name"); done < <(compgen -d -- "$cur")
    fi
    if [[ $queues && $COMP_CWORD -eq $((at + 1)) && $cur != -* ]]; then
        while IFS= read -r name; do
            [[ $name == "$cur"* ]] && COMPREPLY+=("$(printf %%q "$name")")
        done < <("${COMP_WORDS[0]}" completion --queues 2>/dev/null)
    fi
}
complete -F _mqks mqks
"""


def bash(nodes: list[Words]) -> str:
    def case(node: Words) -> str:
        return f"words='{_words(node)}'{' queues=1' * node.queues}{' folders=1' * node.folders}"

    return BASH % _cases(nodes, case)


def _cases(nodes: list[Words], case: Callable[[Words], str]) -> dict[str, str]:
    """For a script of bash or zsh, whose `case` is written alike."""
    keys = [repr("".join(f" {word}" for word in node.path)) for node in nodes]
    return {
        "paths": "|".join(key for key, node in zip(keys, nodes, strict=True) if node.path),
        "cases": "\n".join(f"        {key}) {case(node)} ;;" for key, node in zip(keys, nodes, strict=True)),
    }


def _words(node: Words) -> str:
    return " ".join([*node.words, *node.flags])


# ── zsh ──

ZSH = """\
#compdef mqks
# mqks for zsh: source <(mqks completion zsh), after compinit
_mqks() {
    local cmd= at=1 i
    for ((i = 2; i < CURRENT; i++)); do
        case "$cmd ${words[i]}" in
            %(paths)s) cmd="$cmd ${words[i]}" at=$i ;;
        esac
    done
    case "$cmd" in
%(cases)s
    esac
}
_mqks_queues() {
    (( CURRENT == $1 + 1 )) && compadd -- ${(f)"$(${words[1]} completion --queues 2>/dev/null)"}
}
compdef _mqks mqks
"""


def zsh(nodes: list[Words]) -> str:
    def case(node: Words) -> str:
        return f"compadd -- {_words(node)}{'; _mqks_queues $at' * node.queues}{'; _files -/' * node.folders}"

    return ZSH % _cases(nodes, case)


# ── fish ──


def fish(nodes: list[Words]) -> str:
    lines = ["# mqks for fish: mqks completion fish | source", "complete -c mqks -f"]
    for node in nodes:
        seen = [f"__fish_seen_subcommand_from {word}" for word in node.path]
        below = [f"not __fish_seen_subcommand_from {' '.join(node.words)}"] if node.words else []
        start = f"complete -c mqks -n '{'; and '.join(seen + below)}'"
        lines += [f"{start} -a {word} -d {_quoted(about)}" for word, about in node.words.items()]
        lines += [f"{start} -l {flag[2:]} -d {_quoted(about)}" for flag, about in node.flags.items()]
        lines += [f"{start} -a '(mqks completion --queues 2>/dev/null)'"] * node.queues
        lines += [f"{start} -a '(__fish_complete_directories)'"] * node.folders
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


# ── the command ──

SHELLS: dict[str, Callable[[list[Words]], str]] = {"bash": bash, "zsh": zsh, "fish": fish}


def arguments(parser: ArgumentParser) -> None:
    parser.add_argument("shell", metavar="SHELL", nargs="?", choices=SHELLS, help=", ".join(SHELLS))
    parser.add_argument("--queues", action="store_true", help="==SUPPRESS==")  # what the scripts themselves ask
    add_url(parser)


def run(args: Namespace, table: Table) -> int:
    if args.queues:
        return queues(args)
    if args.shell is None:
        args.parser.error(f"for which shell? {', '.join(SHELLS)}")
    print(SHELLS[args.shell](list(tree(table))), end="")
    return 0


def queues(args: Namespace) -> int:
    """The names of the queues, or nothing: who presses TAB has no use for an error."""
    try:
        with broker(args, timeout=PATIENCE, tell=False) as mq:
            names = sorted(mq.stats()["queues"])
    except OSError:
        return 1
    print("\n".join(name for name in names if name.isprintable()))
    return 0
