"""SPARC: one policy for dynamics that it has never seen and cannot read."""

from typing import TYPE_CHECKING, Any

from sparc.contexts import ContextSpace
from sparc.envs import boat, make_env, make_vector_env, racing, register_env, wind
from sparc.errors import RunFailure, SparcError, UserError

if TYPE_CHECKING:
    from sparc.evaluation import evaluate
    from sparc.loading import load
    from sparc.training import resume, train

__all__ = [
    "ContextSpace",
    "RunFailure",
    "SparcError",
    "UserError",
    "evaluate",
    "load",
    "make_env",
    "make_vector_env",
    "register_env",
    "resume",
    "train",
]

_LAZY = {"evaluate": "evaluation", "load": "loading", "resume": "training", "train": "training"}  # these bring JAX

boat.register()
wind.register()
racing.register()


def __getattr__(name: str) -> Any:
    """Load what needs JAX when it is first asked for."""
    if name not in _LAZY:
        raise AttributeError(f"module 'sparc' has no attribute '{name}'")
    from importlib import import_module

    return getattr(import_module(f"sparc.{_LAZY[name]}"), name)
