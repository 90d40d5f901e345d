"""The home as files: one folder that holds every record, laid out as `core_sdk.tracking` says."""

from core_sdk.tracking.home._experiment_folder import ExperimentFolder
from core_sdk.tracking.home._home import Home
from core_sdk.tracking.home._identity import Identity, Ownership
from core_sdk.tracking.home._reserve import with_reserve
from core_sdk.tracking.home._trial_folder import TrialFolder, journal_name
