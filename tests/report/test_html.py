"""Pages from templates: escaped, self-contained, complete or an error."""

import base64
import hashlib
import re
import subprocess
import sys
from pathlib import Path

import jinja2
import pytest

from sparc.report.html import write_page

EVIL = "</script><script>alert(1)</script>'\"&"
BODY = "{% extends 'base.html.j2' %}{% block body %}<p title=\"{{ name }}\">{{ name }}</p>{% endblock %}"


def write(folder: Path, body: str = BODY, **values: object) -> str:
    (folder / "page.html.j2").write_text(body)
    data = {"name": EVIL}
    write_page(folder / "page.html", folder, title=EVIL, style="p > b { top: 0 }", script="1 < 2;", data=data, **values)
    return (folder / "page.html").read_text()


def test_values_are_escaped_and_style_and_script_are_not(tmp_path: Path) -> None:
    html = write(tmp_path, name=EVIL)
    assert "<script>alert" not in html and html.count("<script") == html.count("</script>") == 2
    assert "p > b { top: 0 }" in html and "1 < 2;" in html
    assert '"name":"\\u003c/script\\u003e' in html


def test_the_security_policy_allows_the_script_alone(tmp_path: Path) -> None:
    html = write(tmp_path, name="")
    (script,) = re.findall(r"<script>(.*?)</script>", html, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{digest}'" in html


def test_a_missing_value_is_an_error_and_leaves_no_file(tmp_path: Path) -> None:
    with pytest.raises(jinja2.UndefinedError, match="name"):
        write(tmp_path)
    with pytest.raises(ValueError, match="JSON"):
        write_page(tmp_path / "page.html", tmp_path, title="", style="", script="", data=float("nan"), name="")
    assert not (tmp_path / "page.html").exists()


@pytest.mark.process
def test_jinja_is_loaded_only_to_make_a_page() -> None:
    code = "import sys, sparc.report.page, sparc.watch.lap_page; print('jinja2' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_every_template_is_installed_with_the_package() -> None:
    """The globs of pyproject.toml cover every template, style and script."""
    import tomllib

    root = Path(__file__).parents[2]
    globs = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]["sparc"]
    package = root / "src/sparc"
    found = {path for path in package.rglob("*") if path.suffix in (".j2", ".css", ".js")}
    assert len(found) > 10 and found <= {path for pattern in globs for path in package.glob(pattern)}
