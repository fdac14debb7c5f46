"""A drill: the whole life of a live move, rehearsed under traffic whose every answer is kept."""

from migrator.drill.drill import Drill, DrillTerms
from migrator.drill.report import Report

__all__ = ["Drill", "DrillTerms", "Report"]
