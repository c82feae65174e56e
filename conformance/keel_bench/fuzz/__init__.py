"""Damaged and made-up files, given to all that reads files: what is no clear error, what is slow, what runs code."""
