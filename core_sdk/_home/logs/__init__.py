"""The output of attempts: read as it grows, by lines, by levels and by ranks."""
