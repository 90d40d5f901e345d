"""The version of this release."""

__version__ = "0.2.0rc1"
