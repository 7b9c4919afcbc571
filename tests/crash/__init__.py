"""Crashes at named places, an independent recorder, and a checker that imports nothing of the product."""
