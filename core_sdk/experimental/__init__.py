"""The names under which scripts know `core_sdk.client` from its predecessor."""
