"""Orders: the sample at each position of an epoch, as a function of (seed, epoch, position)."""

from core_sdk.loop.orders._listed import Listed, ListedBatches, Selected
from core_sdk.loop.orders._order import ENDLESS, Order, Positions, Sequential
from core_sdk.loop.orders._shuffled import Shuffled, shuffled
from core_sdk.loop.orders._weighted import Weighted
