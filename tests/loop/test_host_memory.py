"""Copies of a state in host memory."""

from __future__ import annotations

import io
from typing import Any

import torch

from core_sdk.loop._host_memory import HostMemory


def written(state: Any) -> tuple[int, Any]:
    """Returns the size of the file that torch writes and the content that it reads back."""
    file = io.BytesIO()
    torch.save(state, file)
    size_bytes = file.tell()
    file.seek(0)
    return size_bytes, torch.load(file, weights_only=True)


def assert_same(found: Any, expected: Any) -> None:
    assert type(found) is type(expected)
    if isinstance(expected, torch.Tensor):
        assert (found.dtype, found.requires_grad, found.layout) == (
            expected.dtype,
            expected.requires_grad,
            expected.layout,
        )
        torch.testing.assert_close(found, expected, rtol=0, atol=0, equal_nan=True)
    elif isinstance(expected, dict):
        assert list(found) == list(expected)
        for key, value in expected.items():
            assert_same(found[key], value)
    elif isinstance(expected, list | tuple):
        for one, other in zip(found, expected, strict=True):
            assert_same(one, other)
    else:
        assert found == expected


def trained() -> dict[str, Any]:
    """Returns the state of a model and an optimizer, with views, tied weights and unusual tensors."""
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 4))
    model.append(torch.nn.Linear(4, 4))
    model[3].weight = model[2].weight
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.randn(4, 3)).sum().backward()
    optimizer.step()
    whole = torch.arange(12.0)
    return {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "views": (whole, whole[2:5], whole.view(3, 4).T),
        "parameter": torch.nn.Parameter(torch.ones(2), requires_grad=False),
        "leaf": torch.ones(2, requires_grad=True),
        "unusual": [
            torch.ones(3, dtype=torch.bfloat16),
            torch.tensor(3),
            torch.empty(0),
            torch.eye(3).to_sparse(),
            torch.tensor([1 + 2j]).conj(),
        ],
        "values": [1, "word", {"best": None}, {3, 4}, float("inf")],
    }


def test_a_copy_is_written_as_the_original_would_be() -> None:
    """A copy is written with the original's types and sharing of memory."""
    state = trained()

    size_bytes, content = written(HostMemory().copy(state))

    expected_bytes, expected = written(state)
    assert_same(content, expected)
    assert abs(size_bytes - expected_bytes) <= 64  # torch aligns each tensor in the file
    first, second, third = content["views"]
    assert len({each.untyped_storage().data_ptr() for each in (first, second, third)}) == 1


def test_a_copy_stays_as_it_is_when_the_original_changes() -> None:
    """Changes of the original do not change the copy."""
    state: dict[str, Any] = {"weight": torch.zeros(3), "values": {"seen": [1]}}
    copied = HostMemory().copy(state)

    state["weight"] += 1
    state["values"]["seen"].append(2)

    assert copied["values"] == {"seen": [1]}
    assert torch.equal(copied["weight"], torch.zeros(3))


def test_the_next_copy_uses_the_same_memory() -> None:
    """The next copy reuses the memory of the last, in whatever order the tensors come."""
    memory = HostMemory()
    addresses = [copied.data_ptr() for copied in memory.copy([torch.ones(3), torch.ones(5)])]

    again = memory.copy([torch.full((5,), 2.0), torch.full((3,), 3.0), torch.ones(7)])

    assert [copied.data_ptr() for copied in again[:2]] == addresses[::-1]
    assert [copied[0].item() for copied in again] == [2, 3, 1]
