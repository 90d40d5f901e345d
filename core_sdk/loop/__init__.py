"""The parts of a training loop that resumes exactly: the order of the data, schedules, state, and the driver."""
