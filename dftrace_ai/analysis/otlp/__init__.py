"""Spans in the form of OpenTelemetry's protocol (OTLP), for files and for receivers."""
