"""Worlds: environments with a context, and their registry. Nothing here imports MuJoCo or JAX before it is needed."""

from sparc.envs.registry import EnvEntry, all_envs, get_env, make_env, make_vector_env, register_env

__all__ = ["EnvEntry", "all_envs", "get_env", "make_env", "make_vector_env", "register_env"]
