"""Suite files, plans and manifests of earlier versions: fields that had other names, or were not there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sparc.envs.measures import Criteria
from sparc.envs.registry import all_envs

OLD_FIELD, NEW_FIELD = "physics", "variants"
OLD_REFERENCE, NEW_REFERENCE = "laps", "measures"
OLD_ENDING = " physics"  # of a test's name: "RaceCars-forza-v0, updated physics"


def with_new_names(values: dict[str, Any]) -> dict[str, Any]:
    """Return a suite's fields, or a manifest, with today's names; nothing is changed that has them already."""
    renamed = {OLD_FIELD: NEW_FIELD} if NEW_FIELD not in values else {}
    found = {renamed.get(name, name): value for name, value in values.items()}
    reference = found.get("reference")
    if isinstance(reference, dict) and isinstance(reference.get(OLD_REFERENCE), dict):
        tests = {str(test).removesuffix(OLD_ENDING): of for test, of in reference[OLD_REFERENCE].items()}
        rest = {name: value for name, value in reference.items() if name != OLD_REFERENCE}
        found["reference"] = rest | {NEW_REFERENCE: tests}
    return found


def criteria_of(manifest: Mapping[str, Any], env: str) -> Criteria:
    """Return what an environment declared when the results were made; in older results, what it declares here."""
    if env in (declared := manifest.get("criteria", {})):
        return Criteria.from_dict(declared[env])
    entry = all_envs().get(env)
    return entry.criteria if entry else Criteria()
