"""The part that runs in a worker. It executes the training function within the Core API's Context."""
