"""From a delegated exported program to a payload."""
