"""The Django project: chooses, wires, starts."""
