"""The module `core_sdk.client` itself, under its predecessor's name."""

import sys

from core_sdk import client
from core_sdk.client import *  # noqa: F403 - what type checkers see

sys.modules[__name__] = client
