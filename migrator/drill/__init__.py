"""A drill: the whole life of a live move, rehearsed under traffic whose every answer is kept."""

from migrator.drill.drill import Drill
from migrator.drill.report import Report
from migrator.drill.terms import DrillTerms

__all__ = ["Drill", "DrillTerms", "Report"]
