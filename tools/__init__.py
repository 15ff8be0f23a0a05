"""What the Makefile fetches for tests, benchmarks and the demo; nothing here is part of the package."""
