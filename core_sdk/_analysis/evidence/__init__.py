"""Summarizes a trial in 4 KB for the decision what to try next: its variation, its curve, its time, its error."""

from core_sdk._analysis.evidence._bounds import MOST_BYTES, bounded
from core_sdk._analysis.evidence._code import code_changes, keep_sources
from core_sdk._analysis.evidence._evidence import Evidence, read_evidence
from core_sdk._analysis.evidence._tree import tree_lines
