"""Frameworks of `.venv-frameworks`, which `make test-frameworks` makes and runs."""
