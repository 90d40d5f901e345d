"""Metrics in the files of a script."""

from __future__ import annotations

from pathlib import Path

from core_sdk._analysis.resume_check._comparing import merged
from core_sdk._analysis.resume_check._metric_files import MetricFiles


def test_a_growing_file_is_read_line_by_line(tmp_path: Path) -> None:
    """Whole lines with a step count, each once; a file that was written anew is all new."""
    path = tmp_path / "log.jsonl"
    metrics = MetricFiles(path)

    assert metrics.take_new() == []
    path.write_text('{"step": 1, "loss": 0.5, "note": "a", "is_good": true}\nno json\n{"loss": 1}\n[1]\n{"step": 2')
    assert [(each.steps_completed, each.metrics) for each in metrics.take_new()] == [(1, {"loss": 0.5})]
    with path.open("a") as file:
        file.write(', "loss": NaN}\n')
    assert [each.steps_completed for each in metrics.take_new()] == [2]
    assert metrics.take_new() == []
    path.write_text('{"step": 3, "loss": 0.1}\n')
    assert [each.steps_completed for each in metrics.take_new()] == [3]


def test_a_directory_has_files_of_several_attempts(tmp_path: Path) -> None:
    """What a later attempt says of a step replaces what an earlier one has said."""
    metrics = MetricFiles(tmp_path)

    (tmp_path / "1.jsonl").write_text('{"step": 1, "loss": 1}\n{"step": 2, "loss": 2}\n')
    (tmp_path / "notes.txt").write_text('{"step": 9, "loss": 9}\n')
    first = merged({}, metrics.take_new())
    (tmp_path / "deeper").mkdir()
    (tmp_path / "deeper" / "0.jsonl").write_text('{"step": 3, "loss": 3}\n{"step": 2, "loss": 2.5}\n')
    both = merged(first, metrics.take_new())

    assert list(both.items()) == [((1, "", "loss"), 1), ((2, "", "loss"), 2.5), ((3, "", "loss"), 3)]
