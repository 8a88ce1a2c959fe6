"""What `dftrace view` serves to the browser, on this machine alone."""
