"""What happens in the program that calls `fit()`: workers are started, kept and ended, and attempts are recorded."""
