"""Location, capabilities and statistics become a plan."""
