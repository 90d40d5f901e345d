"""The launchers under the name that a script for Determined gets when it is renamed: `-m core_sdk.launch.NAME`."""
