"""Lanes over HTTP: quorums, lanes and what belongs to them, made as the API of jobs is made."""
