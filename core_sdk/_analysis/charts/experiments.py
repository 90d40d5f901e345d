"""The charts of an experiment: its search, or the curves of its newest trials."""

from __future__ import annotations

from core_sdk._analysis.charts.chart import Chart
from core_sdk._analysis.charts.curves import PICTURE_BUCKETS
from core_sdk._analysis.charts.search import search_chart
from core_sdk._analysis.charts.trials import trial_charts
from core_sdk._execution.experiments.following import Follower
from core_sdk._execution.experiments.picture import read_picture
from core_sdk._home import Home, open_view

MOST_TRIALS = 20


def experiment_charts(home: Home, experiment_id: int) -> list[Chart]:
    """Returns the chart of the search if the experiment was submitted, else charts of its newest trials' metrics."""
    is_submitted = home.experiment(experiment_id).read().is_submitted
    with open_view(home) as view:
        if is_submitted:
            return [search_chart(read_picture(Follower(home, experiment_id)), view, PICTURE_BUCKETS)]
        trial_ids = view.trial_ids(experiment_id)[-MOST_TRIALS:]
        return trial_charts(view, trial_ids)
