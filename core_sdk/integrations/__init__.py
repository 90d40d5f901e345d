"""Callbacks for training frameworks that have a loop of their own. Each framework's module is imported on demand."""
