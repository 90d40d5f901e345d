"""The engines that the tests of creator trainers run on."""

from __future__ import annotations

from workers.engines import programs, ray_address, two_ray_nodes

__all__ = ["programs", "ray_address", "two_ray_nodes"]
