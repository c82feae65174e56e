"""Runs cases on a backend in processes that may die, has others judge what came back, and keeps each verdict."""
