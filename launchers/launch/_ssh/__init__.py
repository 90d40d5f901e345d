"""One command on several hosts, which ssh reaches."""
