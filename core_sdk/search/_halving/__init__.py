"""Asynchronous successive halving (ASHA): of the trials at a rung, only the best train to the next."""

from core_sdk.search._halving._brackets import bracket_depths, brackets
from core_sdk.search._halving._halving import Halving
from core_sdk.search._halving._promotion import PromotingHalving
from core_sdk.search._halving._rungs import rung_lengths
from core_sdk.search._halving._stopping import StoppingHalving
from core_sdk.search._halving._tournament import Tournament
