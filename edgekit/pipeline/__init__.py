"""The river: export, run, compare, judge, report, one step a file."""
