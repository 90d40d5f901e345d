"""Parts of queries over the points of series."""

from __future__ import annotations

import sqlalchemy as sa

from core_sdk.tracking.index._schema import attempt, point, series

attempts_series = series.join(attempt, attempt.c.id == series.c.attempt_id)
points = attempts_series.join(point, point.c.series_id == series.c.id)
is_visible = point.c.steps <= series.c.visible_until

# The first and the last step of a series cost one seek each.
_steps = sa.select(point.c.steps).where(point.c.series_id == series.c.id).correlate(series).limit(1)
first_steps = _steps.order_by(point.c.steps).scalar_subquery()
last_visible_steps = _steps.where(is_visible).order_by(point.c.steps.desc()).scalar_subquery()
