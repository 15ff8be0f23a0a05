"""JobError: the error with which a job ends."""


class JobError(Exception):
    """Ends a job. The message is one line that says what to do; the program prints it and exits with status 1."""
