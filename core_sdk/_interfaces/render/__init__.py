"""How results are shown: tables and curves for people, JSON and CSV for programs."""
