"""Charts and the page from Python, as a notebook shows them."""

from __future__ import annotations

import importlib.util
import re
import zlib
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit
from xml.etree import ElementTree

import pytest
from home.journals import new_trial, record, report
from ports import reserved_port

from core_sdk import client
from core_sdk._home import Home
from core_sdk.errors import CoreSDKError, MissingDependencyError, NothingToDrawError, NotRecordedError


def test_a_trial_is_drawn_without_a_server(home: Home, tmp_path: Path) -> None:
    """A picture is drawn without a server, shown by a notebook and saved to a file."""
    record(new_trial(home), *(report(step, loss=1 / (step + 1), accuracy=step / 9) for step in range(10)))

    picture = client.get_trial(1).plot(["loss"])
    picture.save(tmp_path / "curves.html")

    ElementTree.fromstring(picture.svg)
    assert "training loss" in picture._repr_html_()
    assert repr(picture) == "<Picture of training loss>"
    assert "accuracy" not in picture.svg
    assert "<svg" in (tmp_path / "curves.html").read_text()
    with pytest.raises(NotRecordedError):
        client.get_trial(1).plot(["nonsense"])
    with pytest.raises(ValueError, match=r"must end in \.svg"):
        picture.save("curves.gif")


def test_an_experiment_is_drawn_with_its_newest_trials(home: Home) -> None:
    """An experiment's picture has a curve for each trial, and markup in names is escaped."""
    for value in (1.0, 2.0):
        record(new_trial(home, "<script>"), report(1, loss=value), report(2, loss=value / 2))

    picture = client.get_experiment(1).plot()

    ElementTree.fromstring(picture.svg)
    assert "trial 1" in picture.svg
    assert "trial 2" in picture.svg
    assert "<script" not in picture.svg


def test_a_picture_of_nothing_says_so(home: Home) -> None:
    """A picture without data says so in a notebook, and cannot be saved."""
    record(new_trial(home), report(1, loss="NaN"))
    picture = client.get_trial(1).plot()

    assert "nothing to draw yet" in picture._repr_html_()
    with pytest.raises(NothingToDrawError):
        picture.save("curves.svg")


def test_the_page_is_served_beside_the_program(home: Home) -> None:
    """The page is served until the block ends, and a notebook shows its link."""
    record(new_trial(home), report(1, loss=0.5))

    with client.ui() as ui:
        address, _, token = ui.url.partition("/#token=")
        port = urlsplit(address).port
        connection = HTTPConnection("127.0.0.1", port, timeout=20)
        connection.request("GET", "/api/v1/home", headers={"Authorization": f"Bearer {token}"})
        response = connection.getresponse()
        status = response.status
        response.close()
        connection.close()

        assert status == 200
        assert address in ui._repr_html_()
    with pytest.raises(ConnectionRefusedError):
        HTTPConnection("127.0.0.1", port, timeout=20).connect()


def test_a_port_in_use_is_named(home: Home) -> None:
    """A port in use is named together with a free one."""
    with reserved_port() as port, pytest.raises(CoreSDKError, match=r"in use.*is free") as caught:
        import socket

        with socket.create_server(("127.0.0.1", port)):
            client.ui(port)
    assert str(port) in str(caught.value)


def test_a_picture_in_pdf_has_lines_and_text(home: Home, tmp_path: Path) -> None:
    """A PDF has one page of the chart's size, with text in a font that it holds, and without a raster image."""
    record(new_trial(home), *(report(step, loss=1 / (step + 1)) for step in range(10)))
    picture, path = client.get_trial(1).plot(["loss"]), tmp_path / "curves.pdf"

    if importlib.util.find_spec("typst") is None:
        with pytest.raises(MissingDependencyError, match=re.escape('pip install "typst>=')):
            picture.save(path)
        return
    picture.save(path)

    content = path.read_bytes()
    streams = re.findall(rb"/FlateDecode.*?stream\r?\n(.*?)\r?\nendstream", content, re.DOTALL)
    drawn = b"\n".join(zlib.decompressobj().decompress(stream) for stream in streams)
    assert content.startswith(b"%PDF-1.")
    assert re.findall(rb"/MediaBox ?\[([^]]*)\]", content) == [b"0 0 600 255"]  # points, of 800 by 340 pixels
    assert b"/FontFile3" in content or b"/FontFile2" in content
    assert re.search(rb"\bT[jJ]\b", drawn)
    assert b"beginbfchar" in drawn  # which characters the glyphs stand for
    assert b"/Subtype/Image" not in content.replace(b" ", b"")
