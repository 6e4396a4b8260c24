"""The parser that all commands share: its help, its one-line errors, and the types of their options."""

from __future__ import annotations

import argparse
import re
import shutil
import textwrap
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

from sparc.errors import UserError

HELP_COLUMN = 24  # where the help of an option begins
COMMAND_COLUMN = 18  # where that of a command begins
NO_BREAK = "\N{NO-BREAK SPACE}"
WIDEST = 100  # columns of help; longer lines are hard to read

Handler = Callable[[argparse.Namespace], int]


class Parser(argparse.ArgumentParser):
    """A parser whose mistakes are UserErrors of one line and whose help breaks lines only between words."""

    def __init__(self, prog: str, *, description: str, examples: str, usage: str | None = None):
        super().__init__(
            prog,
            usage,
            description=wrap(description, 0),
            epilog=f"examples:\n{textwrap.indent(examples, '  ')}",
            formatter_class=make_formatter,
            allow_abbrev=False,
        )

    def add_argument(self, *names: Any, help: str | None = None, **how: Any) -> argparse.Action:
        """Add an argument as argparse does, its help text wrapped between words."""
        return super().add_argument(*names, help=wrap(help or ""), **how)

    def error(self, message: str) -> NoReturn:
        """Raise the mistake as one line: "argument --grid: must be …" becomes "--grid must be …"."""
        if message.startswith("argument "):
            message = message.removeprefix("argument ").replace(": ", " ", 1)
        raise UserError(f"{message.removesuffix('.')}. See `{self.prog} --help`.")


class Commands:
    """The commands of `sparc`, or of a command that has several, such as `sparc suite`."""

    def __init__(self, parser: Parser, title: str = "commands"):
        metavar = title.removesuffix("s").upper()
        self.parser, self.name = parser, parser.prog.partition(" ")[2]
        self.parsers: dict[str, Parser] = {}
        self.groups: dict[str, Commands] = {}
        self._added = parser.add_subparsers(title=title, metavar=metavar, parser_class=Parser)

    def add(self, name: str, handler: Handler, help: str, examples: str, usage: str | None = None) -> Parser:
        """Add a command; return its parser, which takes its arguments."""
        parser: Parser = self._added.add_parser(
            name, help=wrap(help, COMMAND_COLUMN), description=sentence(help), examples=examples, usage=usage
        )
        add_common(parser)
        parser.set_defaults(handler=handler, command=parser)
        self.parsers[name] = parser
        return parser

    def add_group(self, name: str, help: str, examples: str, title: str) -> Commands:
        """Add a command that has commands of its own; alone it shows its help."""
        parser = self.add(name, lambda parsed: show_help(parser), help, examples)
        self.groups[name] = Commands(parser, title)
        return self.groups[name]

    def walk(self) -> Iterator[Parser]:
        """Yield the parser of every command, groups included."""
        for name, parser in self.parsers.items():
            yield parser
            if name in self.groups:
                yield from self.groups[name].walk()


def make_formatter(prog: str) -> argparse.HelpFormatter:
    """Return the formatter of help texts that are wrapped already."""
    return argparse.RawTextHelpFormatter(prog, max_help_position=HELP_COLUMN, width=columns())


def columns() -> int:
    """Return the width of the help: the terminal's, less two as argparse leaves free."""
    return min(shutil.get_terminal_size().columns, WIDEST) - 2


def wrap(text: str, indent: int = HELP_COLUMN) -> str:
    """Break a text into lines between words only; argparse would break `--batch-size` at its hyphens."""
    width = max(columns() - indent, 20)
    glued = re.sub(r"\(default (\S+)\)", f"(default{NO_BREAK}\\1)", text)
    lines = textwrap.wrap(glued, width, break_on_hyphens=False, break_long_words=False)
    return "\n".join(lines).replace(NO_BREAK, " ")


def sentence(text: str) -> str:
    """Return a help text as a sentence."""
    return f"{text[0].upper()}{text[1:]}."


def show_help(parser: Parser) -> int:
    """Print the help of a command that does nothing alone."""
    parser.print_help()
    return 0


def add_common(parser: Parser) -> None:
    """Add the options of all commands, which may stand before or behind the command."""
    parser.add_argument(
        "--debug", action="store_true", default=argparse.SUPPRESS, help="show the traceback of an error"
    )
    parser.add_argument(
        "--allow-import", action="store_true", default=argparse.SUPPRESS,
        help="import the module of a module:name in the file of a run or suite",
    )  # fmt: skip


# Types of options


def parse_int(low: int = 1) -> Callable[[str], int]:
    """Return a reader of whole numbers from low on; 1e6 is one."""

    def parse(text: str) -> int:
        try:
            value = int(number := float(text))
            if value != number:
                raise ValueError
        except (ValueError, OverflowError):
            raise argparse.ArgumentTypeError(f"must be a whole number, not '{text}'") from None
        if value < low:
            raise argparse.ArgumentTypeError(f"must be at least {low}, not {value}")
        return value

    return parse


def parse_float(text: str) -> float:
    """Read a number."""
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be a number, not '{text}'") from None


def parse_option(text: str) -> tuple[str, Any]:
    """Read name=value, the value as YAML would."""
    import yaml

    name, equals, value = text.partition("=")
    try:
        if not name or not equals:
            raise ValueError
        return name, yaml.safe_load(value)
    except (ValueError, yaml.YAMLError):
        raise argparse.ArgumentTypeError(f"takes name=value, not '{text}'") from None


def parse_region(text: str) -> dict[str, tuple[float, float]]:
    """Read "x=-5:5,z=-10:10"."""
    ranges: dict[str, tuple[float, float]] = {}
    for part in text.split(","):
        name, equals, bounds = part.strip().partition("=")
        low, colon, high = bounds.partition(":")
        if not (name and equals and colon) or name in ranges:
            what = f"has {name} twice" if name in ranges else f"takes feature=low:high, not '{part.strip()}'"
            raise argparse.ArgumentTypeError(what)
        ranges[name] = parse_float(low), parse_float(high)
    return ranges


def add_checkpoint(parser: Parser) -> None:
    """Add --checkpoint."""
    parser.add_argument(
        "--checkpoint", metavar="WHICH", help="of a run: best, last or a number of updates (default best)"
    )
