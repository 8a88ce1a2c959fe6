"""Reading traces back: by their lines, and through the real Perfetto engine."""
