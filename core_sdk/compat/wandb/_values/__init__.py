"""The values that scripts log: media by wandb's arguments, tables, and what becomes of others."""

from core_sdk.compat.wandb._values._media import Audio, Histogram, Html, Image, Video
from core_sdk.compat.wandb._values._recordable import is_medium, recordable
from core_sdk.compat.wandb._values._table import Table
