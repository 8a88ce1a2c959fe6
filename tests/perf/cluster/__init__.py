"""What is promised of jobs on many hosts, tried on made ones: `python -m cluster`."""
