"""Provides what every area uses: types of records, configurations, the environment, placement, and files."""
