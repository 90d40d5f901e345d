"""Strategies: the ways in which a model and its optimizer are spread over the ranks."""

from core_sdk.pytorch._strategies._choice import default_strategy, named_strategy
from core_sdk.pytorch._strategies._none import UntouchedStrategy
from core_sdk.pytorch._strategies._strategy import OptimizerStep, Strategy, parameters_of
