"""Arrays of numbers, from tensors and from everything that NumPy understands."""

from __future__ import annotations

from typing import Any, Literal

from core_sdk.errors import MediaError, MissingDependencyError

try:
    import numpy
    from numpy.typing import NDArray
except ImportError as error:
    raise MissingDependencyError("NumPy", "media", "core_sdk.media") from error

Channels = Literal["first", "last"]
Pixels = NDArray[numpy.uint8]

_NUM_CHANNELS = (1, 3, 4)


def as_array(kind: str, data: Any) -> NDArray[Any]:
    """Returns a tensor of any device, or what NumPy can convert, as an array of numbers or bools."""
    if hasattr(data, "detach"):
        data = data.detach().cpu()
        # NumPy has no bfloat16.
        data = (data.float() if data.is_floating_point() else data).numpy()
    array = numpy.asarray(data)
    if array.dtype.kind not in "biuf":
        raise MediaError(kind, f"is made from a {type(data).__name__} of {array.dtype}, which are not numbers")
    return array


def as_pixels(kind: str, data: Any, num_dimensions: int, channels: Channels | None) -> Pixels:
    """Returns pictures as bytes, with the channels last. `num_dimensions` counts the channels' one, too.

    Floats between 0 and 1 are scaled; lesser and greater ones are cut off there, and NaN is black. Without `channels`,
    the dimension of 1, 3 or 4 is taken; if both can be, tensors have their channels first and arrays last.
    """
    array = as_array(kind, data)
    shape = array.shape
    if array.ndim == num_dimensions - 1:
        array = array[..., None]
    elif array.ndim == num_dimensions:
        first = array.ndim - 3
        if channels is None:
            channels = _guessed(shape[first], shape[-1], is_tensor=hasattr(data, "detach"))
        if channels == "first":
            array = numpy.moveaxis(array, first, -1)
    if array.ndim != num_dimensions or array.shape[-1] not in _NUM_CHANNELS or 0 in array.shape:
        raise MediaError(kind, f"is made from an array of shape {shape}; {_expected(num_dimensions)}")
    return _as_bytes(kind, array)


def _guessed(first: int, last: int, *, is_tensor: bool) -> Channels:
    if first in _NUM_CHANNELS and (is_tensor or last not in _NUM_CHANNELS):
        return "first"
    return "last"


def _expected(num_dimensions: int) -> str:
    frames = "frames of " if num_dimensions == 4 else ""
    return f"it must be {frames}height x width, with 1, 3 or 4 channels first or last"


def _as_bytes(kind: str, array: NDArray[Any]) -> Pixels:
    if array.dtype == numpy.uint8:
        return numpy.ascontiguousarray(array)
    if array.dtype.kind == "b":
        return array.astype(numpy.uint8) * numpy.uint8(255)
    if array.dtype.kind == "f":
        if array.dtype.itemsize < 4:
            array = array.astype(numpy.float32)
        if not numpy.isfinite(array).all():
            array = numpy.nan_to_num(array, nan=0.0, posinf=1.0, neginf=0.0)
        scaled = array * array.dtype.type(255)
        scaled += array.dtype.type(0.5)
        numpy.clip(scaled, 0, 255, out=scaled)
        return numpy.ascontiguousarray(scaled.astype(numpy.uint8))
    if array.min() < 0 or array.max() > 255:
        raise MediaError(kind, f"has integers from {array.min()} to {array.max()}; they must be 0 to 255")
    return numpy.ascontiguousarray(array.astype(numpy.uint8))
