"""Put a run's best checkpoint among the policies that come with sparc: python tools/add_policy.py RUN [NAME]

Evaluate the run first (`sparc evaluate RUN --adaptation`): its results become part of the contract.
Only what cannot be made again is kept: `sparc export sparc://NAME --to DIR` writes all runtimes.
"""

import sys
from pathlib import Path

from sparc.deploy.export import README, RUNTIME, from_run, write
from sparc.deploy.library import FOLDER
from sparc.runs.run import Run

LARGEST = 600_000  # bytes of a policy


def main(run: Run, name: str) -> None:
    """Write the policy and say how large it is."""
    exported = from_run(run)
    if not exported.contract["results"]:
        sys.exit(f"{run.path} has not been evaluated: sparc evaluate {run.path} --adaptation")
    files = write(exported, FOLDER / name, onnx=False).files
    for file in (FOLDER / name / RUNTIME, FOLDER / name / README):
        file.unlink()
    size = sum(file.stat().st_size for file in files if file.exists())
    print(f"{FOLDER / name}: {size:,} bytes" + (", more than a policy may have" if size > LARGEST else ""))


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit("usage: add_policy.py RUN [NAME]")
    chosen = Run.open(Path(sys.argv[1]))
    main(chosen, sys.argv[2] if len(sys.argv) > 2 else chosen.config.env.split(":")[-1])
