"""From a failure to a script that shows it alone, as small as it gets."""
