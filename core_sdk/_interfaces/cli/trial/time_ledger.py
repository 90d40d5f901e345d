"""`core-sdk trial time`, `experiment time` and `home time`: where the time went."""

from __future__ import annotations

import click

from core_sdk._home import open_view
from core_sdk._home.finding.time_ledger import TimeLedger, read_ledger
from core_sdk._home.time_spent import PHASES
from core_sdk._interfaces.cli._home import open_home
from core_sdk._interfaces.cli._ids import Experiment, TrialId
from core_sdk._interfaces.render.form import AsJson, Fields, choose_form
from core_sdk._interfaces.render.output import Form, print_object
from core_sdk._interfaces.render.tables import Column, print_table
from core_sdk._interfaces.render.text import format_milliseconds


def trial_time(trial_id: TrialId, as_json: AsJson = False, fields: Fields = "") -> None:
    """Show where the time of a trial went: training, lost work, waiting, starting, saving, loading, validating.

    The phases add up to the time from the beginning of the trial to its end, or until now if it goes on. The shares
    leave out the time in which it was stopped on purpose. The last line says how often to save, if that would save
    time.
    """
    form = choose_form(as_json, fields=fields)
    home = open_home()
    home.trial(trial_id)
    with open_view(home) as view:
        found = read_ledger(view, trial_id=trial_id)
    _print(found, form)


def experiment_time(experiment: Experiment, as_json: AsJson = False, fields: Fields = "") -> None:
    """Show where the time of an experiment's trials went, added up over all of them, as `trial time` does."""
    form = choose_form(as_json, fields=fields)
    with open_view(open_home()) as view:
        found = read_ledger(view, experiment_id=experiment)
    _print(found, form)


def home_time(as_json: AsJson = False, fields: Fields = "") -> None:
    """Show where the time of all trials of the home went, added up, as `trial time` does."""
    form = choose_form(as_json, fields=fields)
    with open_view(open_home()) as view:
        found = read_ledger(view)
    _print(found, form)


def _print(ledger: TimeLedger, form: Form) -> None:
    if form.is_json:
        print_object(ledger.as_values(), form.fields)
        return
    shares = ledger.shares
    rows = [(name, getattr(ledger.time, name)) for name in PHASES if getattr(ledger.time, name)]
    print_table(
        [
            Column("Phase", lambda row: row[0]),
            Column("Time", lambda row: format_milliseconds(row[1]), is_number=True),
            Column("Share", lambda row: f"{shares[row[0]]:.1%}" if row[0] in shares else "", is_number=True),
        ],
        [*rows, ("all", ledger.time.wall)],
    )
    click.echo(ledger.words())
