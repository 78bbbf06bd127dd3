"""STUB"""

from typing import NamedTuple, Any
from mlaplan.report.page.elements import Section, Text


class Varied(NamedTuple):
    section: Section
    numbers: Any


def section(a, given):
    return Varied(Section("sensitivity", "Sensitivity", [Text("to come")]), [])
