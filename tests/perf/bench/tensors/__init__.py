"""What tensor inspection costs."""
