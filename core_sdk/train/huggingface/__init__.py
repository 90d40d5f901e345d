"""The libraries of Hugging Face in a training function."""
