"""Computes the CRC-32C of a whole from the CRCs of its parts, so that parts may be read in any order."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import dataclass

# CRC-32C's polynomial (RFC 3720, appendix B.4), its bits reversed: bit 31 stands for x^0.
_POLYNOMIAL = 0x82F63B78
_ONE = 1 << 31


@dataclass(frozen=True)
class Crc32c:
    """The checksum of `num_bytes` bytes."""

    value: int
    num_bytes: int

    def followed_by(self, other: Crc32c) -> Crc32c:
        """Returns the checksum of both contents, one after the other: shifts this checksum by the other's length."""
        shifted = _product(_power_of_x(8 * other.num_bytes), self.value)
        return Crc32c(shifted ^ other.value, self.num_bytes + other.num_bytes)

    def __str__(self) -> str:
        return f"{self.value:08x}"


def joined(parts: Iterable[Crc32c]) -> Crc32c:
    """Returns the checksum of all contents, one after the other."""
    return functools.reduce(Crc32c.followed_by, parts, Crc32c(0, 0))


def _product(a: int, b: int) -> int:
    """Returns the product of two polynomials over GF(2), modulo CRC-32C's."""
    product = 0
    for bit in range(31, -1, -1):
        if a >> bit & 1:
            product ^= b
        b = b >> 1 ^ (_POLYNOMIAL if b & 1 else 0)
    return product


@functools.lru_cache(maxsize=64)
def _power_of_x(exponent: int) -> int:
    """Returns x^exponent modulo the polynomial, by squaring. Cached, since most parts have the same length."""
    power, square = _ONE, _ONE >> 1
    while exponent:
        if exponent & 1:
            power = _product(square, power)
        square = _product(square, square)
        exponent >>= 1
    return power
