"""SPARC: one policy for dynamics that it has never seen and cannot read."""

from typing import TYPE_CHECKING, Any

from sparc.contexts import ContextSpace
from sparc.envs.boat import env as boat
from sparc.envs.measures import Measure
from sparc.envs.motor import env as motor
from sparc.envs.registry import make_env, make_vector_env, register_env
from sparc.envs.wind import env as wind
from sparc.errors import RunFailure, SparcError, UserError
from sparc.methods import register_method

if TYPE_CHECKING:
    from sparc.acting.evaluate import evaluate
    from sparc.deploy.load import load
    from sparc.training.continual import continue_run
    from sparc.training.train import resume, train

__all__ = [
    "ContextSpace",
    "Measure",
    "RunFailure",
    "SparcError",
    "UserError",
    "continue_run",
    "evaluate",
    "load",
    "make_env",
    "make_vector_env",
    "register_env",
    "register_method",
    "resume",
    "train",
]

_LAZY = {  # these bring JAX
    "continue_run": "training.continual",
    "evaluate": "acting.evaluate",
    "load": "deploy.load",
    "resume": "training.train",
    "train": "training.train",
}

boat.register()
wind.register()
motor.register()


def __getattr__(name: str) -> Any:
    """Load what needs JAX when it is first asked for."""
    if name not in _LAZY:
        raise AttributeError(f"module 'sparc' has no attribute '{name}'")
    from importlib import import_module

    return getattr(import_module(f"sparc.{_LAZY[name]}"), name)
