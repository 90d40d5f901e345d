"""Reports what `SummaryWriter`s write into event files, too."""

from __future__ import annotations

import functools
import importlib
import logging
from collections.abc import Callable, Mapping
from typing import Any

from core_sdk import media
from core_sdk.errors import MissingDependencyError

logger = logging.getLogger("core_sdk.compat")

_MODULES = ("torch.utils.tensorboard", "tensorboardX")
_OTHERS = ("add_images", "add_video", "add_audio", "add_pr_curve", "add_mesh", "add_embedding")


def _scalars(tag: str, values: Mapping[str, Any]) -> dict[str, Any]:
    return {f"{tag}/{name}": value for name, value in values.items()}


def _image(tag: str, image: Any, dataformats: str = "CHW") -> dict[str, Any]:
    return {tag: media.Image(image, channels="first" if dataformats.startswith("C") else None)}


_VALUES: dict[str, Callable[..., dict[str, Any]]] = {
    "add_scalar": lambda tag, value: {tag: value},
    "add_scalars": _scalars,
    "add_histogram": lambda tag, values: {tag: media.Histogram(values)},
    "add_image": _image,
    "add_text": lambda tag, text: {tag: media.Text(text)},
    "add_figure": lambda tag, figure: {tag: media.Figure(figure)},
}
"""A method of `SummaryWriter` -> the values to report of its tag and its value."""


class EventWriters:
    """The writers of torch and of tensorboardX in this process, whose methods also report, until `end()`."""

    def __init__(self, report: Callable[[Mapping[str, Any], int | None], None]) -> None:
        self._report = report
        self._replaced: list[tuple[Any, str, Any]] = []
        self._said: set[str] = set()
        for module in _MODULES:
            try:
                writer = importlib.import_module(module).SummaryWriter
            except ImportError:
                continue
            for name in (*_VALUES, *_OTHERS):
                if (method := vars(writer).get(name)) is not None:
                    self._replaced.append((writer, name, method))
                    setattr(writer, name, self._reporting(name, method))
        if not self._replaced:
            raise MissingDependencyError("TensorBoard", "tensorboard", "init(sync_tensorboard=True)")

    def end(self) -> None:
        while self._replaced:
            setattr(*self._replaced.pop())

    def _reporting(self, name: str, method: Any) -> Any:
        @functools.wraps(method)
        def write(writer: Any, tag: str, value: Any, global_step: Any = None, *args: Any, **kwargs: Any) -> Any:
            written = method(writer, tag, value, global_step, *args, **kwargs)
            if name in _VALUES:
                formats = {key: kwargs[key] for key in ("dataformats",) if name == "add_image" and key in kwargs}
                self._report(_VALUES[name](tag, value, **formats), None if global_step is None else int(global_step))
            elif name not in self._said:
                self._said.add(name)
                logger.warning("what %s() writes is only in the event file: report it with wandb.log()", name)
            return written

        return write
