"""The part that runs in the program that calls `fit()`. It starts and ends workers, and records attempts."""
