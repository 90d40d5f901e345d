"""What people and programs talk to: the command line, the web page and its HTTP interface, and how both show values."""
