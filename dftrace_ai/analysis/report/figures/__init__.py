"""The figures of a report, made of the processes of a job."""
