"""The verbs of lanes, one noun a module. Each names who acts, joins the caller's transaction and tells after commit."""
