"""`sparc envs` and `sparc methods`: what there is."""

from __future__ import annotations

import argparse

from sparc.cli.parser import Commands


def add(commands: Commands) -> None:
    """Add the commands."""
    commands.add(
        "envs", list_envs, "list the environments with their context features and ranges", examples="sparc envs"
    )
    commands.add("methods", list_methods, "list the methods and what they read", examples="sparc methods")


def list_envs(parsed: argparse.Namespace) -> int:
    """`sparc envs`."""
    from sparc.cli.display import environment_table
    from sparc.envs.registry import all_envs

    environment_table(all_envs())
    return 0


def list_methods(parsed: argparse.Namespace) -> int:
    """`sparc methods`."""
    from sparc.cli.display import method_table

    method_table()
    return 0
