"""Measures the cost of reporting 1,000 images of 256 x 256, beside Pillow's own encoding in the same run.

python benchmarks/media.py [--num-images 1000]
"""

from __future__ import annotations

import argparse
import io
import os
import tempfile
import time
from collections.abc import Iterator

import PIL.Image
import torch

from core_sdk import core, media

MAX_RATIO = 1.3
NUM_TURNS = 10
SIZE = 256


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--num-images", type=int, default=1000)
    num_images = parser.parse_args().num_images
    for name, images in (("smooth", smooth_images), ("noise", noisy_images)):
        encode_s, report_s = measure(list(images(num_images)))
        ratio = report_s / encode_s
        encoded_ms, reported_ms = (1e3 * taken_s / num_images for taken_s in (encode_s, report_s))
        verdict = "met" if ratio <= MAX_RATIO else "MISSED"
        print(f"{name:<7} Pillow encodes an image in {encoded_ms:6.2f} ms, a report of it takes {reported_ms:6.2f} ms")
        print(f"        {ratio:.2f} times as long; at most {MAX_RATIO}: {verdict}")


def smooth_images(num_images: int) -> Iterator[torch.Tensor]:
    grid = torch.arange(SIZE) / SIZE
    for number in range(num_images):
        waves = [torch.sin(grid[:, None] * (number % 50 + k) + number) + torch.cos(grid * k) for k in (3, 5, 9)]
        yield torch.stack(waves) / 4 + 0.5


def noisy_images(num_images: int) -> Iterator[torch.Tensor]:
    for number in range(num_images):
        yield torch.rand(3, SIZE, SIZE, generator=torch.Generator().manual_seed(number))


def measure(images: list[torch.Tensor]) -> tuple[float, float]:
    """Returns the seconds that Pillow needs to encode all of them, and the seconds that their reports take."""
    pillow = [PIL.Image.fromarray((image.permute(1, 2, 0) * 255).byte().numpy()) for image in images]
    encode_s, report_s = 0.0, 0.0
    with tempfile.TemporaryDirectory() as home:
        os.environ["CORE_SDK_HOME"] = home
        with core.init(name="media") as context:
            # In turns, so that a noisy neighbour disturbs both alike.
            for turn in range(NUM_TURNS):
                mine = range(turn, len(images), NUM_TURNS)
                start = time.perf_counter()
                for step in mine:
                    pillow[step].save(io.BytesIO(), "PNG")
                encoded = time.perf_counter()
                for step in mine:
                    context.train.report_metrics("samples", step, {"image": media.Image(images[step])})
                encode_s += encoded - start
                report_s += time.perf_counter() - encoded
    return encode_s, report_s


if __name__ == "__main__":
    main()
