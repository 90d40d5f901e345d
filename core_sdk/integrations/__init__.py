"""Callbacks for training frameworks that have a loop of their own: a module for each, imported when it is needed."""
