"""The public names say what they take, what they return and what they raise."""

import inspect
import re
from collections.abc import Callable
from typing import Any

import pytest

import sparc
from sparc.acting.policy import Policy

FUNCTIONS = [getattr(sparc, name) for name in sparc.__all__ if inspect.isfunction(getattr(sparc, name))]
DOCUMENTED = [*FUNCTIONS, sparc.ContextSpace, sparc.ContextSpace.box, Policy.act, Policy.reset]


def test_the_public_functions_are_those_of_the_design() -> None:
    assert {function.__name__ for function in FUNCTIONS} == {
        "continue_run", "evaluate", "load", "make_env", "make_vector_env", "register_env", "register_method", "resume",
        "train",
    }  # fmt: skip


@pytest.mark.parametrize("documented", DOCUMENTED, ids=lambda documented: documented.__qualname__)
def test_a_public_docstring_has_every_argument(documented: Callable[..., Any]) -> None:
    text = inspect.getdoc(documented) or ""
    arguments = re.search(r"\nArgs:\n(.+?)(\n\n|\Z)", text, re.DOTALL)
    assert arguments
    described = re.findall(r"^ {4}(\*{0,2}\w+): ", arguments[1], re.MULTILINE)
    stars: dict[Any, str] = {inspect.Parameter.VAR_KEYWORD: "**", inspect.Parameter.VAR_POSITIONAL: "*"}
    taken = [stars.get(value.kind, "") + name for name, value in inspect.signature(documented).parameters.items()]
    assert described == [name for name in taken if name != "self"]
    assert "\nRaises:\n    UserError: " in text
    annotated = inspect.signature(documented).return_annotation
    returns = inspect.isfunction(documented) and annotated not in (None, "None")
    assert ("\nReturns:\n" in text) == returns
