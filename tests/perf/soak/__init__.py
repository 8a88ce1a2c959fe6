"""Long runs: memory, files and threads stay what they were."""
