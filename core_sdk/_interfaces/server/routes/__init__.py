"""The questions that can be asked below `/api/v1`, a module for each subject."""
