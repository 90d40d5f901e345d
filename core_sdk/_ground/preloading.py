"""The libraries that a process may import before it knows which script it will run."""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType

from core_sdk._ground.importing import file_of

# What importing them does depends on nothing but the environment: not on the directory, nor on arguments. They start no
# thread of Python's, and use no GPU.
_PRELOADABLE = frozenset(
    {
        "PIL",
        "accelerate",
        "einops",
        "lightning",
        "numpy",
        "pandas",
        "pytorch_lightning",
        "safetensors",
        "scipy",
        "sklearn",
        "timm",
        "torch",
        "torchaudio",
        "torchmetrics",
        "torchvision",
        "tqdm",
        "transformers",
    }
)
_INSTALLED = ("/site-packages/", "/dist-packages/")


def preloadable(modules: Mapping[str, ModuleType]) -> list[str]:
    """Returns the names of imported modules that another process may import ahead, in the order of their import.

    Private modules of other libraries are left out: the public ones import them. So is what a directory of the user's
    has under the name of a library.
    """
    return [name for name, module in list(modules.items()) if _is_preloadable(name, module)]


def _is_preloadable(name: str, module: ModuleType) -> bool:
    package, *inner = name.split(".")
    if package == "core_sdk":
        return True
    file = file_of(module) if package in _PRELOADABLE else None
    is_public = not any(part.startswith("_") for part in inner)
    return file is not None and is_public and any(place in file for place in _INSTALLED)
