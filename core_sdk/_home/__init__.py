"""Keeps the records: the home is a folder that holds the truth, and its index is a database that only answers faster.

    <home>/home.json                        format and maker
    <home>/experiments/<id>/experiment.json name, labels, description
    <home>/experiments/names/<sha256>       the experiment's id, by the hash of its name
    <home>/runs/<id>/trial.json             what the trial is
    <home>/runs/<id>/command.json           how to start its script again
    <home>/runs/<id>/<n>.journal            all that attempt n recorded
    <home>/runs/<id>/<n>.rank<r>.journal    progress and figures that rank r recorded in addition to rank 0, if any
    <home>/runs/<id>/<n>.log                its output, where `core-sdk run` started it
    <home>/runs/<id>/<n>.exit               its exit status, likewise, and what a launcher says of its ranks' end
    <home>/runs/<id>/<n>.environment        the commit, the packages and the machine that it ran with
    <home>/runs/<id>/changes.journal        what was done to the trial from outside
    <home>/checkpoints/<storage_id>/        checkpoints, unless `checkpoint_storage` says otherwise
    <home>/tracker.db                       the index, with helper files next to it: delete it and it is built again

Ids are allotted by `mkdir`, which is atomic on shared file systems too. A name is never a path. `tracking.home` is the
folder, `tracking.index` the database; only readers import the latter.
"""

from typing import TYPE_CHECKING

from core_sdk._ground.importing import lazy_names
from core_sdk._home.folders import Home, TrialFolder
from core_sdk._home.opening import open_view

if TYPE_CHECKING:
    from core_sdk._home.view import View

# Loaded when first used: few trainings ask for a view of their home.
__getattr__, __dir__ = lazy_names(__name__, {"View": "view"}, ["Home", "TrialFolder", "View", "open_view"])
