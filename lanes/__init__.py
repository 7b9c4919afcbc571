"""Lanes: named streams of jobs that people coordinate. They look at jobs; jobs never look at them."""
