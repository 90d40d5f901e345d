"""Several hosts on this machine, for tests of what happens between nodes. A package, since a module has its name."""
