"""Reading traces back: files, lines, summaries and checks; needs neither torch nor a recorder."""
