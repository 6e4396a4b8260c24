"""HTML pages that need nothing but themselves: neither a network nor a server, and no script but their own."""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path
from typing import Any

from sparc.files import replace

HERE = Path(__file__).parent


def write_page(path: Path, templates: Path, *, title: str, style: str, script: str, data: Any, **values: Any) -> None:
    """Render a page and write it, all or nothing.

    Args:
        path: The file to write.
        templates: A folder with `page.html.j2`, which extends `base.html.j2` of this folder.
        title: The page's title.
        style: CSS, embedded as it is.
        script: JavaScript, embedded as it is. The page's security policy allows this script alone, by its hash.
        data: What the script reads, written as JSON.
        **values: The variables of the templates. They are escaped; a missing one is an error.
    """
    from jinja2 import Environment, FileSystemLoader, StrictUndefined  # loaded only when a page is made
    from markupsafe import Markup

    environment = Environment(
        loader=FileSystemLoader([templates, HERE]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.policies["json.dumps_kwargs"] = {"allow_nan": False, "separators": (",", ":")}
    script = f"\n{script}"
    text = environment.get_template("page.html.j2").render(
        title=title,
        style=Markup(style),
        script=Markup(script),
        script_hash=f"sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}",
        data=data,
        **values,
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    replace(path, f"{text}\n")
