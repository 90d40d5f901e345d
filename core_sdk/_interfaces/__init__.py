"""Serves people and programs: the command line, the web page and its HTTP interface, and how both show values."""
