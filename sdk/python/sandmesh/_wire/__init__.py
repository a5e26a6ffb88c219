"""The wire in Python. Nothing in here is public."""
