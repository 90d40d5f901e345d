"""The ranks' output on its way to the launcher's own."""
