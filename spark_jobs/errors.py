"""The one error a job ends with: a line that says what to do."""


class JobError(Exception):
    """What stops a job, in one line; the program prints it and exits 1."""
