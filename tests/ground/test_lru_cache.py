"""A cache keeps what was used last."""

from __future__ import annotations

from core_sdk._ground.lru_cache import LRUCache


def test_the_value_used_longest_ago_is_dropped() -> None:
    """Reading a value is a use."""
    cache = LRUCache[str, int](2)
    cache.put("a", 1)
    cache.put("b", 2)

    cache.get("a")
    cache.put("c", 3)

    assert [cache.get(key) for key in "abc"] == [1, None, 3]


def test_a_replaced_value_takes_no_second_place() -> None:
    """A value that is put under a known key drops no other."""
    cache = LRUCache[str, int](2)
    cache.put("a", 1)
    cache.put("b", 2)

    cache.put("b", 3)

    assert [cache.get(key) for key in "ab"] == [1, 3]


def test_a_value_that_was_removed_is_not_found_again() -> None:
    """`pop` returns the value once."""
    cache = LRUCache[str, int](2)
    cache.put("a", 1)

    assert [cache.pop("a"), cache.pop("a"), cache.get("a")] == [1, None, None]


def test_large_values_leave_less_room() -> None:
    """Values of a size drop as many as they take the place of; one that is too large by itself is kept alone."""
    cache = LRUCache[str, int](10)
    for key in "abc":
        cache.put(key, 1, size=3)

    cache.put("d", 2, size=5)
    kept = [cache.get(key) for key in "abcd"]
    cache.put("e", 3, size=50)

    assert kept == [None, None, 1, 2]
    assert [cache.get(key) for key in "cde"] == [None, None, 3]
