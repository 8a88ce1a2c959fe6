"""Pages of HTML and plots on them, made without a library; no name on them does anything."""
