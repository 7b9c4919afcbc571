"""`manage.py up`: the whole site in one process tree, and what it is made of.

`preparing` makes the database fit and the first login, `site` keeps web and workers going and ends them in order,
`child` is one process of them, `attended` what such a process runs: nothing of it outlives who started it.
"""
