"""Who changed what: one event for every change of state, written in the change's own transaction."""
