"""The command line: parses, calls, prints.

Exit codes: 0, 2 for a user's mistake, 1 for a failure, 130 after Ctrl-C and 143 after SIGTERM. A new command is a file
here with a function `add`, and a line in COMMANDS.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence
from importlib import metadata

from sparc.cli import bench, continual, demo, deploy, evaluate, lists, live, racing, suite, train, watch, workers
from sparc.cli.parser import Commands, Parser, add_common, show_help
from sparc.errors import SparcError, explain_os_error, unknown
from sparc.machine import INTERRUPTED
from sparc.plugins import named_module, only_imports

DESCRIPTION = "Train, resume and evaluate policies that must work under dynamics they have never seen."
EXAMPLES = """\
sparc demo
sparc train sparc WindHalfCheetah-v5
sparc evaluate RUN"""
# XLA's alarm about a compilation of more than two minutes is logged as an error. Errors themselves are raised.
QUIET_XLA = ("TF_CPP_MIN_LOG_LEVEL", "3")
COMMANDS = (
    demo,
    train,
    continual,
    workers,
    evaluate,
    deploy,
    watch,
    live,
    suite,
    racing,
    lists,
    bench,
)  # in this order in `sparc --help`


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in arguments
    named = [module for argument in arguments if (module := named_module(argument.rpartition("=")[2]))]
    trusted = "--allow-import" in map(normalise, arguments)
    if not debug:
        os.environ.setdefault(*QUIET_XLA)
    try:
        with only_imports(None if trusted else named):
            return dispatch(arguments)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # so that the flush at exit does not fail too
        return 1
    except KeyboardInterrupt:
        code, message = INTERRUPTED, "interrupted."
    except Exception as error:
        if debug:
            traceback.print_exc()
        if isinstance(error, SparcError):
            code, message = error.exit_code, str(error)
        elif isinstance(error, OSError):
            code, message = 1, explain_os_error(error)
        elif isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in str(error):
            code, message = 1, "the memory is used up: end other programs, or choose smaller networks or minibatches."
        else:
            code, message = 1, f"{type(error).__name__}: {error} (run again with --debug to see where)"
    print(f"sparc: {' '.join(message.split())}", file=sys.stderr)
    return code


def dispatch(arguments: list[str]) -> int:
    """Parse the arguments and call the handler of the command."""
    words = [normalise(argument) for argument in arguments]
    if "train" in words:
        train.load_methods(words)
    commands = make_commands()
    check_names(commands, [word for word in words if not word.startswith("-")])
    parsed, rest = commands.parser.parse_known_args(words)
    if rest:
        refuse(parsed.command, rest[0])
    code: int = parsed.handler(parsed)
    return code


def make_commands() -> Commands:
    """Build the parser and those of all commands."""
    parser = Parser("sparc", description=DESCRIPTION, examples=EXAMPLES)
    add_common(parser)
    parser.add_argument(
        "--version", action="version", version=f"sparc-rl {metadata.version('sparc-rl')}", help="show the version"
    )
    parser.set_defaults(handler=lambda parsed: show_help(parser), command=parser)
    commands = Commands(parser)
    for module in COMMANDS:
        module.add(commands)
    return commands


def check_names(commands: Commands, words: list[str]) -> None:
    """Refuse an unknown command by naming the nearest one; no option before a command takes a value."""
    if not words:
        return
    name, *rest = words
    if name not in commands.parsers:
        kind = f"{commands.name} command".lstrip()
        raise unknown(kind, name, commands.parsers, f"`{commands.parser.prog} --help`")
    if name in commands.groups:
        check_names(commands.groups[name], rest)


def refuse(parser: Parser, word: str) -> None:
    """Refuse a word that a command does not know."""
    if not word.startswith("-"):
        parser.error(f"{parser.prog} does not take '{word}'")
    raise unknown("option", word, option_names(parser), f"`{parser.prog} --help`", of=f"`{parser.prog}`")


def option_names(parser: Parser) -> list[str]:
    """Return the options of a command, as its help has them."""
    shown = (line.strip() for line in parser.format_help().splitlines())
    return [word.rstrip(",") for line in shown if line.startswith("-") for word in line.split() if word[0] == "-"]


def normalise(argument: str) -> str:
    """Accept --batch_size for --batch-size."""
    name, equals, value = argument.partition("=")
    return name.replace("_", "-") + equals + value if name.startswith("--") else argument
