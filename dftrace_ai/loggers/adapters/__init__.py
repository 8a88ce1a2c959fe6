"""Loggers as the frameworks know them: a file for each, loaded when it is asked for.

Example::

    from dftrace_ai.loggers.adapters.lightning import lightning_logger

    trainer = Trainer(logger=lightning_logger(make_loggers("experiment.yaml")))
"""
