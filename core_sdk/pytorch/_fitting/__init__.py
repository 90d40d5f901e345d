"""The parts of one call of `Trainer.fit()`."""
