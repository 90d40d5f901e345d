"""The tensors of a stored checkpoint: what they are, without loading them, and their export as safetensors.

A checkpoint may hold files of `torch.save()`, what `loop.State` or a Trainer has stored, files of
`torch.distributed.checkpoint`, and files of safetensors. `_reading` gives each tensor a dotted name and a way to load
it; `_export` writes tensors under the names that `transformers` reads. Nothing here runs code of a checkpoint. Imports
torch.
"""

from core_sdk._analysis.tensors._digests import digests
from core_sdk._analysis.tensors._export import Exported, export
from core_sdk._analysis.tensors._reading import StoredTensor, describe
