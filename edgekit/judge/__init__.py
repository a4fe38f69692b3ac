"""Arrays and times in, verdicts out. Nothing here runs a model or knows a framework."""
