"""Records digests of a training's state, by which `core-sdk check-resume` finds what a resume has forgotten.

A fingerprint reads the state, and never draws a random number. It finds optimizers, models, schedulers, scalers,
loaders and samplers of torch among the live objects, the global generators, and the plain variables of the script.
"""

from core_sdk.core._recorders._fingerprints._reading import path_of_rank, read_fingerprints
from core_sdk.core._recorders._fingerprints._recorder import Fingerprint, FingerprintRecorder
