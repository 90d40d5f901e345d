"""Strategies: the ways in which a model and its optimizer are spread over the ranks."""

from core_sdk._runtime.strategies._choice import default_strategy, named_strategy, worker_strategy
from core_sdk._runtime.strategies._ddp import WeightedDdpStrategy
from core_sdk._runtime.strategies._strategy import (
    NoStrategy,
    OptimizerStep,
    Strategy,
    UntouchedStrategy,
    parameters_of,
)
