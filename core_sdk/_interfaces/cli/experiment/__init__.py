"""`core-sdk experiment …`: experiments, and the trials that belong to them."""
