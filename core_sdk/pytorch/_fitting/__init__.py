"""What happens during one call of `Trainer.fit()`."""
