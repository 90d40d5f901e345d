"""What every area stands on: types of records, configurations, the environment, the place of a process, and files."""
