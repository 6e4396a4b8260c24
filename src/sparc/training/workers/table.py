"""RUN/workers.json: how the workers of a run are, for `sparc workers`. Replaced every 2 s while it trains."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

from sparc.errors import UserError
from sparc.files import beside

TABLE = "workers.json"


def write_table(run: Path, table: dict[str, Any]) -> None:
    """Replace the file; it is only for looking at, so nobody waits for the disk, and a full one is no failure."""
    with suppress(OSError), beside(run / TABLE) as new:
        new.write_text(json.dumps(table))


def read_table(run: Path) -> dict[str, Any]:
    """Read the file of a run."""
    try:
        table: dict[str, Any] = json.loads((run / TABLE).read_bytes())
        return table
    except FileNotFoundError:
        raise UserError(
            f"{run} has had no workers yet: `sparc train … --workers N`, or `sparc resume {run} --workers N`."
        ) from None
    except (OSError, ValueError) as error:
        raise UserError(f"{run / TABLE} cannot be read ({error}): wait a second, or delete it.") from None
