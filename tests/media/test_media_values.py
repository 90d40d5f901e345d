"""Images, audios and other media are made from what scripts have, and refused with a reason."""

from __future__ import annotations

import builtins
import io
import json
from pathlib import Path
from typing import Any

import av
import matplotlib
import numpy as np
import pandas as pd
import PIL.Image
import plotly.graph_objects as go
import pytest
import soundfile
import torch
from promises import promise

from core_sdk import media
from core_sdk.errors import MediaError, MediaTooLargeError, MissingDependencyError

matplotlib.use("Agg")

RED = (255, 0, 0)


def opened(image: media.Image) -> PIL.Image.Image:
    return PIL.Image.open(io.BytesIO(image.content))


def shown(image: media.Image) -> list[list[Any]]:
    """Returns the pixels of an image, as a browser would show them."""
    pixels: list[list[Any]] = np.asarray(opened(image)).tolist()
    return pixels


@pytest.mark.parametrize(
    "data",
    [
        torch.tensor([[[1.0]], [[0.0]], [[0.0]]]),
        torch.tensor([[[1.0]], [[0.0]], [[0.0]]], dtype=torch.bfloat16, requires_grad=True),
        torch.tensor([[[255]], [[0]], [[0]]], dtype=torch.uint8),
        torch.tensor([[[True]], [[False]], [[False]]]),
        np.array([[RED]], np.uint8),
        np.array([[RED]], np.int64),
        np.array([[[7.0, -1.0, np.nan]]]),
        np.array([[[np.inf, -np.inf, np.nan]]], np.float16),
        [[RED]],
        PIL.Image.new("RGB", (1, 1), RED),
    ],
)
def test_an_image_is_made_from_what_scripts_have(data: Any) -> None:
    """Tensors of any type with their channels first, arrays with their channels last, lists and PIL images."""
    image = media.Image(data, caption="red")

    assert shown(image) == [[list(RED)]]
    assert (image.file.kind, image.file.media_type, image.file.caption) == ("image", "image/png", "red")
    assert (image.file.width, image.file.height, image.file.size_bytes) == (1, 1, len(image.content))


def test_the_channels_are_found_or_named() -> None:
    """The channels of an image are found by its shape; where that is ambiguous, they come first in a tensor."""
    wide = np.zeros((4, 5, 3), np.uint8)

    assert opened(media.Image(wide)).size == (5, 4)
    assert opened(media.Image(wide.transpose(2, 0, 1))).size == (5, 4)
    assert opened(media.Image(torch.zeros(3, 8, 3))).size == (3, 8)
    assert opened(media.Image(np.zeros((3, 8, 3)))).size == (8, 3)
    assert opened(media.Image(np.zeros((3, 8, 3)), channels="first")).size == (3, 8)
    assert (opened(media.Image(torch.rand(2, 6))).mode, opened(media.Image(torch.rand(1, 2, 6))).mode) == ("L", "L")
    assert opened(media.Image(torch.rand(4, 2, 6))).mode == "RGBA"


def test_files_that_browsers_show_are_kept_as_they_are(tmp_path: Path) -> None:
    """Image files that browsers show are stored unchanged, and other formats become PNG."""
    picture, svg = PIL.Image.new("RGB", (3, 2), RED), b"<svg xmlns='http://www.w3.org/2000/svg'/>"
    for name in ("a.jpg", "a.gif", "a.webp", "a.tiff"):
        picture.save(tmp_path / name)

    kept = {name: media.Image(tmp_path / name) for name in ("a.jpg", "a.gif", "a.webp", "a.tiff")}

    for name in ("a.jpg", "a.gif", "a.webp"):
        assert kept[name].content == (tmp_path / name).read_bytes()
    assert [one.file.media_type for one in kept.values()] == ["image/jpeg", "image/gif", "image/webp", "image/png"]
    assert media.Image(str(tmp_path / "a.jpg")).content == media.Image((tmp_path / "a.jpg").read_bytes()).content
    assert (media.Image(svg).content, media.Image(svg).file.media_type) == (svg, "image/svg+xml")


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (torch.rand(2, 3, 8, 8), r"shape \(2, 3, 8, 8\); it must be height x width"),
        (torch.rand(8, 8, 2), "with 1, 3 or 4 channels"),
        (np.zeros((0, 5)), "shape"),
        (np.full((2, 2), 256), "integers from 256 to 256; they must be 0 to 255"),
        (np.array([["a"]]), "not numbers"),
        (b"no picture", "cannot be read"),
    ],
)
def test_what_is_no_image_is_refused(data: Any, problem: str) -> None:
    """The error for data that is no image says what the data is and what it must be."""
    with pytest.raises(MediaError, match=problem):
        media.Image(data)


def test_an_audio_is_made_from_samples_or_a_file(tmp_path: Path) -> None:
    """Audio is made from samples, with channels first or last and clipped to -1 to 1, or from a file."""
    soundfile.write(tmp_path / "a.flac", np.zeros(400), 8000)

    stereo = media.Audio(torch.stack([torch.full((800,), 2.0), torch.zeros(800)]), 8000)
    kept = media.Audio(tmp_path / "a.flac")

    samples, rate = soundfile.read(io.BytesIO(stereo.content))
    assert (samples.shape, rate, stereo.file.duration_s) == ((800, 2), 8000, 0.1)
    assert samples[0].tolist() == pytest.approx([1.0, 0.0], abs=1e-4)
    assert (kept.content, kept.file.media_type) == ((tmp_path / "a.flac").read_bytes(), "audio/flac")
    assert media.Audio(np.zeros(8, np.int16), 8000, format="ogg").file.media_type == "audio/ogg"
    with pytest.raises(MediaError, match="needs their sample_rate"):
        media.Audio(torch.zeros(8))
    with pytest.raises(MediaError, match="cannot be read"):
        media.Audio(b"no sound")


def test_a_video_is_made_from_frames_or_a_file() -> None:
    """A video is made from frames, of which odd sizes lose no row or column, or from a file."""
    frames = torch.zeros(6, 3, 33, 65)
    frames[:, 0] = 1.0

    video = media.Video(frames, fps=12)

    with av.open(io.BytesIO(video.content), "r") as container:
        decoded = [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]
        assert container.streams.video[0].average_rate == 12
    assert len(decoded) == 6
    assert decoded[0].shape == (34, 66, 3)
    assert decoded[0][33, 65].tolist() == pytest.approx(RED, abs=6)
    assert (video.file.width, video.file.height, video.file.duration_s) == (65, 33, 0.5)
    assert media.Video(video.content).file.media_type == "video/mp4"
    with pytest.raises(MediaError, match="must be MP4, WebM or GIF"):
        media.Video(b"<html>")


def test_a_histogram_counts_or_is_given() -> None:
    """A histogram is counted from values, with those that are not finite apart, or made from given counts."""
    counted = json.loads(media.Histogram(torch.tensor([0.0, 0.1, 1.0, float("nan")]), num_bins=2).content)
    given = json.loads(media.Histogram(counts=[1, 2], edges=[0, 1, 5]).content)

    assert counted == {"counts": [2, 1], "edges": [0.0, 0.5, 1.0], "num_not_finite": 1}
    assert given == {"counts": [1, 2], "edges": [0, 1, 5], "num_not_finite": 0}
    assert sum(json.loads(media.Histogram(np.full(5, 3.0)).content)["counts"]) == 5
    assert sum(json.loads(media.Histogram([]).content)["counts"]) == 0
    for wrong in ({"counts": [1], "edges": [1, 0]}, {"counts": [1]}, {"counts": [-1], "edges": [0, 1]}, {}):
        with pytest.raises(MediaError):
            media.Histogram(**wrong)  # type: ignore[arg-type]


def test_a_table_is_made_from_rows_mappings_or_a_frame() -> None:
    """A table is made from rows, mappings or a DataFrame; numbers keep their values, and times become text."""
    rows = json.loads(media.Table([[1, "a"], [float("nan"), None]], columns=["x", "y"]).content)
    mappings = json.loads(media.Table([{"x": 1}, {"y": np.float32(0.5)}]).content)
    frame = json.loads(media.Table(pd.DataFrame({"x": [1, 2], "t": pd.to_datetime(["2026-01-01"] * 2)})).content)

    assert rows == {"columns": ["x", "y"], "rows": [[1, "a"], [{"$float": "NaN"}, None]]}
    assert mappings == {"columns": ["x", "y"], "rows": [[1, None], [None, 0.5]]}
    assert frame["rows"] == [[1, "2026-01-01 00:00:00"], [2, "2026-01-01 00:00:00"]]
    for wrong in ([[1, 2]], [{"x": [1]}], []):
        with pytest.raises(MediaError):
            media.Table(wrong)


def test_a_confusion_matrix_counts_or_is_given() -> None:
    """A confusion matrix is counted from targets and predictions, with true classes as rows, or is given."""
    counted = json.loads(
        media.ConfusionMatrix(targets=torch.tensor([0, 1, 1]), predictions=[0, 0, 1], labels=["cat", "dog"]).content
    )

    assert counted == {"labels": ["cat", "dog"], "matrix": [[1, 0], [1, 1]]}
    assert json.loads(media.ConfusionMatrix([[1, 2], [3, 4]]).content)["labels"] == ["0", "1"]
    for wrong in (
        {"matrix": [[1, 2]]},
        {"targets": [0], "predictions": [0, 1]},
        {"matrix": [[1]], "labels": ["a", "b"]},
    ):
        with pytest.raises(MediaError):
            media.ConfusionMatrix(**wrong)


def test_figures_of_matplotlib_and_plotly_are_drawn() -> None:
    """Figures of Matplotlib become images, and Plotly's figures become self-contained HTML."""
    from matplotlib import pyplot

    figure, axes = pyplot.subplots()
    axes.plot([1, 2, 3])

    picture, drawing = media.Figure(figure), media.Figure(figure, format="svg")
    page = media.Figure(go.Figure(go.Bar(y=[1, 2, 3])))
    pyplot.close(figure)

    assert (picture.file.media_type, drawing.file.media_type) == ("image/png", "image/svg+xml")
    assert picture.content.startswith(b"\x89PNG")
    assert page.file.media_type == "text/html"
    assert b'src="http' not in page.content
    with pytest.raises(MediaError, match="none of Matplotlib or Plotly"):
        media.Figure("a figure")


@promise("media-refused")
def test_a_value_that_is_too_large_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A value above the limit in the settings is refused, a file even before it is read."""
    monkeypatch.setenv("CORE_SDK_MAX_MEDIA_MB", "0.001")
    (tmp_path / "large.png").write_bytes(bytes(1001))

    with pytest.raises(MediaTooLargeError, match=r"this text has 1001 bytes, over 1000.*CORE_SDK_MAX_MEDIA_MB"):
        media.Text("x" * 1001)
    with pytest.raises(MediaTooLargeError, match="this image has 1001 bytes"):
        media.Image(tmp_path / "large.png")
    assert media.Text("x" * 1000).file.size_bytes == 1000


@pytest.mark.parametrize(
    ("library", "module", "make"),
    [
        ("PIL", "_pictures", lambda: media.Image(np.zeros((2, 2)))),
        ("soundfile", "_sounds", lambda: media.Audio(np.zeros(2), 8000)),
        ("av", "_frames", lambda: media.Video(np.zeros((1, 2, 2, 3)))),
    ],
)
def test_a_missing_library_is_named_with_its_command(
    library: str, module: str, make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a library for media is missing, the error has the command that installs it."""
    monkeypatch.delitem(__import__("sys").modules, f"core_sdk.media.{module}", raising=False)
    original = builtins.__import__

    def without(name: str, *arguments: Any) -> Any:
        if name.partition(".")[0] == library:
            raise ImportError(name)
        return original(name, *arguments)

    monkeypatch.setattr(builtins, "__import__", without)

    with pytest.raises(MissingDependencyError, match=r'pip install .*"pillow>=\S+"'):
        make()
