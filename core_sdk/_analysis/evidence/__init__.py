"""What a trial shows, in 4 KB: its variation, its curve, its time, its error, for the decision what to try next."""

from core_sdk._analysis.evidence._bounds import MOST_BYTES, bounded
from core_sdk._analysis.evidence._code import keep_sources
from core_sdk._analysis.evidence._evidence import Evidence, read_evidence
from core_sdk._analysis.evidence._tree import tree_lines
