"""The home as a whole: `core-sdk home`."""
