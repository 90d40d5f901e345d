"""The commands of studies: `core-sdk study`, `try`, `wait`, `board`, `keep`, `discard` and `code`."""
