"""The report of an experiment as one HTML document."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from core_sdk._analysis.charts.experiments import experiment_charts
from core_sdk._analysis.charts.picture import Picture
from core_sdk._analysis.reports.html import html_text, media_html, table_html
from core_sdk._analysis.reports.of_study import study_html
from core_sdk._execution.experiments.submitted import SubmittedExperiment
from core_sdk._ground.config import from_mapping, masked, to_mapping, to_yaml
from core_sdk._home import Home, open_view
from core_sdk._home.finding.best import best_trial
from core_sdk._home.finding.facts import Facts, names_of, read_facts
from core_sdk._home.finding.groups import grouped_metric, metric_names
from core_sdk._home.media import HomeMedia
from core_sdk._home.rows import ExperimentRow
from core_sdk.errors import RecordDamagedError
from core_sdk.search._importance import importances

_MOST_ROWS = 200
_MOST_COLUMNS = 24
_MOST_TRIALS_WITH_MEDIA = 8
_MOST_MEDIA_BYTES = 16 << 20
_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #1f2328; max-width: 60rem; margin: 2rem auto; padding: 0 1rem }
table { border-collapse: collapse; font-size: 13px } td, th { border-bottom: 1px solid #d0d7de; padding: .25rem .6rem;
text-align: left; white-space: nowrap } .wide { overflow-x: auto } svg { max-width: 100%; height: auto }
.media { display: flex; flex-wrap: wrap; gap: 1rem } figure { margin: 0 } img, video { max-width: 100% }
pre { background: #f6f8fa; padding: 1rem; overflow-x: auto }
"""
# No script could run even if a name of a run were one.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; media-src data:"


def report_html(home: Home, experiment_id: int) -> str:
    """Returns an experiment as a document: its charts, trials and media, what mattered, and its configuration.

    It refers to nothing outside of itself. Secrets are masked. Raises `NotFoundError`.
    """
    with open_view(home) as view:
        row = view.experiment(experiment_id)
        found = read_facts(view, view.trials(row.experiment_id))
        best = best_trial(home, view, row.experiment_id)
    notes = home.experiment(row.experiment_id).read().notes
    charts = experiment_charts(home, row.experiment_id) if found else []
    body = [
        f"<h1>{html_text(row.name)}</h1>",
        f"<p>Experiment {row.experiment_id}: {row.state}, {len(found)} trials. {html_text(row.description)}</p>",
        f"<pre>{html_text(notes)}</pre>" if notes else "",
        f"<p>Best: {html_text(best)}</p>" if best is not None else "",
        *study_html(home, row.experiment_id),
        Picture(charts)._repr_html_(),
        *_importances(home, row, found),
        *_trials(found),
        *_media(home, found),
        *_configuration(home, row),
    ]
    head = [
        '<!doctype html>\n<html lang="en">\n<meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}"><title>{html_text(row.name)}</title>',
        f"<style>{_STYLE}</style>",
    ]
    return "\n".join([*head, *body, "</html>\n"])


def _importances(home: Home, row: ExperimentRow, found: Sequence[Facts]) -> Iterable[str]:
    recorded = home.experiment(row.experiment_id).read().searcher_metric
    metric = grouped_metric(found, recorded).name if recorded else next(iter(metric_names(found)), "")
    values = [(one.hparams, one.metric(metric)) for one in found]
    told = importances([(hparams, value) for hparams, value in values if value is not None])
    if told:
        rows = [[one.name, one.share, "" if one.correlation is None else one.correlation] for one in told]
        yield f"<h2>What mattered for {html_text(metric)}</h2>"
        yield _table(["hyperparameter", "share of the variance", "rank correlation"], rows)


def _trials(found: Sequence[Facts]) -> Iterable[str]:
    differing, same = names_of(found)
    names = [*differing, *same][:_MOST_COLUMNS]
    shown = found[-_MOST_ROWS:]
    yield "<h2>Trials</h2>"
    if len(shown) < len(found):
        yield f"<p>The newest {len(shown)} of {len(found)}.</p>"
    fields = ((one, one.row) for one in shown)
    rows = [[row.trial_id, row.name, row.state, row.steps_completed, *map(one.value, names)] for one, row in fields]
    yield _table(["trial", "name", "state", "steps", *names], rows)
    yield from (
        f"<h3>Notes of trial {one.row.trial_id}</h3>\n<pre>{html_text(one.row.notes)}</pre>"
        for one in shown
        if one.row.notes
    )


def _media(home: Home, found: Sequence[Facts]) -> Iterable[str]:
    """Yields the newest medium of each name of the newest trials that have any, up to a size of all together."""
    size_bytes = num_left_out = 0
    newest_of = []
    with open_view(home) as view:
        for one in reversed(found):
            newest = {(row.group, row.name): row for row in view.media(one.row.trial_id)}
            newest_of += [(one, newest)] if newest else []
            if len(newest_of) == _MOST_TRIALS_WITH_MEDIA:
                break
    for one, newest in newest_of:
        shown = []
        for row in newest.values():
            size_bytes += row.file.size_bytes
            try:
                is_small = size_bytes <= _MOST_MEDIA_BYTES and not row.file.problem
                content = HomeMedia(home).read(row.trial_id, row.file.name) if is_small else None
            except RecordDamagedError:
                content = None
            drawn = None if content is None else media_html(row.file, content)
            if drawn is None:
                num_left_out += 1
                continue
            caption = html_text(f"{row.group}.{row.name} at {row.steps_completed} {row.file.caption}")
            shown.append(f"<figure>{drawn}<figcaption>{caption}</figcaption></figure>")
        yield f"<h2>Media of trial {one.row.trial_id}</h2>"
        yield f'<div class="media">{"".join(shown)}</div>'
    if num_left_out:
        yield f"<p>{num_left_out} media are too large for this file, damaged, or would have to run to be shown.</p>"


def _configuration(home: Home, row: ExperimentRow) -> Iterable[str]:
    if home.experiment(row.experiment_id).read().is_submitted:
        values = masked(to_mapping(SubmittedExperiment(home, row.experiment_id).config))
        yield f"<h2>Configuration</h2>\n<pre>{html_text(to_yaml(from_mapping(values).config))}</pre>"


def _table(titles: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    return f'<div class="wide">{table_html(titles, rows)}</div>'
