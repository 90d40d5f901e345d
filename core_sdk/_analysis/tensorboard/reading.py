"""Reads whole event files of other programs: scalars, media and hyperparameters, in the order in which they stand."""

from __future__ import annotations

import contextlib
import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from google.protobuf.message import DecodeError
from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.types_pb2 import DT_DOUBLE, DT_FLOAT
from tensorboard.plugins.hparams.api_pb2 import STATUS_FAILURE
from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

from core_sdk._analysis.tensorboard._decoding import medium_of, name_of_medium
from core_sdk._analysis.tensorboard._frames import all_messages, next_message
from core_sdk._ground.environment import max_media_bytes
from core_sdk._ground.files import reading
from core_sdk._ground.records import Media

_BESIDE_CONTENT_BYTES = 1 << 16
_TENSORS = {DT_FLOAT: "f", DT_DOUBLE: "d"}


@dataclass
class EventFileReader:
    """The event files of a run. What is found besides the points is complete when these have been read."""

    paths: list[Path]
    hparams: dict[str, Any] = field(default_factory=dict)
    has_failed: bool = False
    """Whether the program has said so."""
    losses: list[str] = field(default_factory=list)

    def began(self) -> float:
        """Returns the time of the first event, which no other run has; 0 if there is none."""
        with contextlib.suppress(ValueError, OSError, DecodeError), reading(self.paths[0]) as file:
            message = next_message(file, os.fstat(file.fileno()).st_size, _BESIDE_CONTENT_BYTES)
            return float(Event.FromString(message or b"").wall_time)
        return 0.0

    def points(self) -> Iterator[tuple[float, int, str, float | Media | None]]:
        """Yields the time, the step, the tag and the value of each scalar and medium of all files.

        A value of None is a restart, such as of a writer with a `purge_step`: TensorBoard hides what was written before
        from this step on.
        """
        for event in self._events():
            if event.HasField("session_log") and event.session_log.status == SessionLog.START:
                yield event.wall_time, event.step, "", None
            for value in event.summary.value:
                if value.HasField("simple_value"):
                    yield event.wall_time, event.step, value.tag, value.simple_value
                elif (found := self._other(value)) is not None:
                    tag = name_of_medium(value.tag, found.file) if isinstance(found, Media) else value.tag
                    yield event.wall_time, event.step, tag, found

    def _events(self) -> Iterator[Any]:
        for path in self.paths:
            num_damaged = 0
            try:
                with reading(path) as file:
                    for message in all_messages(file, max_media_bytes() + _BESIDE_CONTENT_BYTES):
                        try:
                            event = Event.FromString(message)
                        except DecodeError:
                            event = None
                        if event is None or not event.wall_time:
                            num_damaged += 1
                        else:
                            yield event
            except (ValueError, OSError) as error:
                self.losses.append(f"{path.name} was not read to its end: {error}")
            if num_damaged:
                self.losses.append(f"{num_damaged} events of {path.name} are damaged or too large, and were left out")

    def _other(self, value: Any) -> float | Media | None:
        """Returns the number of a tensor, or a medium; None for what is neither. Keeps hyperparameters."""
        plugin = value.metadata.plugin_data
        if plugin.plugin_name == "hparams":
            self._keep_hparams(plugin.content)
            return None
        tensor = value.tensor
        if tensor.dtype in _TENSORS and not tensor.tensor_shape.dim:
            numbers = tensor.float_val or tensor.double_val
            letter = _TENSORS[tensor.dtype]
            if not numbers and len(tensor.tensor_content) == struct.calcsize(letter):
                numbers = struct.unpack(f"<{letter}", tensor.tensor_content)
            return float(numbers[0]) if numbers else None
        found = medium_of(value)
        return None if found is None else Media(*found)

    def _keep_hparams(self, content: bytes) -> None:
        try:
            data = HParamsPluginData.FromString(content)
        except DecodeError:
            self.losses.append("hyperparameters are damaged, and were left out")
            return
        for name, value in data.session_start_info.hparams.items():
            match value.WhichOneof("kind"):
                case "number_value":
                    number = value.number_value
                    is_int = number.is_integer() and str(number) != "-0.0"
                    self.hparams[name] = int(number) if is_int else number
                case "string_value":
                    self.hparams[name] = value.string_value
                case "bool_value":
                    self.hparams[name] = value.bool_value
        self.has_failed |= data.session_end_info.status == STATUS_FAILURE
