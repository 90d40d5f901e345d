"""Orders: the sample at each position of an epoch, as a function of (seed, epoch, position)."""

from core_sdk.loop._orders._listed import Listed, ListedBatches, Selected
from core_sdk.loop._orders._order import ENDLESS, Order, Positions, Sequential
from core_sdk.loop._orders._shuffled import Shuffled, shuffled
from core_sdk.loop._orders._weighted import Weighted
