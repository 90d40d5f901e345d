"""Shows a study, its tries and what their values are worth, in few bytes."""

from core_sdk._analysis.studies._alarms import imported_elsewhere
from core_sdk._analysis.studies._board import (
    MOST_BYTES,
    Board,
    BoardLine,
    already_tried_text,
    board_line,
    board_text,
    difference_text,
    read_board,
    value_text,
)
from core_sdk._analysis.studies._history import best_curve, ends, tree_of
from core_sdk._analysis.studies._judgement import judgement_lines
