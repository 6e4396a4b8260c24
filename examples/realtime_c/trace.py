"""Write the recorded check of an export as CSV for main.c: python trace.py EXPORT > trace.csv (needs NumPy alone)."""

import sys
from pathlib import Path

folder = Path(sys.argv[1])
sys.path.insert(0, str(folder))
import sparc_policy  # noqa: E402

trace = sparc_policy.read_tensors(folder, sparc_policy.CHECK, sparc_policy.read_contract(folder))
for start, obs, action in zip(trace["start"], trace["obs"], trace["action"], strict=True):
    print(start, *(f"{value:.9g}" for value in (*obs, *action)), sep=",")
