"""The home as files: one folder that holds every record, laid out as `core_sdk._home` says."""

from core_sdk._home.folders._experiment_folder import ExperimentFolder
from core_sdk._home.folders._home import Home
from core_sdk._home.folders._identity import Identity, Ownership
from core_sdk._home.folders._reserve import with_reserve
from core_sdk._home.folders._trial_folder import TrialFolder, journal_name
