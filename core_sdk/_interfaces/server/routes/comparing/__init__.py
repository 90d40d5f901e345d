"""Several trials at once: side by side, and in groups."""
