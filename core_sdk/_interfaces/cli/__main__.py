"""`python -m core_sdk._interfaces.cli`, the same as `core-sdk`."""

from core_sdk._interfaces.cli import main

main()
