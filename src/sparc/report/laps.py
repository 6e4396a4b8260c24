"""The former place of `report/measured.py` and `report/races.py`."""

from sparc.report.measured import mean_of, over_seeds, run_means
from sparc.report.races import races

__all__ = ["mean_of", "over_seeds", "races", "run_means"]
