"""Shows results: tables and curves for people, JSON and CSV for programs."""
