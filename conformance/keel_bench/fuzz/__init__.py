"""Damaged and made-up files, given to everything that reads files. Unclear errors, slow reads and executed code are
counted.
"""
