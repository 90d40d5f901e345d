"""What happens in a worker: it executes the training function within the Core API's Context."""
