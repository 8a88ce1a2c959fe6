"""What happens under pressure, and when something is killed or broken at the worst moment."""
