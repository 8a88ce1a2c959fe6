"""What functions of frameworks are wrapped in."""
