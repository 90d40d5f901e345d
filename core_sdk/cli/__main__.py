"""`python -m core_sdk.cli`, the same as `core-sdk`."""

from core_sdk.cli import main

main()
