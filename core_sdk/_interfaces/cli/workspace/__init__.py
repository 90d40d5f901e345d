"""Workspaces on servers: logging in, and sending records there."""
