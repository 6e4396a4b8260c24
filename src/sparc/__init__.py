"""SPARC: one policy for dynamics that it has never seen and cannot read."""

from sparc.contexts import ContextSpace
from sparc.envs import boat, make_env, make_vector_env, register_env, wind

__all__ = ["ContextSpace", "make_env", "make_vector_env", "register_env"]

boat.register()
wind.register()
