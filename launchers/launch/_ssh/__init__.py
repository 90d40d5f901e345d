"""Launchers on several hosts, started by ssh."""
