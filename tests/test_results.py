"""The tables of a suite survive being written and read; damaged ones are refused in one line."""

from pathlib import Path

import numpy as np
import pytest
from synthetic import make_results

from sparc.errors import UserError
from sparc.results import read, write


def test_written_tables_are_read_back(tmp_path: Path) -> None:
    ours = make_results(seeds=(0, 3), grid=5, gaps=(("WindHopper-v5", "rma", 3),), variations=("", "H=5"))
    write(ours, tmp_path)
    theirs = read(tmp_path)
    assert theirs.manifest == ours.manifest
    assert theirs.labels == ours.labels and "sparc H=5" in ours.labels
    for env, part in ours.envs.items():
        other = theirs.envs[env]
        np.testing.assert_array_equal(other.contexts, part.contexts)
        np.testing.assert_array_equal(other.ind, part.ind)
        np.testing.assert_array_equal(other.space.train.low, part.space.train.low)
        for kind in ("returns", "curves", "traces", "latents"):
            mine, read_back = getattr(part, kind), getattr(other, kind)
            assert {name: list(seeds) for name, seeds in read_back.items()} == {
                name: list(seeds) for name, seeds in mine.items()
            }
            for name, seeds in mine.items():
                for seed, value in seeds.items():
                    for key, array in (vars(value) if kind != "returns" else {"": value}).items():
                        found = getattr(read_back[name][seed], key) if key else read_back[name][seed]
                        if array.dtype.kind == "U":
                            assert list(found) == list(array)
                        else:
                            np.testing.assert_allclose(found, array, rtol=1e-7)
    assert list(theirs.envs["WindHopper-v5"].returns["rma"]) == [0]


def test_regions_of_the_matrix() -> None:
    part = make_results(grid=21).envs["WindHopper-v5"]
    assert part.matrix("rma").shape == (3, 441)
    assert part.matrix("rma", "ind").shape == (3, 121)
    assert part.matrix("rma", "ood").shape == (3, 320)


@pytest.mark.parametrize("damage", ["no manifest", "half a manifest", "half a table", "no table", "other contexts"])
def test_damaged_results_are_refused_in_one_line(tmp_path: Path, damage: str) -> None:
    write(make_results(envs=("WindHopper-v5",), grid=3), tmp_path)
    table, manifest = tmp_path / "cells-WindHopper-v5.csv", tmp_path / "manifest.json"
    lines = table.read_text().splitlines()
    if damage == "no manifest":
        manifest.unlink()
    elif damage == "half a manifest":
        manifest.write_text(manifest.read_text()[:100])
    elif damage == "half a table":
        table.write_text("\n".join([*lines[:-1], lines[-1][:10]]))
    elif damage == "no table":
        table.unlink()
    else:
        table.write_text("\n".join([*lines[:-1], lines[-1].replace(",20,", ",19,")]))
        assert lines[-1] != table.read_text().splitlines()[-1]
    with pytest.raises(UserError, match="sparc suite report") as error:
        read(tmp_path)
    assert "\n" not in str(error.value)
