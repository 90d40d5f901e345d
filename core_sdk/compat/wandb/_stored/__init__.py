"""Files that a run stores in checkpoints: artifacts, and what `save()` names."""

from core_sdk.compat.wandb._stored._artifact import Artifact, ArtifactStore, artifact_of_path
from core_sdk.compat.wandb._stored._files import SavedFiles
