"""Words and numbers as the page writes them; everything that comes from data is escaped here."""

from __future__ import annotations

import json
from collections.abc import Iterable
from html import escape
from typing import Any

import numpy as np

from sparc.suites.tables import EnvResults

REGIONS = {"ood": "out of distribution", "ind": "in distribution"}


def digits(part: EnvResults, published: Iterable[float] = ()) -> int:
    """Choose the decimals that an environment's returns, and published means of it, need."""
    values = [np.array(list(published)), *(value for seeds in part.returns.values() for value in seeds.values())]
    size = float(np.abs(np.concatenate(values)).max(initial=0.0))
    return 0 if size >= 1000 else 1 if size >= 10 else 3


def attributes(**values: Any) -> str:
    """Write the attributes of a tag, `data_x` as data-x; lists and dicts as JSON."""
    texts = {k: v if isinstance(v, str) else json.dumps(v) for k, v in values.items()}
    return "".join(f' {name.replace("_", "-")}="{escape(text)}"' for name, text in texts.items())
